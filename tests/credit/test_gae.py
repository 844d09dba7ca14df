"""The three estimators with a critic, on one trajectory of two turns (docs/algorithms/advantages.md works the same numbers)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.credit.config import AdvantageConfig
from ragen.credit.estimators import ESTIMATORS
from ragen.credit.view import TrajectoryView
from tests.support.views import make_view

EXAMPLE: dict[str, Any] = {"lengths": (2, 1), "rewards": (1, 2), "values": (0.5, 1.0, 1.5)}


def run(view: TrajectoryView, estimator: str, **settings: Any) -> tuple[list[float], list[float]]:
    config = AdvantageConfig(estimator=estimator, whiten=False, **settings)
    config.check()
    (credit,) = ESTIMATORS[estimator]([view], config)
    assert credit.targets is not None
    return credit.advantages.tolist(), credit.targets.tolist()


def test_gae_by_hand() -> None:
    """delta: 0 + 0.5 - 0.5 = 0; 1 + 0.75 - 1 = 0.75; 2 - 1.5 = 0.5. A: 0.5; 0.75 + 0.25 x 0.5; 0 + 0.25 x 0.875."""
    advantages, targets = run(make_view(**EXAMPLE), "gae", gamma=0.5, lam=0.5, discount_per="token")
    assert advantages == [0.21875, 0.875, 0.5]
    assert targets == [0.71875, 1.875, 2.0]


def test_by_turn_no_time_passes_inside_a_reply() -> None:
    """The first token: 0 + 1 x 1 - 0.5 = 0.5, and all of the second one's 0.875."""
    advantages, _ = run(make_view(**EXAMPLE), "gae", gamma=0.5, lam=0.5, discount_per="turn")
    assert advantages == [1.375, 0.875, 0.5]


def test_by_action_a_turn_of_two_actions_takes_twice_as_long() -> None:
    """1 + 0.25 x 1.5 - 1 = 0.375, and 0.25 x 0.25 of the last token's 0.5; the first token 0.5 more."""
    advantages, _ = run(make_view(**EXAMPLE, num_actions=(2, 1)), "gae", gamma=0.5, lam=0.5, discount_per="action")
    assert advantages == [0.90625, 0.40625, 0.5]


@pytest.mark.parametrize(("gamma", "per", "expected"), [(1.0, "", [3 - 0.5, 3 - 1.0, 2 - 1.5]), (0.0, "token", [-0.5, 0.0, 0.5])])
def test_gae_at_its_ends(gamma: float, per: str, expected: list[float]) -> None:
    """gamma = lambda = 1: rewards to come minus value. gamma = 0: the token's own reward minus value."""
    advantages, _ = run(make_view(**EXAMPLE), "gae", gamma=gamma, discount_per=per)
    assert advantages == expected


def test_turn_gae_by_hand() -> None:
    """Values 0.5 and 1.5 at the first tokens. delta: 1 + 0.75 - 0.5 = 1.25; 0.5. A: 1.25 + 0.25 x 0.5; 0.5."""
    advantages, targets = run(make_view(**EXAMPLE), "turn_gae", gamma=0.5, lam=0.5, discount_per="turn")
    assert advantages == [1.375, 1.375, 0.5]
    assert targets == [1.875, 1.875, 2.0]


def test_turn_gae_by_token_discounts_by_the_length_of_the_turn() -> None:
    """Two tokens: 1 + 0.25 x 1.5 - 0.5 = 0.875, and 0.0625 of 0.5."""
    advantages, _ = run(make_view(**EXAMPLE), "turn_gae", gamma=0.5, lam=0.5, discount_per="token")
    assert advantages == [0.90625, 0.90625, 0.5]


def test_bi_level_gae_by_hand() -> None:
    """Turns, at their last tokens: 1 + 0.75 - 1 + 0.25 x 0.5 = 0.875; 0.5. First token: 1 - 0.5 + 0.5 x 0.875."""
    advantages, targets = run(make_view(**EXAMPLE), "bi_level_gae", gamma_turn=0.5, lam_turn=0.5, lam=0.5)
    assert advantages == [0.9375, 0.875, 0.5]
    assert targets == [1.4375, 1.875, 2.0]


def test_bi_level_gae_of_a_trajectory_that_earns_nothing() -> None:
    """The published code takes a reward other than 0 for the end of a turn, so it fails here. By hand as above, rewards 0."""
    view = make_view(EXAMPLE["lengths"], (0, 0), values=EXAMPLE["values"])
    advantages, _ = run(view, "bi_level_gae", gamma_turn=0.5, lam_turn=0.5, lam=0.5)
    assert advantages == [0.5 + 0.5 * -0.625, 0.75 - 1.0 + 0.25 * -1.5, -1.5]


def test_bi_level_gae_with_a_turn_that_pays_nothing_is_not_that_of_one_long_turn() -> None:
    """The turn in the middle is a step of its own: 0 + 0.5 x 1 - 0, where one long turn would say 1 - 0."""
    view = make_view((1, 1, 1), (0, 0, 1), values=(0, 0, 1))
    advantages, _ = run(view, "bi_level_gae", gamma_turn=0.5, lam_turn=0.0)
    assert advantages == [0.0, 0.5, 0.0]


