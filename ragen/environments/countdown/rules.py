"""Countdown's rules as pure functions: what a problem is, which split it belongs to, what an answer is worth.

Source: Countdown as in the RAGEN code base, with problems like those of the data set Countdown-Tasks-3to4.
Differs from the published: an answer is parsed, never evaluated as code, and its value is exact; a text that is no expression
earns nothing even if it holds the right numbers; a problem's identity decides whether it is for training or for validation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from ragen.environments.countdown.expression import ExpressionError, read_expression


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Numbers in the order shown, the target they must make, and one expression that makes it."""

    numbers: tuple[int, ...]
    target: int
    solution: str

    @property
    def split_bit(self) -> int:
        """0 or 1 by numbers and target alone, in whatever order the numbers are shown.

        Task seeds of training are even and those of validation odd. A problem is only given out under a seed of its own parity,
        so no problem is ever in both.
        """
        identity = " ".join(map(str, (*sorted(self.numbers), self.target)))
        return hashlib.blake2b(identity.encode(), digest_size=1).digest()[0] & 1


class Outcome(StrEnum):
    RIGHT = "right"  # the target, made of exactly the given numbers
    WRONG_VALUE = "wrong value"  # exactly the given numbers make something else, or divide by zero
    REFUSED = "refused"  # other numbers, an operation that is not allowed, or no expression at all


def judge(problem: Problem, operations: Collection[str], answer: str) -> tuple[Outcome, str]:
    """What an answer comes to, and one line that says why. Any text is an answer."""
    try:
        expression = read_expression(answer)
    except ExpressionError as error:
        return Outcome.REFUSED, f"This is not an expression: {error}."
    if sorted(expression.numbers) != sorted(problem.numbers):
        return Outcome.REFUSED, f"Use each of {_listed(problem.numbers)} exactly once. You used {_listed(expression.numbers)}."
    if forbidden := sorted(expression.operations - set(operations)):
        return Outcome.REFUSED, f"Only {' '.join(operations)} are allowed. You used {' '.join(forbidden)}."
    if expression.value is None:
        return Outcome.WRONG_VALUE, "Your expression divides by zero."
    if expression.value != problem.target:
        return Outcome.WRONG_VALUE, f"Your expression equals {expression.value}, not {problem.target}."
    return Outcome.RIGHT, f"Correct. Your expression equals {problem.target}."


def answer_reward(outcome: Outcome, *, attempt: int, num_attempts: int, format_score: float) -> float:
    """Points for attempt `attempt`, counted from 0: 2^-attempt if it is right.

    A wrong value earns `format_score` in the last attempt and nothing on the way, so that wrong values cannot be collected.
    """
    if outcome is Outcome.RIGHT:
        return 0.5**attempt
    return format_score if outcome is Outcome.WRONG_VALUE and attempt == num_attempts - 1 else 0.0


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "no number"
