"""Drawing problems: within their ranges, all solvable, of both splits."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.countdown.expression import read_expression
from ragen.environments.countdown.generate import Ranges, Tree, draw_problem, render
from ragen.environments.countdown.rules import Problem

DEFAULT = Ranges(min_numbers=3, max_numbers=4, max_number=99, min_target=10, max_target=99, operations="+-*/")


def draw(seed: int, ranges: Ranges = DEFAULT, split_bit: int | None = None) -> Problem:
    problem = draw_problem(ranges, np.random.default_rng(seed), split_bit=split_bit, max_draws=100_000)
    assert problem is not None
    return problem


def reachable(values: tuple[Fraction, ...], target: int) -> bool:
    """Whether all `values` together can make `target`: every pair, every operation, until one value is left."""
    if len(values) == 1:
        return values[0] == target
    for i, left in enumerate(values):
        for j, right in enumerate(values):
            if i == j:
                continue
            rest = tuple(value for k, value in enumerate(values) if k not in (i, j))
            results = {left + right, left - right, left * right} | ({left / right} if right else set())
            if any(reachable((*rest, result), target) for result in results):
                return True
    return False


def test_an_exhaustive_search_agrees_that_problems_can_be_solved() -> None:
    assert reachable((Fraction(3), Fraction(3), Fraction(8), Fraction(8)), 24)
    assert not reachable((Fraction(1), Fraction(1), Fraction(1)), 24)  # the search does say no
    for seed in range(40):
        problem = draw(seed)
        assert reachable(tuple(map(Fraction, problem.numbers)), problem.target), problem


def test_problems_keep_to_their_ranges_and_their_solutions_are_right() -> None:
    for seed in range(500):
        problem = draw(seed)
        assert len(problem.numbers) in (3, 4)
        assert all(1 <= number <= 99 for number in problem.numbers)
        assert 10 <= problem.target <= 99
        solution = read_expression(problem.solution)
        assert sorted(solution.numbers) == sorted(problem.numbers)
        assert solution.value == problem.target


def test_all_four_operations_and_both_lengths_are_common() -> None:
    problems = [draw(seed) for seed in range(500)]
    operations = Counter(character for problem in problems for character in problem.solution if character in "+-*/")
    assert min(operations[operation] for operation in "+-*/") > 0.1 * operations.total()
    lengths = Counter(len(problem.numbers) for problem in problems)
    assert min(lengths.values()) > 0.3 * 500


def test_the_numbers_are_not_shown_in_the_order_of_the_solution() -> None:
    in_order = sum(read_expression(problem.solution).numbers == problem.numbers for problem in map(draw, range(300)))
    assert in_order < 75  # by chance 1/6 of three and 1/24 of four numbers, more where numbers are equal


@pytest.mark.parametrize("operations", ["+", "-", "*", "/", "+-", "*/"])
def test_solutions_use_the_operations_allowed_and_no_other(operations: str) -> None:
    ranges = Ranges(min_numbers=3, max_numbers=3, max_number=99, min_target=10, max_target=99, operations=operations)
    used = {character for seed in range(60) for character in draw(seed, ranges).solution if character in "+-*/"}
    assert used == set(operations)


@pytest.mark.parametrize("bit", [0, 1])
def test_problems_of_the_split_asked_for_are_drawn(bit: int) -> None:
    assert {draw(seed, split_bit=bit).split_bit for seed in range(50)} == {bit}


def test_ranges_that_hold_no_problem_end_without_one() -> None:
    nothing = Ranges(min_numbers=3, max_numbers=3, max_number=2, min_target=50, max_target=50, operations="*")
    assert draw_problem(nothing, np.random.default_rng(0), split_bit=None, max_draws=100) is None


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (7, "7"),
        ((1, "-", (2, "+", 3)), "1 - (2 + 3)"),
        (((1, "-", 2), "+", 3), "1 - 2 + 3"),
        ((1, "+", (2, "-", 3)), "1 + 2 - 3"),
        ((8, "/", (4, "*", 2)), "8 / (4 * 2)"),
        (((1, "+", 2), "*", (3, "+", 4)), "(1 + 2) * (3 + 4)"),
        ((1, "+", (2, "*", 3)), "1 + 2 * 3"),
        ((5, "*", (6, "/", 3)), "5 * 6 / 3"),
    ],
)
def test_a_solution_is_written_with_the_brackets_it_needs(tree: Tree, text: str) -> None:
    assert render(tree) == text


TREES = st.recursive(st.integers(1, 20), lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner), max_leaves=6)


def worth(tree: Tree) -> Fraction | None:
    if isinstance(tree, int):
        return Fraction(tree)
    left, right = worth(tree[0]), worth(tree[2])
    if left is None or right is None or (tree[1] == "/" and not right):
        return None
    return {"+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1)}[tree[1]]


@given(TREES)
def test_the_text_of_a_tree_is_worth_what_the_tree_is(tree: Tree) -> None:
    expected = worth(tree)
    if expected is not None:
        assert read_expression(render(tree)).value == expected