@pytest.mark.parametrize("estimator", ["gae", "turn_gae", "bi_level_gae"])
def test_a_truncated_trajectory_goes_on_in_the_critic_s_eyes(estimator: str) -> None:
    """Truncated with value 4 behind it: 2 + 0.5 x 4 - 1.5 = 2.5 at the last token; terminated: 2 - 1.5."""
    discount = {"gamma_turn": 0.5} if estimator == "bi_level_gae" else {"gamma": 0.5, "discount_per": "turn"}
    for bootstrap, expected in ((4.0, 2.5), (0.0, 0.5)):
        advantages, targets = run(make_view(**EXAMPLE, bootstrap=bootstrap), estimator, **discount)
        assert advantages[-1] == expected
        assert targets[-1] == expected + 1.5


@pytest.mark.parametrize("estimator", ["gae", "turn_gae", "bi_level_gae"])
def test_what_tokens_earn_beside_their_turn_counts(estimator: str) -> None:
    """A KL penalty of -0.5 on the first token: on it alone, or on its whole turn where a turn is one step."""
    discount = {"gamma_turn": 1.0} if estimator == "bi_level_gae" else {}
    before, _ = run(make_view(**EXAMPLE), estimator, **discount)
    after, _ = run(make_view(**EXAMPLE, token_rewards=(-0.5, 0, 0)), estimator, **discount)
    changed = [-0.5, -0.5, 0] if estimator == "turn_gae" else [-0.5, 0, 0]
    assert [a - b for a, b in zip(after, before, strict=True)] == changed


@pytest.mark.parametrize("estimator", ["gae", "turn_gae", "bi_level_gae"])
def test_a_trajectory_without_a_trained_token_has_no_advantage(estimator: str) -> None:
    advantages, targets = run(make_view((0,), (1.0,), values=()), estimator)
    assert advantages == targets == []


NUMBERS = st.integers(-8, 8).map(lambda n: n / 4)


@st.composite
def trajectories(draw: st.DrawFn) -> TrajectoryView:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    size, num_turns = sum(lengths), len(lengths)
    return make_view(
        lengths,
        draw(st.lists(NUMBERS, min_size=num_turns, max_size=num_turns)),
        values=draw(st.lists(NUMBERS, min_size=size, max_size=size)),
        num_actions=draw(st.lists(st.integers(0, 3), min_size=num_turns, max_size=num_turns)),
        bootstrap=draw(NUMBERS),
        token_rewards=draw(st.lists(NUMBERS, min_size=size, max_size=size)),
    )


@given(view=trajectories(), gamma=st.sampled_from([0.0, 0.5, 0.9, 0.99]), lam=st.sampled_from([0.0, 0.95, 1.0]))
@pytest.mark.parametrize("per", ["token", "action", "turn"])
def test_gae_equals_the_sum_that_defines_it(per: str, view: TrajectoryView, gamma: float, lam: float) -> None:
    """A_t = sum over u >= t of (gamma lambda)^(time from t to u) delta_u, term by term (Schulman et al. 2016, eq. 16)."""
    assert view.values is not None
    owner = [k for k, length in enumerate(view.lengths) for _ in range(length)]
    ends = {sum(view.lengths[: k + 1]) - 1: k for k in range(len(view.lengths))}
    size = view.num_tokens

    def time(t: int) -> float:
        if per == "token":
            return 1
        return 0 if t not in ends else view.num_actions[owner[t]] if per == "action" else 1

    def delta(t: int) -> float:
        reward = view.token_rewards[t] + (view.rewards[ends[t]] if t in ends else 0.0)
        following = view.values[t + 1] if t + 1 < size else view.bootstrap  # type: ignore[index]
        return float(reward + gamma ** time(t) * following - view.values[t])  # type: ignore[index]

    expected = [sum((gamma * lam) ** sum(time(i) for i in range(t, u)) * delta(u) for u in range(t, size)) for t in range(size)]
    advantages, targets = run(view, "gae", gamma=gamma, lam=lam, discount_per=per)
    assert advantages == pytest.approx(expected, abs=1e-9)
    assert targets == pytest.approx([a + v for a, v in zip(expected, view.values, strict=True)], abs=1e-9)


@given(view=trajectories())
def test_without_discount_all_three_are_what_is_still_to_come_minus_a_value(view: TrajectoryView) -> None:
    """gamma = lambda = 1 everywhere: the sums telescope. Turn GAE has the value of the turn's first token on all of it."""
    assert view.values is not None
    rewards = view.rewards_per_token()
    to_come = np.cumsum(rewards[::-1])[::-1] + view.bootstrap
    assert run(view, "gae")[0] == pytest.approx(to_come - view.values, abs=1e-9)
    assert run(view, "bi_level_gae", gamma_turn=1.0)[0] == pytest.approx(to_come - view.values, abs=1e-9)
    starts = np.repeat(np.array(view.stops) - view.lengths, view.lengths)
    assert run(view, "turn_gae")[0] == pytest.approx((to_come - view.values)[starts], abs=1e-9)


@given(view=trajectories())
@pytest.mark.parametrize("estimator", ["gae", "turn_gae", "bi_level_gae"])
def test_a_single_turn_of_one_token_needs_no_horizon(estimator: str, view: TrajectoryView) -> None:
    """With one token, all three are reward minus value, whatever the discount."""
    short = make_view((1,), view.rewards[:1], values=(0.25,))
    discount = {"gamma": 0.5} if estimator == "bi_level_gae" else {"gamma": 0.5, "discount_per": "token"}
    assert run(short, estimator, **discount)[0] == pytest.approx([view.rewards[0] - 0.25])
