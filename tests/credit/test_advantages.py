from __future__ import annotations

import math
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.credit.advantages import ESTIMATORS, all_equal, arpo, brpo, grpo, make_samples, normalize
from ragen.errors import TrainingError
from ragen.records import EndReason, Group
from tests.support.samples import make_group, make_trajectory

# Returns in hundredths: exact enough that no two different ones are equal up to rounding.
RETURNS = st.lists(st.integers(-1000, 1000).map(lambda n: n / 100), min_size=2, max_size=8)
SPREAD = RETURNS.filter(lambda returns: min(returns) < max(returns))
NORMALISED = [("grpo", True), ("grpo", False), ("brpo", True), ("brpo", False)]


def test_grpo_compares_within_the_group() -> None:
    """Group 1: mean 1, deviations 1, -1, unbiased std sqrt(2). Group 2: mean 12, deviations -2, 0, 2, unbiased std 2."""
    first, second = grpo([[2.0, 0.0], [10.0, 12.0, 14.0]], divide=True)
    assert first == pytest.approx([1 / math.sqrt(2), -1 / math.sqrt(2)], abs=2e-6)
    assert second == pytest.approx([-1.0, 0.0, 1.0], abs=2e-6)
    assert grpo([[2.0, 0.0], [10.0, 12.0, 14.0]], divide=False) == [[1.0, -1.0], [-2.0, 0.0, 2.0]]


def test_brpo_compares_within_the_batch() -> None:
    """1, 0, 0, 0: mean 1/4, unbiased std sqrt((9/16 + 3/16) / 3) = 1/2."""
    assert brpo([[1.0, 0.0], [0.0, 0.0]], divide=True) == [
        pytest.approx([1.5, -0.5], abs=4e-6),
        pytest.approx([-0.5, -0.5], abs=4e-6),
    ]
    assert brpo([[1.0, 0.0], [0.0, 0.0]], divide=False) == [[0.75, -0.25], [-0.25, -0.25]]


def test_brpo_keeps_groups_of_unequal_size_apart() -> None:
    assert brpo([[3.0], [0.0, 0.0]], divide=False) == [[2.0], [-1.0, -1.0]]


def test_arpo_is_the_raw_return() -> None:
    assert arpo([[1.5, -0.1], [0.0]], divide=False) == [[1.5, -0.1], [0.0]]
    with pytest.raises(ValueError, match="divide must be False"):
        arpo([[1.0]], divide=True)


def test_the_divisor_has_a_floor() -> None:
    """Two returns 2e-6 apart: deviations 1e-6, std sqrt(2) * 1e-6, so 1 / (sqrt(2) + 1) instead of 1 / sqrt(2)."""
    assert normalize([0.0, 2e-6], divide=True) == pytest.approx([-1 / (math.sqrt(2) + 1), 1 / (math.sqrt(2) + 1)])


@pytest.mark.parametrize("divide", [True, False])
@pytest.mark.parametrize("value", [0.0, -0.1, 0.1 + 0.2, float(np.float32(0.1) + np.float32(0.2)), 1e-300, -1e30])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_equal_returns_give_exactly_zero(value: float, size: int, divide: bool) -> None:
    """Bug-log row 17 (a group of one) and the rounding of a mean: three times 0.3 has a mean that is not 0.3."""
    for estimator in (grpo, brpo):
        assert estimator([[value] * size], divide=divide) == [[0.0] * size]


@pytest.mark.parametrize("divide", [True, False])
def test_the_same_rewards_in_another_order_are_the_same_return(divide: bool) -> None:
    """Adding 0.1, 0.2, 0.3 from the left gives 0.6000000000000001, from the right 0.6; nobody did better."""
    forward, backward = (0.1 + 0.2) + 0.3, (0.3 + 0.2) + 0.1
    assert forward != backward
    assert normalize([forward, backward], divide=divide) == [0.0, 0.0]


def test_two_parts_that_cancel_give_no_advantage() -> None:
    """Bug-log row 21: one member earned 0.1 and paid 0.1, the other neither."""
    cancelled = make_trajectory([1], [2], rewards=[0.1], penalties=[-0.1])
    nothing = make_trajectory([1], [2], member=1)
    samples = make_samples([Group(trajectories=(cancelled, nothing))], estimator="grpo", divide=True)
    assert [sample.advantages.tolist() for sample in samples] == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(("estimator", "divide"), [*NORMALISED, ("arpo", False)])
