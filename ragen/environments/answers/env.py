"""Questions answered in free text, with one or more attempts: the base of reasoning_gym, gsm and question_answer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from ragen.environments.answers.attempts import Attempts, attempt
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError

MAX_ANSWER = 20_000  # characters; the longest true answers, such as a large matrix, stay below


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The score of an answer, 0 to 1, and if it could not be read, one line that says why."""

    score: float
    problem: str = ""


@dataclass(kw_only=True)
class AnswerConfig(TextEnvConfig):
    num_attempts: int = option(5, "answers that may be tried; the k-th, counted from 0, is worth 2^-k of its score")

    def check(self) -> None:
        if not 1 <= self.num_attempts <= 100:
            raise ConfigError(f"num_attempts={self.num_attempts}: must be within 1..100")


class AnswerEnv(TextEnv):
    """One question, a few attempts. A subclass fills `_pose` and `_judge`, and may say more in `_how_to_answer` and `_terms`."""

    Config = AnswerConfig
    config: AnswerConfig

    def _begin(self) -> str:
        self._attempts = Attempts(allowed=self.config.num_attempts)
        self._tried: set[str] = set()
        question = self._pose()
        self.instruction = f"Solve the problem. {self._how_to_answer()}\n{self._terms()}"
        return question

    def _play(self, action: str) -> StepAnswer:
        answer = action.strip()
        repeated = answer in self._tried
        verdict = Verdict(score=0.0, problem="You gave this answer before.") if repeated else self._verdict(answer)
        self._tried.add(answer)
        self._attempts, reward = attempt(self._attempts, verdict.score)
        attempts = self._attempts
        info = {
            "success": attempts.solved,
            "effective": not verdict.problem,
            "attempts": attempts.used,
            "score": attempts.score,
        }
        return _feedback(verdict, attempts), reward, attempts.over, False, info

    def max_return(self) -> float | None:
        return None if self.oracle_action() is None else 1.0

    def _verdict(self, answer: str) -> Verdict:
        if not answer:
            return Verdict(score=0.0, problem="Your answer is empty.")
        if len(answer) > MAX_ANSWER:
            return Verdict(score=0.0, problem=f"Your answer is too long: {len(answer)} characters, at most {MAX_ANSWER}.")
        return self._judge(answer)

    def _terms(self) -> str:
        count = self.config.num_attempts
        if count == 1:
            return "You have one attempt. A right answer earns 1 point."
        return (
            f"You have {count} attempts; the best one counts. "
            "A right answer earns 1 point at the first attempt, and half as much at each later one."
        )

    def _how_to_answer(self) -> str:
        return "Answer with the final answer only, without explanation."

    @abstractmethod
    def _pose(self) -> str:
        """Choose a question by `np_random` and return its text."""

    @abstractmethod
    def _judge(self, answer: str) -> Verdict:
        """Score an answer: stripped, not empty, at most MAX_ANSWER characters, not given before. May not raise for any text."""


def _feedback(verdict: Verdict, attempts: Attempts) -> str:
    if attempts.solved:
        return "Correct."
    said = verdict.problem or (f"Not right: score {verdict.score:.2g} of 1." if verdict.score > 0.0 else "Wrong.")
    return f"{said} Attempts left: {attempts.left}."
