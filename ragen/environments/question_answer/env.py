"""Questions from a file of your own. Described in docs/environments/question_answer.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragen.environments.answers.env import AnswerConfig, AnswerEnv, Verdict
from ragen.environments.question_answer.rows import Format, Rows, load
from ragen.environments.question_answer.scorers import SCORERS, require_math
from ragen.environments.text_env import option
from ragen.errors import ConfigError, near_match

EXAMPLES = Path(__file__).with_name("examples.jsonl")

_HOW_TO_ANSWER = {
    "math": "Answer with the final answer only, as a number or formula, without explanation.",
    "exact": "Answer with the final answer only, without explanation.",
    "numeric": "Answer with one number only, without explanation.",
}


@dataclass(kw_only=True)
class QuestionAnswerConfig(AnswerConfig):
    path: str | None = option(None, "a .json, .jsonl or .parquet file; null: the example questions of the package")
    question_field: str = option("question", "field that holds the question")
    answer_field: str = option("answer", "field that holds the right answer")
    answer_marker: str | None = option(None, "the right answer is what follows the last occurrence of this text, such as '####'")
    validation_path: str | None = option(None, "a second file, for validation; null: a part of the first is held out")
    validation_frac: float = option(0.1, "share of the questions held out for validation; 0: none, both splits use all")
    scorer: str = option("math", "math (equal as mathematics), exact (equal text) or numeric (equal value)")

    def load(self) -> Rows:
        """The file's rows, read once per process. Raises ConfigError, one line."""
        form = Format(
            question_field=self.question_field,
            answer_field=self.answer_field,
            answer_marker=self.answer_marker,
            numeric=self.scorer == "numeric",
        )
        path = EXAMPLES if self.path is None else Path(self.path).expanduser()
        validation_path = None if self.validation_path is None else Path(self.validation_path).expanduser()
        return load(path, validation_path, form=form, validation_frac=self.validation_frac)

    def check(self) -> None:
        super().check()
        if self.scorer not in SCORERS:
            raise ConfigError(f"scorer={self.scorer!r}: must be one of {', '.join(SCORERS)}{near_match(self.scorer, SCORERS)}")
        if self.scorer == "math":
            require_math("scorer='math'")
        if not 0.0 <= self.validation_frac < 1.0:
            raise ConfigError(f"validation_frac={self.validation_frac}: must be at least 0 and below 1")
        if self.answer_marker is not None and not self.answer_marker.strip():
            raise ConfigError(f"answer_marker={self.answer_marker!r}: must hold visible text; null for none")
        self.load()  # a file that cannot be used is refused before anything heavy begins


class QuestionAnswerEnv(AnswerEnv):
    """A question of the file. Success is an answer that the scorer holds equal to the right one."""

    Config = QuestionAnswerConfig
    config: QuestionAnswerConfig

    def _pose(self) -> str:
        rows = self.config.load()
        part = rows.validation if self.np_random_seed % 2 else rows.train  # task seeds of validation are odd
        row = part[int(self.np_random.integers(len(part)))]
        self._answer = row.answer
        return row.question

    def _judge(self, answer: str) -> Verdict:
        return SCORERS[self.config.scorer](self._answer, answer)

    def _how_to_answer(self) -> str:
        return _HOW_TO_ANSWER[self.config.scorer]

    def oracle_action(self) -> str:
        return self._answer