def test_a_failed_trajectory_moves_no_mean(estimator: str, divide: bool) -> None:
    """Bug-log rows 18, 19 and 20: what was never scored is left out of statistics and of the loss, in every mode."""
    whole = [make_group(2.0, 0.0, 0.0), make_group(1.0, 5.0, group=1)]
    lost = (EndReason.ENVIRONMENT_ERROR, EndReason.ENGINE_ERROR, EndReason.TIMEOUT)
    holed = [make_group(2.0, 0.0, 0.0, failed=lost), make_group(1.0, 5.0, group=1, failed=lost), make_group(group=2, failed=lost)]
    expected, found = (make_samples(groups, estimator=estimator, divide=divide) for groups in (whole, holed))
    assert [s.trajectory.key for s in found] == [s.trajectory.key for s in expected]
    assert [s.advantages.tolist() for s in found] == [s.advantages.tolist() for s in expected]


def test_the_mean_is_over_scored_members_only() -> None:
    """Bug-log row 20, its numbers: over the valid 2, 0, 0 the mean is 2/3, so 4/3, -2/3, -2/3."""
    samples = make_samples([make_group(2.0, 0.0, 0.0, failed=[EndReason.TIMEOUT])], estimator="grpo", divide=False)
    assert [s.advantages[0] for s in samples] == pytest.approx([4 / 3, -2 / 3, -2 / 3])


@pytest.mark.parametrize("divide", [True, False])
def test_one_scored_member_among_failures_learns_nothing_from_itself(divide: bool) -> None:
    """Bug-log row 18: [1, None, None, None] must be 0, not the NaN of a spread of one value."""
    (sample,) = make_samples([make_group(1.0, failed=[EndReason.TIMEOUT] * 3)], estimator="grpo", divide=divide)
    assert sample.advantages.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("estimator", "divide"), NORMALISED)
@given(returns=st.lists(SPREAD, min_size=1, max_size=4), shift=st.integers(-100, 100))
def test_a_shift_of_all_returns_changes_nothing(estimator: str, divide: bool, returns: list[list[float]], shift: int) -> None:
    moved = [[r + shift for r in group] for group in returns]
    before, after = (ESTIMATORS[estimator](x, divide=divide) for x in (returns, moved))
    for a, b in zip(before, after, strict=True):
        assert a == pytest.approx(b, abs=1e-8)


@pytest.mark.parametrize("estimator", ["grpo", "brpo"])
@given(returns=st.lists(SPREAD, min_size=1, max_size=4), scale=st.floats(0.01, 100))
def test_scale_passes_through_and_division_takes_it_away(estimator: str, returns: list[list[float]], scale: float) -> None:
    scaled = [[r * scale for r in group] for group in returns]
    for before, after in zip(*(ESTIMATORS[estimator](x, divide=False) for x in (returns, scaled)), strict=True):
        assert after == pytest.approx([a * scale for a in before], abs=1e-9)
    for before, after in zip(*(ESTIMATORS[estimator](x, divide=True) for x in (returns, scaled)), strict=True):
        assert after == pytest.approx(before, rel=0.03)  # the floor of 1e-6 under a smallest std of 7e-5


@pytest.mark.parametrize(("estimator", "divide"), [*NORMALISED, ("arpo", False)])
@given(returns=st.lists(RETURNS, min_size=1, max_size=4), random=st.randoms(use_true_random=False))
def test_an_advantage_goes_with_its_return_in_whatever_order(
    estimator: str, divide: bool, returns: list[list[float]], random: object
) -> None:
    """Bug-log row 33: by group and by value, never by position."""
    shuffled = [sorted(group, key=lambda _: random.random()) for group in returns]  # type: ignore[attr-defined]
    before, after = (ESTIMATORS[estimator](x, divide=divide) for x in (returns, shuffled))
    for group, a, other, b in zip(returns, before, shuffled, after, strict=True):
        assert sorted(zip(group, a, strict=True)) == sorted(zip(other, b, strict=True))


@given(returns=st.lists(SPREAD, min_size=1, max_size=4))
def test_advantages_are_centred_with_a_spread_of_one_where_they_are_compared(returns: list[list[float]]) -> None:
    """Bug-log row 33: they sum to 0 in every group (grpo), in the batch (brpo)."""
    (batch,) = [[a for group in brpo(returns, divide=True) for a in group]]
    for part in [*grpo(returns, divide=True), batch]:
        assert fmean(part) == pytest.approx(0, abs=1e-9)
        n = len(part)
        assert pstdev(part) * math.sqrt(n / (n - 1)) == pytest.approx(1, rel=1e-3)


