"""The rules of the bandit with many pulls: names, arms, payoffs, mastery."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.bandit.rules import PAIRS
from ragen.environments.multi_turn_bandit.rules import (
    NEUTRAL_NAMES,
    Arm,
    best_arm,
    draw_bernoulli_arms,
    draw_names,
    draw_steady_risky_arms,
    is_mastered,
    pull,
)

TOLERANCE = 1e-9


@given(seed=st.integers(0, 2**32), num_arms=st.integers(2, 10), gap=st.floats(0.001, 0.999))
def test_the_best_arm_is_better_than_every_other_by_the_gap(seed: int, num_arms: int, gap: float) -> None:
    random = np.random.default_rng(seed)
    arms = draw_bernoulli_arms(draw_names("neutral", num_arms, random), gap, random)
    means = sorted(arm.mean for arm in arms)
    assert means[-1] - means[-2] >= gap - TOLERANCE
    assert means[0] >= 0.0
    assert means[-1] <= 1.0
    assert best_arm(arms).mean == means[-1]
    assert len({arm.name for arm in arms}) == num_arms


def test_the_best_arm_may_have_any_name_and_any_place() -> None:
    random = np.random.default_rng(0)
    names, places = set(), set()
    for _ in range(300):
        arms = draw_bernoulli_arms(draw_names("neutral", 3, random), 0.2, random)
        names.add(best_arm(arms).name)
        places.add(arms.index(best_arm(arms)))
    assert names == set(NEUTRAL_NAMES)
    assert places == {0, 1, 2}


def test_the_steady_and_the_risky_arm_are_the_papers() -> None:
    """0.15 always, against 1 with probability 0.25: the risky arm is better by 0.1."""
    orders = set()
    for seed in range(20):
        random = np.random.default_rng(seed)
        arms = draw_steady_risky_arms(("Teacher", "Trader"), random)
        assert {arm.name: arm.mean for arm in arms} == {"Teacher": 0.15, "Trader": 0.25}
        assert best_arm(arms).name == "Trader"
        orders.add(arms[0].name)
    assert orders == {"Teacher", "Trader"}


@pytest.mark.parametrize("names", list(PAIRS))
def test_pairs_come_from_the_bandits_lists(names: str) -> None:
    random = np.random.default_rng(1)
    assert {draw_names(names, 2, random) for _ in range(300)} == set(PAIRS[names])


def test_a_pull_pays_high_below_the_probability() -> None:
    arm = Arm(name="Red", prob=0.25, high=2.0, low=-1.0)
    assert [pull(arm, chance) for chance in (0.0, 0.2499, 0.25, 0.99)] == [2.0, 2.0, -1.0, -1.0]
    assert arm.mean == 0.25 * 2.0 - 0.75


@pytest.mark.parametrize(
    ("pulls", "expected"),
    [
        ("bbbaaa", True),  # all of the last three
        ("bbbaab", True),  # two of the last three
        ("aaaabb", False),  # one of the last three, although four of all
        ("bbaaa", True),  # of five, the last three count
        ("aab", False),  # of three, the last two: one of two is not more than half
        ("baa", True),
    ],
)
def test_mastery_is_more_than_half_of_the_last_half(pulls: str, expected: bool) -> None:
    assert is_mastered(list(pulls), "a", len(pulls)) == expected


def test_nothing_is_mastered_before_the_last_pull() -> None:
    assert not is_mastered(["a"] * 5, "a", 6)
    assert not is_mastered([], "a", 2)
