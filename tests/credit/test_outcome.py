"""Estimators that compare whole trajectories (docs/algorithms/advantages.md works the same numbers)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from ragen.credit.config import AdvantageConfig
from ragen.credit.estimators import ESTIMATORS
from tests.support.views import make_view


def run(estimator: str, *groups: Sequence[float], tags: Sequence[str] = ("a",) * 9, **settings: Any) -> list[list[float]]:
    """Advantages per group and member, of trajectories with these returns."""
    config = AdvantageConfig(estimator=estimator, **settings)
    config.check()
    views = [make_view(rewards=(r,), group=g, tag=tags[g]) for g, returns in enumerate(groups) for r in returns]
    answers = iter(credit.advantages.item() for credit in ESTIMATORS[estimator](views, config))
    return [[next(answers) for _ in returns] for returns in groups]


def test_grpo_compares_within_the_group() -> None:
    """Group 1: mean 1, deviations 1, -1, unbiased std sqrt(2). Group 2: mean 12, deviations -2, 0, 2, unbiased std 2."""
    first, second = run("grpo", [2, 0], [10, 12, 14])
    assert first == pytest.approx([1 / math.sqrt(2), -1 / math.sqrt(2)], abs=2e-6)
    assert second == pytest.approx([-1.0, 0.0, 1.0], abs=2e-6)


def test_dr_grpo_does_not_divide() -> None:
    assert run("grpo", [2, 0], [10, 12, 14], method="mean") == [[1, -1], [-2, 0, 2]]


def test_brpo_compares_within_the_batch() -> None:
    """1, 0, 0, 0: mean 1/4, unbiased std 1/2. All of the second group is pushed down."""
    assert run("brpo", [1, 0], [0, 0]) == [pytest.approx([1.5, -0.5], abs=4e-6), pytest.approx([-0.5, -0.5], abs=4e-6)]
    assert run("brpo", [3], [0, 0], method="mean") == [[2], [-1, -1]]


def test_the_page_s_two_groups_under_every_estimator() -> None:
    """Returns 2, 0 and 10, 12, 14; over the batch the mean is 38 / 5 = 7.6."""
    assert run("brpo", [2, 0], [10, 12, 14], method="mean") == [pytest.approx([-5.6, -7.6]), pytest.approx([2.4, 4.4, 6.4])]
    assert run("rloo", [2, 0], [10, 12, 14]) == [[2, -2], [-3, 0, 3]]
    assert run("arpo", [2, 0], [10, 12, 14]) == [[2, 0], [10, 12, 14]]


def test_brpo_by_tag_keeps_tasks_of_another_scale_apart() -> None:
    """Tag a: 1, 0 and 0, 1 have mean 1/2. Tag b, with rewards a hundred times as large, moves nothing in it."""
    found = run("brpo", [1, 0], [300, 100], [0, 1], tags="aba", method="mean", grouping="tag")
    assert found == [[0.5, -0.5], [100, -100], [-0.5, 0.5]]


def test_arpo_is_the_return() -> None:
    assert run("arpo", [1.5, -0.1], [0]) == [[1.5, -0.1], [0]]


def test_rloo_compares_with_the_others() -> None:
    """1 - (2 + 6)/2, 2 - (1 + 6)/2, 6 - (1 + 2)/2; who is alone learns nothing."""
    first, second = run("rloo", [1, 2, 6], [5])
    assert first == pytest.approx([-3, -1.5, 4.5])
    assert second == [0]


def test_the_baseline_of_reinforce_pp_is_the_mean_of_the_group() -> None:
    """Before whitening, which is the same for all that whiten."""
    assert run("reinforce_pp_baseline", [2, 0], [10, 12, 14]) == [[1, -1], [-2, 0, 2]]


@pytest.mark.parametrize("estimator", ["grpo", "brpo", "rloo", "reinforce_pp_baseline"])
def test_equal_returns_teach_nothing(estimator: str) -> None:
    assert run(estimator, [0.3, 0.3, 0.3], [0.3]) == [[0, 0, 0], [0]]


@pytest.mark.parametrize("estimator", ["grpo", "brpo", "arpo", "rloo", "reinforce_pp_baseline"])
def test_every_token_of_a_trajectory_carries_its_advantage(estimator: str) -> None:
    """Bug-log row 23: 1, 2, 4 over three turns and -0.5 on a token are 6.5, wherever they were earned."""
    views = [make_view((2, 1, 3), (1, 2, 4), token_rewards=(0, -0.5, 0, 0, 0, 0)), make_view((1,), (0.5,))]
    long, short = (
        c.advantages.tolist() for c in ESTIMATORS[estimator](views, AdvantageConfig(estimator=estimator, method="mean"))
    )
    assert (long, short) == {"arpo": ([6.5] * 6, [0.5]), "rloo": ([6.0] * 6, [-6.0])}.get(estimator, ([3.0] * 6, [-3.0]))


def test_a_trajectory_without_a_token_counts_in_its_group() -> None:
    """It was scored: the policy did answer, with nothing."""
    views = [make_view((0,), (-1,)), make_view((2,), (1,))]
    silent, spoke = ESTIMATORS["grpo"](views, AdvantageConfig(method="mean"))
    assert silent.advantages.tolist() == []
    assert spoke.advantages.tolist() == [1.0, 1.0]
