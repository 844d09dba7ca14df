"""What attempts pay: 2^-k of the score, for the best attempt, once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.answers.attempts import Attempts, attempt


def rewards(allowed: int, scores: list[float]) -> list[float]:
    """The reward of each attempt, until the question is over."""
    attempts, paid = Attempts(allowed=allowed), []
    for score in scores:
        attempts, reward = attempt(attempts, score)
        paid.append(reward)
        if attempts.over:
            break
    return paid


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0], [1.0]),
        ([0.0, 1.0], [0.0, 0.5]),
        ([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.125]),
        ([0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]),
        ([0.5, 0.5, 0.5, 0.5], [0.5, 0.0, 0.0, 0.0]),  # a partial score is paid once
        ([0.25, 1.0], [0.25, 0.25]),  # solved at the second attempt: 0.5 in all
        ([0.75, 1.0], [0.75, 0.0]),  # 1 * 1/2 is worth less than 0.75 was
        ([0.125, 0.5, 0.75, 1.0], [0.125, 0.125, 0.0, 0.0]),  # 1/8, 1/4, 3/16, 1/8
    ],
)
def test_an_attempt_is_paid_by_how_much_it_raises_the_best_worth(scores: list[float], expected: list[float]) -> None:
    assert rewards(4, scores) == expected


def test_the_question_is_over_when_solved_or_when_attempts_are_used_up() -> None:
    first, _ = attempt(Attempts(allowed=2), 0.9)
    assert (first.over, first.solved, first.left) == (False, False, 1)
    second, _ = attempt(first, 0.9)
    assert (second.over, second.solved, second.left) == (True, False, 0)
    solved, _ = attempt(Attempts(allowed=2), 1.0)
    assert (solved.over, solved.solved, solved.left) == (True, True, 1)


def test_a_score_that_rounding_left_just_below_one_counts_as_solved() -> None:
    assert attempt(Attempts(allowed=1), 1.0 - 1e-9)[0].solved
    assert not attempt(Attempts(allowed=1), 0.999)[0].solved


@given(st.integers(1, 8), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_no_sequence_of_scores_earns_more_than_its_best_attempt(allowed: int, scores: list[float]) -> None:
    paid = rewards(allowed, scores)
    best = max(score * 0.5**k for k, score in enumerate(scores[: len(paid)]))
    assert min(paid) >= 0.0
    assert sum(paid) == pytest.approx(best, abs=1e-12)
    assert sum(paid) <= 1.0 + 1e-12
