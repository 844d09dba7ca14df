from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.algorithms.config import OverlongConfig
from ragen.algorithms.overlong import handle_overlong, is_overlong, overlong_penalty
from ragen.credit.rewards import RewardsConfig, score
from ragen.records import EndReason, FinishReason, Group, Trajectory
from tests.support.samples import make_trajectory

MAX = 100
PENALTY = OverlongConfig(rule="penalty", buffer=40, price=0.5)


def played(*lengths: int, member: int = 0, cut: bool = False, end: EndReason = EndReason.FAILED) -> Trajectory:
    """Replies of so many tokens, each paid 1; the last of them cut at its limit if asked for."""
    parts = [part for n in lengths for part in ([9] * n, [3])]
    made = make_trajectory([1, 2], *parts, rewards=[1.0] * len(lengths), member=member, end_reason=end)
    last = replace(made.turns[-1], finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP)
    return replace(made, turns=(*made.turns[:-1], last))


@pytest.mark.parametrize(("num_tokens", "expected"), [(1, 0.0), (60, 0.0), (70, -0.125), (80, -0.25), (100, -0.5)])
def test_the_soft_penalty_by_hand(num_tokens: int, expected: float) -> None:
    """At most 100 tokens, the last 40 of which cost: nothing up to 60, a half of 0.5 at 80, all of it at 100."""
    assert overlong_penalty(num_tokens, max_new_tokens=100, buffer=40, price=0.5) == pytest.approx(expected)


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 200))
def test_the_soft_penalty_never_pays_and_never_costs_more_than_its_price(n: int, limit: int, buffer: int) -> None:
    price = overlong_penalty(n, max_new_tokens=limit, buffer=buffer, price=2.0)
    assert -2 <= price <= 0
    assert overlong_penalty(n + 1, max_new_tokens=limit, buffer=buffer, price=2.0) <= price


def test_what_is_overlong() -> None:
    """Bug-log row 51: how a reply ended is told by the engine; its last id, here never one that ends a turn, is not asked."""
    assert all(9 in set(segment.ids.tolist()) for segment in played(5, 5).segments)
    assert not is_overlong(played(5, 5))
    assert is_overlong(played(5, 100, cut=True))
    assert is_overlong(played(5, end=EndReason.CONTEXT_LIMIT))
    assert not is_overlong(played(5, end=EndReason.TURN_LIMIT))


def test_masking_takes_an_overlong_member_out_of_its_group() -> None:
    """Bug-log row 20: of returns 2, 2, 0, 0 with the second masked the mean must be 2/3, so it may not be among them."""
    members = [played(5, 5, member=0), played(5, 5, member=1, cut=True), played(5, member=2), played(5, member=3)]
    (found,) = handle_overlong([Group(trajectories=tuple(members))], OverlongConfig(rule="mask"), max_new_tokens=MAX)
    assert [t.key.member for t in found.trajectories] == [0, 2, 3]


def test_a_group_of_which_nothing_is_left_stays_in_its_place() -> None:
    groups = [Group(trajectories=(played(5, cut=True),)), Group(trajectories=(played(5),))]
    found = handle_overlong(groups, OverlongConfig(rule="mask"), max_new_tokens=MAX)
    assert [len(group.trajectories) for group in found] == [0, 1]


def test_a_long_reply_pays_as_a_part_of_the_return() -> None:
    """Replies of 10 and 80 tokens: 1 + 1 - 0.25."""
    (found,) = handle_overlong([Group(trajectories=(played(10, 80),))], PENALTY, max_new_tokens=MAX)
    (trajectory,) = found.trajectories
    assert [dict(turn.parts) for turn in trajectory.turns] == [
        {"environment": 1.0, "format": 0.0, "overlong": 0.0},
        {"environment": 1.0, "format": 0.0, "overlong": -0.25},
    ]
    assert trajectory.return_ == pytest.approx(1.75)
    assert trajectory.rewards == 2  # what the environment paid is not touched


def test_the_penalty_adds_to_rewards_of_one_s_own() -> None:
    rewards = RewardsConfig(functions={"one": "tests.support.rewards:one"})
    scored = score([Group(trajectories=(played(100),))], rewards)
    (found,) = handle_overlong(scored, PENALTY, max_new_tokens=MAX)
    assert dict(found.trajectories[0].turns[0].parts) == {"environment": 1.0, "format": 0.0, "one": 1.0, "overlong": -0.5}


def test_by_default_nothing_is_changed() -> None:
    groups = [Group(trajectories=(played(100, cut=True),))]
    assert handle_overlong(groups, OverlongConfig(), max_new_tokens=MAX) == groups
