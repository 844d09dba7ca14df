"""Judging an answer: by hand, and against the scorer of reasoning-gym."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest

from ragen.environments.countdown.generate import Ranges, draw_problem
from ragen.environments.countdown.rules import Outcome, Problem, answer_reward, judge

PROBLEM = Problem(numbers=(3, 8, 3, 8), target=24, solution="8 / (3 - 8 / 3)")
ALL = "+-*/"


@pytest.mark.parametrize(
    ("answer", "outcome", "feedback"),
    [
        ("8 / (3 - 8 / 3)", Outcome.RIGHT, "Correct. Your expression equals 24."),
        ("8 ÷ (3 − 8 ÷ 3) = 24", Outcome.RIGHT, "Correct. Your expression equals 24."),  # noqa: RUF001
        ("8 + 8 + 3 + 3", Outcome.WRONG_VALUE, "Your expression equals 22, not 24."),
        ("8 + 8 + 3 / 3", Outcome.WRONG_VALUE, "Your expression equals 17, not 24."),
        ("3 / 8 * 3 / 8", Outcome.WRONG_VALUE, "Your expression equals 9/64, not 24."),
        ("8 / (3 - 3) + 8", Outcome.WRONG_VALUE, "Your expression divides by zero."),
        ("8 * 3", Outcome.REFUSED, "Use each of 3, 8, 3, 8 exactly once. You used 8, 3."),
        ("24", Outcome.REFUSED, "Use each of 3, 8, 3, 8 exactly once. You used 24."),
        ("8 * 3 + 8 - 8 + 3 - 3", Outcome.REFUSED, "Use each of 3, 8, 3, 8 exactly once. You used 8, 3, 8, 8, 3, 3."),
        ("8 * 3 8 3", Outcome.REFUSED, "This is not an expression: '8' was not expected after '3'."),
        ("", Outcome.REFUSED, "This is not an expression: a number is missing at the end."),
    ],
)
def test_an_answer_is_right_wrong_in_value_or_refused(answer: str, outcome: Outcome, feedback: str) -> None:
    assert judge(PROBLEM, ALL, answer) == (outcome, feedback)


def test_the_value_is_exact() -> None:
    """The published comparison of floats, within 1e-5, would call the second answer right."""
    assert judge(Problem(numbers=(1, 3, 3), target=1, solution=""), ALL, "1 / 3 * 3")[0] is Outcome.RIGHT
    near = Problem(numbers=(1, 1, 999, 1000), target=1, solution="")
    assert judge(near, ALL, "1 + 1 / (999 * 1000)") == (
        Outcome.WRONG_VALUE,
        "Your expression equals 999001/999000, not 1.",
    )


def test_an_operation_outside_those_allowed_is_refused_even_if_the_value_is_right() -> None:
    problem = Problem(numbers=(2, 2, 5), target=9, solution="2 + 2 + 5")
    assert judge(problem, "+-", "2 * 2 + 5") == (Outcome.REFUSED, "Only + - are allowed. You used *.")
    assert judge(problem, "+-", "2 + 2 + 5")[0] is Outcome.RIGHT


def test_a_right_answer_is_worth_half_as_much_in_each_later_attempt() -> None:
    assert [answer_reward(Outcome.RIGHT, attempt=k, num_attempts=4, format_score=0.1) for k in range(4)] == [1, 0.5, 0.25, 0.125]


def test_a_wrong_value_is_paid_in_the_last_attempt_only() -> None:
    paid = [answer_reward(Outcome.WRONG_VALUE, attempt=k, num_attempts=3, format_score=0.1) for k in range(3)]
    assert paid == [0.0, 0.0, 0.1]
    assert answer_reward(Outcome.REFUSED, attempt=2, num_attempts=3, format_score=0.1) == 0.0


def test_no_sequence_of_answers_earns_more_than_one_right_answer_at_once() -> None:
    for outcomes in itertools.product(Outcome, repeat=3):
        ends = outcomes.index(Outcome.RIGHT) + 1 if Outcome.RIGHT in outcomes else 3
        earned = sum(answer_reward(o, attempt=k, num_attempts=3, format_score=0.1) for k, o in enumerate(outcomes[:ends]))
        assert earned <= 1.0


def test_the_order_of_the_numbers_does_not_decide_the_split() -> None:
    bits = {Problem(numbers=order, target=24, solution="").split_bit for order in itertools.permutations((3, 5, 7, 11))}
    assert len(bits) == 1


def test_both_splits_have_problems() -> None:
    bits = [Problem(numbers=(3, 5, 7), target=target, solution="").split_bit for target in range(1, 1001)]
    assert 421 < sum(bits) < 579  # five standard deviations of a fair coin: 5 * sqrt(1000) / 2 = 79


def test_right_is_what_reasoning_gyms_scorer_gives_full_marks() -> None:
    """Independent implementation: reasoning-gym's Countdown, which evaluates with sympy and compares floats."""
    countdown = importlib.import_module("reasoning_gym.games.countdown")
    scorer = countdown.CountdownDataset(countdown.CountdownConfig(size=1))
    ranges = Ranges(min_numbers=3, max_numbers=4, max_number=20, min_target=1, max_target=30, operations=ALL)
    random = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(60):
        problem = draw_problem(ranges, random, split_bit=None, max_draws=10_000)
        assert problem is not None
        entry = {"metadata": {"numbers": list(problem.numbers), "target": problem.target}}
        swapped = problem.solution.translate(str.maketrans("+-", "-+"))
        for answer in (problem.solution, swapped, f"({problem.solution})", f"{problem.solution} + 1", "1 / 0"):
            right = judge(problem, ALL, answer)[0] is Outcome.RIGHT
            assert (scorer.score_answer(answer, entry) == 1.0) == right, answer
            seen[right] += 1
    assert min(seen.values()) > 100
