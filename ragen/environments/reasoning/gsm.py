"""Word problems of primary-school mathematics, answered by a number. Described in docs/environments/gsm.md."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.environments.answers.env import AnswerConfig, AnswerEnv, Verdict
from ragen.environments.question_answer.scorers import numeric_verdict
from ragen.environments.reasoning import library
from ragen.environments.reasoning.env import problem_seed
from ragen.environments.text_env import option
from ragen.errors import ConfigError


@dataclass(kw_only=True)
class GsmConfig(AnswerConfig):
    min_steps: int = option(1, "fewest lines of the worked solution")
    max_steps: int = option(20, "most lines of the worked solution")

    def check(self) -> None:
        super().check()
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(f"min_steps={self.min_steps}: must be within 1..max_steps, which is {self.max_steps}")
        library.check_word_problems(self.min_steps, self.max_steps)


class GsmEnv(AnswerEnv):
    """A word problem. Success is an answer that states the right value, however it is written."""

    Config = GsmConfig
    config: GsmConfig

    def _pose(self) -> str:
        seed = problem_seed(self.np_random, self.np_random_seed)
        self._problem = library.word_problem(self.config.min_steps, self.config.max_steps, seed)
        return self._problem.question

    def _judge(self, answer: str) -> Verdict:
        return numeric_verdict(self._problem.answer or "", answer)

    def _how_to_answer(self) -> str:
        return "Answer with one number only, without explanation."

    def oracle_action(self) -> str | None:
        return self._problem.answer
