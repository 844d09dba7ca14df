"""The parts of the return as numbers, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragen.records import Group, Trajectory
from ragen.training.reward_metrics import reward_metrics
from tests.support.samples import make_trajectory


def with_parts(member: int, **parts: float) -> Trajectory:
    trajectory = make_trajectory([1], [7], member=member)
    return replace(trajectory, turns=tuple(replace(turn, parts=parts) for turn in trajectory.turns))


def test_nothing_is_said_of_a_return_that_is_the_environment_s() -> None:
    assert reward_metrics([Group(trajectories=(make_trajectory([1], [7]),))]) == {}


def test_parts_that_cancel_show_in_their_own_spread() -> None:
    """bug-log row 21: (1, 0) and (0, 1) add up to the same; each part's spread says why there is nothing to learn."""
    metrics = reward_metrics([Group(trajectories=(with_parts(0, a=1.0, b=0.0), with_parts(1, a=0.0, b=1.0)))])
    half = 0.5**0.5  # the unbiased standard deviation of 0 and 1
    assert metrics == pytest.approx(
        {
            "rollout/abstained_frac": 0.0,
            "rollout/part/a": 0.5,
            "rollout/part/b": 0.5,
            "rollout/part_std/a": half,
            "rollout/part_std/b": half,
            "rollout/part_abstained_frac/a": 0.0,
            "rollout/part_abstained_frac/b": 0.0,
        }
    )


def test_what_abstained_enters_no_mean_and_is_counted() -> None:
    group = Group(trajectories=(with_parts(0, a=1.0, b=5.0), with_parts(1, a=3.0)), abstained=(with_parts(2), with_parts(3)))
    assert reward_metrics([group]) == pytest.approx(
        {
            "rollout/abstained_frac": 0.5,
            "rollout/part/a": 2.0,
            "rollout/part_std/a": 2**0.5,
            "rollout/part_abstained_frac/a": 0.5,
            "rollout/part/b": 5.0,
            "rollout/part_abstained_frac/b": 0.75,
        }
    )
