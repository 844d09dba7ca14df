"""Countdown problems drawn at random, each with a solution, because each is grown from its target backwards.

The target is taken apart into two values that an operation joins again, and these in turn, until only numbers are left. All
operations are tried equally often, and the solution needs no fraction and no negative value on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ragen.environments.countdown.expression import PRECEDENCE
from ragen.environments.countdown.rules import Problem

_MAX_DIVISOR = 12  # larger ones leave dividends out of range, so that division would hardly ever occur
Tree: TypeAlias = "int | tuple[Tree, str, Tree]"  # a number, or left, operation, right


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """What problems may look like; all bounds are inclusive. `operations` is a text of distinct characters out of + - * /."""

    min_numbers: int
    max_numbers: int
    max_number: int
    min_target: int
    max_target: int
    operations: str


def draw_problem(ranges: Ranges, random: np.random.Generator, *, split_bit: int | None, max_draws: int) -> Problem | None:
    """A problem with the given `Problem.split_bit` (None: any), or None after `max_draws` trials, most of which fail."""
    for _ in range(max_draws):
        uniform = iter(random.random(4 * ranges.max_numbers).tolist())  # one call: a draw of its own for each would be slow
        target = _between(ranges.min_target, ranges.max_target, next(uniform))
        num_operations = _between(ranges.min_numbers, ranges.max_numbers, next(uniform)) - 1
        operations = [ranges.operations[int(next(uniform) * len(ranges.operations))] for _ in range(num_operations)]
        tree = _grow(target, operations, ranges.max_number, uniform)
        if tree is None:
            continue
        numbers = tuple(number for _, number in sorted((next(uniform), number) for number in _leaves(tree)))
        problem = Problem(numbers=numbers, target=target, solution=render(tree))
        if split_bit is None or problem.split_bit == split_bit:
            return problem
    return None


def render(tree: Tree) -> str:
    """The tree as text, with no more brackets than it needs."""
    if isinstance(tree, int):
        return str(tree)
    left, operation, right = tree
    strength = PRECEDENCE[operation]
    # Read from left to right, a + (b - c) and a * (b / c) are worth the same without their brackets; a - (b + c) is not.
    loose = operation in "+*"
    return f"{_bracketed(left, strength)} {operation} {_bracketed(right, strength if loose else strength + 1)}"


def _bracketed(tree: Tree, strength: int) -> str:
    text = render(tree)
    return text if isinstance(tree, int) or PRECEDENCE[tree[1]] >= strength else f"({text})"


def _grow(value: int, operations: list[str], max_number: int, uniform: Iterator[float]) -> Tree | None:
    """A tree worth `value` with these operations, the first at its root; None if a number would be out of range."""
    if not operations:
        return value if value <= max_number else None
    operation, *rest = operations
    halves = _take_apart(value, operation, max_number, next(uniform))
    if halves is None:
        return None
    num_left = int(next(uniform) * (len(rest) + 1))
    left = _grow(halves[0], rest[:num_left], max_number, uniform)
    right = None if left is None else _grow(halves[1], rest[num_left:], max_number, uniform)
    return None if left is None or right is None else (left, operation, right)


def _take_apart(value: int, operation: str, max_number: int, uniform: float) -> tuple[int, int] | None:
    """Two positive whole numbers that `operation` joins to `value`, never by a factor or divisor of 1; None if none exist."""
    if operation == "+":
        return (left := _between(1, value - 1, uniform), value - left) if value > 1 else None
    if operation == "-":
        return value + (right := _between(1, max_number, uniform)), right
    if operation == "/":
        largest = min(max_number, _MAX_DIVISOR)
        return (value * (right := _between(2, largest, uniform)), right) if largest > 1 else None
    factors = [factor for factor in range(2, min(max_number, value // 2) + 1) if value % factor == 0]
    if not factors:
        return None
    factor = factors[int(uniform * len(factors))]
    return factor, value // factor


def _leaves(tree: Tree) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    else:
        yield from _leaves(tree[0])
        yield from _leaves(tree[2])


def _between(low: int, high: int, uniform: float) -> int:
    """A whole number from `low` to `high`, both included, for a `uniform` in [0, 1)."""
    return low + int(uniform * (high - low + 1))