@given(returns=SPREAD)
def test_a_higher_return_never_has_a_lower_advantage(returns: list[float]) -> None:
    advantages = normalize(returns, divide=True)
    ranked = [a for _, a in sorted(zip(returns, advantages, strict=True))]
    assert ranked == sorted(ranked)


def test_returns_are_equal_up_to_rounding_at_any_size() -> None:
    assert all_equal([1e-20])
    assert all_equal([1e20 + 1.0, 1e20])
    assert not all_equal([1e-20, 2e-20])
    assert not all_equal([1000.0, 1000.000001])
    assert not all_equal([0.0, 5e-324])


def test_every_token_of_a_trajectory_carries_its_advantage_in_float32() -> None:
    good, bad = make_trajectory([1, 2], [3, 4], [5], [6], rewards=[1, 2]), make_trajectory([1, 2], [3], member=1)
    samples = make_samples([Group(trajectories=(good, bad))], estimator="arpo", divide=False)
    assert [s.advantages.tolist() for s in samples] == [[3.0] * 6, [0.0] * 3]
    assert all(s.advantages.dtype == np.float32 for s in samples)


def test_a_trajectory_without_a_sampled_token_gives_no_sample_but_was_scored() -> None:
    """Bug-log rows 14 and 66: an empty mask is never trained, so no loss is divided by zero.

    Its return stays in the mean: the policy did answer, with nothing.
    """
    silent = make_trajectory([1, 2], [], penalties=[-1.0], end_reason=EndReason.PARSE_FAILURE)
    spoke = make_trajectory([1, 2], [3], rewards=[1.0], member=1)
    (sample,) = make_samples([Group(trajectories=(silent, spoke))], estimator="grpo", divide=False)
    assert sample.trajectory is spoke
    assert sample.advantages.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf, 1e39])
def test_a_return_that_is_no_trainable_number_names_its_trajectory(broken: float) -> None:
    """Bug-log row 19: no NaN advantage goes unseen. 1e39 is finite, but not in the float32 of an advantage."""
    groups = [make_group(0.0, 1.0), make_group(0.0, broken, group=3)]
    with pytest.raises(TrainingError, match=r"return \S+ of corridor group 3 member 1 \(task seed 103\)"):
        make_samples(groups, estimator="grpo", divide=True)


def test_the_largest_returns_still_give_finite_advantages() -> None:
    for estimator, divide in [*NORMALISED, ("arpo", False)]:
        samples = make_samples([make_group(1e38, -1e38, 1e38)], estimator=estimator, divide=divide)
        assert np.isfinite([s.advantages for s in samples]).all()


def test_no_groups_give_no_samples() -> None:
    assert make_samples([], estimator="brpo", divide=True) == []
    assert make_samples([Group(trajectories=())], estimator="grpo", divide=True) == []


def test_group_members_are_never_mixed_up_with_those_of_another_group() -> None:
    """Bug-log rows 32 and 33: two prompts, four members each, one advantage per trajectory and a sum of 0 in each group."""
    groups = [make_group(1, 0, 0, 1, group=0), make_group(5, 6, 7, 8, group=1)]
    samples = make_samples(groups, estimator="grpo", divide=True)
    assert [(s.trajectory.key.group, s.trajectory.key.member) for s in samples] == [(g, m) for g in (0, 1) for m in range(4)]
    for g in (0, 1):
        assert sum(s.advantages[0] for s in samples if s.trajectory.key.group == g) == pytest.approx(0, abs=1e-6)


def test_an_estimator_that_returns_too_few_advantages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 32: one value for a whole batch is never copied to all."""
    for answer in ([[1.0]], [[1.0, 2.0], [1.0]]):
        monkeypatch.setitem(ESTIMATORS, "short", lambda returns, *, divide, answer=answer: answer)
        with pytest.raises(ValueError, match="zip"):
            make_samples([make_group(1.0, 0.0)], estimator="short", divide=False)


def test_a_trajectory_keeps_its_reward_parts_apart_from_its_format_penalties() -> None:
    """Bug-log row 23: 1, 2, 4 over three turns are 7, and penalties are added."""
    trajectory = make_trajectory([1], [2], [3], [2], [3], [2], rewards=[1, 2, 4], penalties=[0, -0.5, 0])
    (sample,) = make_samples([Group(trajectories=(trajectory,))], estimator="arpo", divide=False)
    assert sample.advantages[0] == 6.5
