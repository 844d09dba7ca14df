"""Estimators that judge turns by what came of them (docs/algorithms/advantages.md works the same numbers)."""

from __future__ import annotations

from typing import Any

import pytest

from ragen.credit.config import AdvantageConfig
from ragen.credit.estimators import ESTIMATORS, estimate
from ragen.credit.view import TrajectoryView
from tests.support.views import make_view


def run(views: list[TrajectoryView], estimator: str, **settings: Any) -> list[list[float]]:
    config = AdvantageConfig(estimator=estimator, **settings)
    config.check()
    return [credit.advantages.tolist() for credit in ESTIMATORS[estimator](views, config)]


def test_reinforce_pp_is_what_is_still_to_come() -> None:
    """Turns of 2 and 1 tokens, rewards 1 and 2, gamma 1/2. By turn: 1 + 2/2 and 2. By token: the first one half of that."""
    view = make_view((2, 1), (1, 2))
    assert run([view], "reinforce_pp") == [[3, 3, 2]]
    assert run([view], "reinforce_pp", gamma=0.5, discount_per="turn") == [[2, 2, 2]]
    assert run([view], "reinforce_pp", gamma=0.5, discount_per="token") == [[1, 2, 2]]


def test_reinforce_pp_by_action() -> None:
    """Three actions in the first turn: 1 + 2/8."""
    view = make_view((2, 1), (1, 2), num_actions=(3, 1))
    assert run([view], "reinforce_pp", gamma=0.5, discount_per="action") == [[1.25, 1.25, 2]]


def test_reinforce_pp_takes_token_rewards_from_where_they_stand() -> None:
    assert run([make_view((2, 1), (1, 2), token_rewards=(-0.5, 0, 0))], "reinforce_pp") == [[2.5, 3, 2]]


def test_return_batch_norm_compares_all_turns() -> None:
    """To come: 3, 2 | 1 | 2. Mean 2, deviations 1, 0 | -1 | 0, unbiased std sqrt(2/3)."""
    views = [make_view((2, 1), (1, 2)), make_view((1,), (1,), group=1), make_view((1,), (2,), group=1)]
    assert run(views, "return_batch_norm", method="mean") == [[1, 1, 0], [-1], [0]]
    high = 1.5**0.5
    assert run(views, "return_batch_norm") == [pytest.approx([high, high, 0], abs=2e-6), pytest.approx([-high], abs=2e-6), [0]]


def test_return_batch_norm_by_tag() -> None:
    """a: 1 and 3; b: 10 and 30."""
    views = [make_view(rewards=(r,), tag=tag) for r, tag in ((1, "a"), (10, "b"), (3, "a"), (30, "b"))]
    assert run(views, "return_batch_norm", method="mean", grouping="tag") == [[-1], [-10], [1], [10]]


def test_turn_rloo_compares_with_the_others_in_the_same_turn() -> None:
    """First turns: 3, 2, 4, so 3 - 3, 2 - 3.5, 4 - 2.5. Second turns: 2 and 1. The third, of one member, teaches nothing."""
    views = [make_view((2, 1), (1, 2)), make_view((1,), (2,)), make_view((1, 1, 1), (3, 0, 1))]
    assert run(views, "turn_rloo") == [[0, 0, 1], [-1.5], [1.5, -1, 0]]


def test_turn_rloo_keeps_groups_apart() -> None:
    views = [make_view(rewards=(r,), group=g) for r, g in ((1, 0), (7, 1), (3, 0), (9, 1))]
    assert run(views, "turn_rloo") == [[-2], [-2], [2], [2]]


def test_gigpo_adds_what_became_of_the_same_state() -> None:
    """Returns 1, 0, 0, so 2/3, -1/3, -1/3 for the trajectory. To come, gamma 1/2: from "start" 0.5, 0, 0 in the first turn.

    From "door" 1 in the second turn of the first member, and 0 in that of the second. "wall" occurs once.
    """
    views = [
        make_view((1, 1), (0, 1), states=("start", "door")),
        make_view((1, 1), (0, 0), states=("start", "door")),
        make_view((1, 1), (0, 0), states=("start", "wall")),
    ]
    found = run(views, "gigpo", method="mean", gamma=0.5, discount_per="turn")
    assert found == [
        pytest.approx([2 / 3 + 1 / 3, 2 / 3 + 1 / 2]),
        pytest.approx([-1 / 3 - 1 / 6, -1 / 3 - 1 / 2]),
        pytest.approx([-1 / 2, -1 / 3]),
    ]


def test_gigpo_divides_each_comparison_by_its_own_spread() -> None:
    """Returns 1 and 0: (1 - 1/2) / sqrt(1/2) = sqrt(1/2) for the trajectory, and the same again for the state."""
    views = [make_view(rewards=(r,), states=("start",)) for r in (1, 0)]
    high = 2**0.5
    assert run(views, "gigpo") == [pytest.approx([high], abs=4e-6), pytest.approx([-high], abs=4e-6)]
    assert run(views, "gigpo", anchor_weight=0.0) == [pytest.approx([high / 2], abs=2e-6), pytest.approx([-high / 2], abs=2e-6)]


def test_a_state_that_a_member_sees_twice_is_compared_with_itself() -> None:
    """Feng et al. 2025: an agent that walks in a circle learns that the first time it chose worse. To come: 0.5 and 1."""
    view = make_view((1, 1), (0, 1), states=("hall", "hall"))
    assert run([view], "gigpo", method="mean", gamma=0.5, discount_per="turn") == [[-0.25, 0.25]]


def test_the_same_state_in_another_group_is_another_state() -> None:
    views = [make_view(rewards=(r,), states=("start",), group=g) for r, g in ((1, 0), (0, 1))]
    assert run(views, "gigpo") == [[0], [0]]


@pytest.mark.parametrize("estimator", ["turn_rloo", "gigpo", "return_batch_norm", "reinforce_pp"])
def test_rewards_that_come_at_the_end_are_the_same_for_every_turn(estimator: str) -> None:
    """Bug-log row 22: 1 then 0 and 0 then 1 have the same return; per turn the second turns differ, at the end they do not."""
    views = [make_view((1, 1), rewards, states=("start", "door")) for rewards in ((1, 0), (0, 1))]
    first, second = (credit.advantages for credit in estimate(views, AdvantageConfig(estimator=estimator)))
    assert first[1] < second[1]
    first, second = (credit.advantages for credit in estimate(views, AdvantageConfig(estimator=estimator, rewards_at="end")))
    assert first.tolist() == second.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("estimator", ["turn_rloo", "gigpo", "return_batch_norm", "reinforce_pp"])
def test_a_trajectory_without_a_trained_token_has_no_turn(estimator: str) -> None:
    views = [make_view((0,), (5,)), make_view((1, 2), (1, 2)), make_view((2,), (3,))]
    silent, *_ = run(views, estimator)
    assert silent == []
