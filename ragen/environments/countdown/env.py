"""Countdown as an environment: a thin shell around its rules. Described in docs/environments/countdown.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ragen.environments.countdown.expression import PRECEDENCE
from ragen.environments.countdown.generate import Ranges, draw_problem
from ragen.environments.countdown.rules import Outcome, answer_reward, judge
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError, EnvironmentFailure

_LARGEST = 1000  # of numbers and targets: a bound that keeps one draw cheap
_MAX_DRAWS = 200_000  # a draw takes about 10 microseconds, and by default one in six gives a problem
_TRIAL_DRAWS = 5_000  # options under which a trial finds nothing in so many draws are refused: a reset would be too slow
_EXAMPLES = {"+": "8 + 2 = 10", "-": "8 - 2 = 6", "*": "8 * 2 = 16", "/": "8 / 2 = 4"}


@dataclass(kw_only=True)
class CountdownConfig(TextEnvConfig):
    min_numbers: int = option(3, "fewest numbers of a problem, 2 to 6")
    max_numbers: int = option(4, "most numbers of a problem, up to 6")
    max_number: int = option(99, "largest number given, 2 to 1000; the smallest is 1")
    min_target: int = option(10, "smallest target, at least 1")
    max_target: int = option(99, "largest target, up to 1000")
    operations: str = option("+-*/", "operations that solutions use and answers may use, characters out of +-*/")
    format_score: float = option(0.1, "points for an answer in the last attempt with the right numbers but another value")
    num_attempts: int = option(1, "answers allowed, 1 to 8; each attempt is worth half the one before")

    @property
    def ranges(self) -> Ranges:
        return Ranges(
            min_numbers=self.min_numbers,
            max_numbers=self.max_numbers,
            max_number=self.max_number,
            min_target=self.min_target,
            max_target=self.max_target,
            operations=self.operations,
        )

    def check(self) -> None:
        bounds = {
            "min_numbers": (2, 6),
            "max_numbers": (self.min_numbers, 6),
            "max_number": (2, _LARGEST),
            "min_target": (1, _LARGEST),
            "max_target": (self.min_target, _LARGEST),
            "num_attempts": (1, 8),
        }
        for key, (low, high) in bounds.items():
            if not low <= getattr(self, key) <= high:
                raise ConfigError(f"{key}={getattr(self, key)}: must be within {low}..{high}")
        if not self.operations or set(self.operations) - set(PRECEDENCE) or len(set(self.operations)) < len(self.operations):
            raise ConfigError(f"operations={self.operations!r}: must be one or more of + - * /, each once, such as '+-'")
        least = answer_reward(Outcome.RIGHT, attempt=self.num_attempts - 1, num_attempts=self.num_attempts, format_score=0.0)
        if not 0.0 <= self.format_score < least:
            raise ConfigError(
                f"format_score={self.format_score}: must be at least 0 and below {least:g}, the last attempt's worth"
            )
        random = np.random.default_rng(0)
        if any(draw_problem(self.ranges, random, split_bit=bit, max_draws=_TRIAL_DRAWS) is None for bit in (0, 1)):
            raise ConfigError(
                f"operations={self.operations!r}: hardly make a target within {self.min_target}..{self.max_target} of "
                f"{self.min_numbers}..{self.max_numbers} numbers up to {self.max_number}; widen these ranges"
            )


class CountdownEnv(TextEnv):
    """Make a target out of a few numbers with + - * /. The answer is an expression; success is reaching the target."""

    Config = CountdownConfig
    config: CountdownConfig

    def _begin(self) -> str:
        problem = draw_problem(self.config.ranges, self.np_random, split_bit=self.np_random_seed & 1, max_draws=_MAX_DRAWS)
        if problem is None:
            raise EnvironmentFailure(f"countdown: no problem in {_MAX_DRAWS} draws; widen the ranges of numbers and targets")
        self.problem = problem
        self.num_answers = 0
        self.instruction = _instruction(self.config)
        return self._task()

    def _play(self, action: str) -> StepAnswer:
        outcome, feedback = judge(self.problem, self.config.operations, action)
        reward = answer_reward(
            outcome,
            attempt=self.num_answers,
            num_attempts=self.config.num_attempts,
            format_score=self.config.format_score,
        )
        self.num_answers += 1
        success = outcome is Outcome.RIGHT
        terminated = success or self.num_answers == self.config.num_attempts
        observation = feedback if terminated else f"{feedback}\n{self._task()}"
        return observation, reward, terminated, False, {"success": success, "effective": outcome is not Outcome.REFUSED}

    def oracle_action(self) -> str:
        return self.problem.solution

    def max_return(self) -> float:
        return 1.0

    def _task(self) -> str:
        task = f"Target: {self.problem.target}\nNumbers: {', '.join(map(str, self.problem.numbers))}"
        left = self.config.num_attempts - self.num_answers
        return f"{task}\nAttempts left: {left}" if self.config.num_attempts > 1 else task


def _instruction(config: CountdownConfig) -> str:
    example, _, value = _EXAMPLES[config.operations[0]].partition(" = ")
    division = " Division is exact: 7 / 2 is 3.5, not 3." if "/" in config.operations else ""
    several = config.num_attempts > 1
    rewards = ["1 for the target" + (" in the first attempt, half as much in each later one" if several else "")]
    if config.format_score:
        when = "in the last attempt " if several else ""
        rewards.append(f"{config.format_score:g} {when}for another value made of exactly the given numbers")
    return (
        "Make the target out of the given numbers. Your answer is one arithmetic expression.\n"
        "Use every given number exactly once, and no other number.\n"
        f"You may use {' '.join(config.operations)} and brackets ( ).{division}\n"
        f"For example, {example} makes the target {value} out of the numbers 2 and 8.\n"
        f"Reward: {', '.join(rewards)}, 0 otherwise. You have {config.num_attempts} attempt{'s' if several else ''}."
    )
