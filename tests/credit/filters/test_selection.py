"""A step's groups in, those to train on out. Groups of returns (0, x) have the standard deviation x / sqrt(2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.credit.config import AdvantageConfig
from ragen.credit.filters import FilterConfig, Selection, select, weigh
from ragen.credit.filters.selection import group_weights, loss_scale
from ragen.credit.normalize import normalize
from ragen.credit.samples import make_samples
from ragen.errors import TrainingError
from ragen.records import EndReason, Group
from tests.support.samples import make_group, make_trajectory

STARPO_S = FilterConfig(rule="top_frac", value=0.25, score="std")
DYNAMIC = FilterConfig(drop_zero_spread=True)
DIVIDED, CENTRED = AdvantageConfig(method="mean_std"), AdvantageConfig(method="mean")


def spread(*widths: float) -> list[Group]:
    """One group a width: returns 0 and the width."""
    return [make_group(0.0, width, group=place) for place, width in enumerate(widths)]


def choose(groups: list[Group], **config: Any) -> Selection:
    settings = FilterConfig(**config)
    settings.check()
    return select(groups, settings, num_planned=len(groups))


def test_by_default_every_group_is_trained_on_as_it_is() -> None:
    groups = [*spread(1.0, 0.0), make_group(group=2, failed=[EndReason.TIMEOUT])]
    selection = select(groups, FilterConfig(), num_planned=3)
    assert (selection.kept, selection.weights, selection.loss_scale) == ((0, 1, 2), (1.0, 1.0, 1.0), 1.0)
    samples = make_samples(groups, DIVIDED)
    assert all(after is before for after, before in zip(weigh(samples, groups, selection), samples, strict=True))


def test_starpo_s_keeps_the_quarter_of_groups_with_the_largest_spread_of_returns() -> None:
    selection = select(spread(0.3, 0.9, 0.0, 0.1, 0.5, 0.2, 0.8, 0.4), STARPO_S, num_planned=8)
    assert selection.kept == (1, 6)
    assert selection.scores[1] == pytest.approx(0.9 / math.sqrt(2))


@pytest.mark.parametrize(("num_groups", "kept"), [(1, 1), (3, 1), (4, 1), (7, 1), (8, 2), (11, 2), (12, 3)])
def test_a_quarter_is_rounded_down_to_at_least_one(num_groups: int, kept: int) -> None:
    assert len(select(spread(*range(num_groups)), STARPO_S, num_planned=num_groups).kept) == kept


def test_a_fraction_is_not_one_less_because_of_binary_fractions() -> None:
    assert int(0.29 * 100) == 28
    assert len(choose(spread(*range(100)), rule="top_frac", value=0.29).kept) == 29


def test_of_equal_scores_the_group_with_the_lower_number_is_kept_wherever_it_stands() -> None:
    groups = spread(1.0, 1.0, 1.0, 1.0)
    config = FilterConfig(rule="top_k", value=2)
    assert select(groups, config, num_planned=4).kept == (0, 1)
    assert select(groups[::-1], config, num_planned=4).kept == (2, 3)


def test_it_is_raw_returns_that_are_compared() -> None:
    """The published filter read scores that were already divided by the group's spread: there all three are alike."""
    widths = (10.0, 0.1, 1.0)
    divided = [normalize([0.0, width], "mean_std") for width in widths]
    assert [max(each) - min(each) for each in divided] == pytest.approx([math.sqrt(2)] * 3, rel=1e-4)
    assert choose(spread(*widths), rule="top_k", value=1).kept == (0,)
    assert choose(spread(*widths), rule="top_k", value=1, prefer="smallest").kept == (1,)


def test_reward_parts_of_ones_own_are_part_of_the_raw_return() -> None:
    """Bug-log row 21: where a part cancels another, the group has no spread, whatever the parts have."""
    (group,) = spread(1.0)
    assert choose([group], drop_zero_spread=True).kept == (0,)
    first, _ = group.trajectories
    cancelled = make_trajectory([1], [2], rewards=[1.0], penalties=[-1.0], member=1)
    assert choose([Group(trajectories=(first, cancelled))], drop_zero_spread=True).kept == ()


def test_groups_without_spread_are_dropped_whatever_the_score() -> None:
    """Equal returns of different length: longest first, but for the one that teaches nothing."""
    long_and_flat = Group(trajectories=(make_trajectory([1], [2] * 9), make_trajectory([1], [2] * 8, member=1)))
    groups = [long_and_flat, *[make_group(0.0, 1.0, group=g) for g in (1, 2)]]
    assert choose(groups, rule="top_k", value=1, score="length").kept == (0,)
    selection = choose(groups, rule="top_k", value=1, score="length", drop_zero_spread=True)
    assert (selection.kept, selection.num_zero_spread) == ((1,), 1)


def test_a_group_of_one_has_no_spread() -> None:
    """Bug-log row 17."""
    selection = choose([make_group(5.0), make_group(0.0, 0.1, group=1)], drop_zero_spread=True)
    assert selection.kept == (1,)
    assert all(math.isfinite(score) for score in selection.scores if score is not None)


def test_a_group_that_nobody_scored_is_never_kept_and_moves_nothing() -> None:
    """Bug-log rows 18 to 20: lost or abstained about as a whole."""
    lost = make_group(group=2, failed=[EndReason.TIMEOUT] * 2)
    abstained = Group(trajectories=(), abstained=make_group(0.0, 9.0, group=3).trajectories)
    for config in (STARPO_S, DYNAMIC, FilterConfig(rule="top_p", value=0.9), FilterConfig(weighting="mean")):
        with_them = select([*spread(0.5, 1.0), lost, abstained], config, num_planned=4)
        without = select(spread(0.5, 1.0), config, num_planned=4)
        assert (with_them.kept, with_them.weights) == (without.kept, without.weights)
        assert with_them.spread_ratio == without.spread_ratio
        assert with_them.scores[2:] == (None, None)


@pytest.mark.parametrize(
    "config",
    [
        DYNAMIC,
        FilterConfig(rule="top_p", value=0.9),
        FilterConfig(rule="top_p", value=0.9, slack=0.01),
        FilterConfig(rule="top_k", value=2, drop_zero_spread=True),
        FilterConfig(rule="min_p", value=0.5, drop_zero_spread=True, weighting="mean", loss_scale="sqrt"),
    ],
)
def test_an_empty_result_is_a_result(config: FilterConfig) -> None:
    """Also of no groups at all."""
    for groups in (spread(0.0, 0.0), []):
        selection = select(groups, config, num_planned=len(groups))
        assert (selection.kept, selection.weights, selection.num_effective) == ((), (), 0.0)


def test_a_return_that_is_no_number_stops_the_run_even_in_a_group_that_would_be_dropped() -> None:
    """Bug-log row 19."""
    with pytest.raises(TrainingError, match="return nan of corridor group 1 member 1"):
        select(spread(1.0, math.nan), STARPO_S, num_planned=2)


def test_the_rule_engages_where_groups_differ_enough() -> None:
    """Variances 1/2, 1/2, 0, 0: ratio 8 / sqrt(48) = 1.15. Below it the rule is not applied, zero spread goes all the same."""
    groups = spread(1.0, 1.0, 0.0, 0.0)
    on = choose(groups, rule="top_k", value=1, engage_ratio=1.15)
    off = choose(groups, rule="top_k", value=1, engage_ratio=1.16)
    dropped = choose(groups, rule="top_k", value=1, engage_ratio=1.16, drop_zero_spread=True)
    assert (on.kept, on.is_engaged) == ((0,), True)
    assert (off.kept, off.is_engaged) == ((0, 1, 2, 3), False)
    assert (dropped.kept, dropped.is_engaged) == ((0, 1), False)
    assert on.spread_ratio == off.spread_ratio == pytest.approx(8 / math.sqrt(48))
    assert not choose(spread(1.0, 1.0, 1.0), rule="top_k", value=1, engage_ratio=1e-9).is_engaged


def test_more_than_wanted_is_never_kept_of_a_refilled_step() -> None:
    """Five groups played, two planned: of the four that hold 90 % of the spread, the best two."""
    selection = select(spread(0.3, 0.2, 0.4, 0.25, 0.01), FilterConfig(rule="top_p", value=0.9), num_planned=2)
    assert selection.kept == (0, 2)


def test_weights_by_hand() -> None:
    """Scores 1, 2, 5: over the largest, and over the mean 8/3."""
    assert group_weights([1.0, 2.0, 5.0], "max") == pytest.approx([0.2, 0.4, 1.0], abs=1e-6)
    assert group_weights([1.0, 2.0, 5.0], "mean") == pytest.approx([3 / 8, 6 / 8, 15 / 8])
    assert group_weights([1.0, 2.0, 5.0], "none") == [1.0, 1.0, 1.0]
    assert group_weights([0.0, 0.0], "max") == group_weights([0.0, 0.0], "mean") == [0.0, 0.0]


def test_weighting_drops_nothing_and_says_how_many_groups_are_left_in_effect() -> None:
    """Weights 1/2, 1, 1: (5/2)^2 / (9/4) = 25/9 groups."""
    selection = choose(spread(0.5, 1.0, 1.0), weighting="max")
    assert selection.kept == (0, 1, 2)
    assert selection.weights == pytest.approx([0.5, 1.0, 1.0], abs=2e-6)
    assert selection.num_effective == pytest.approx(25 / 9, abs=1e-5)


def test_loss_scale_by_hand() -> None:
    """2 of 8 groups: 1/4, and its root."""
    assert [loss_scale(2, 8, kind) for kind in ("none", "linear", "sqrt")] == [1.0, 0.25, 0.5]
    assert [loss_scale(8, 8, kind) for kind in ("none", "linear", "sqrt")] == [1.0, 1.0, 1.0]
    assert loss_scale(0, 8, "linear") == 0.0


def test_the_loss_scale_of_a_refilled_step_is_what_is_kept_of_what_was_planned() -> None:
    """Four planned, two of them dropped, two played in their place, one of those dropped: 3/4 of a whole step, not 3/6."""
    config = FilterConfig(drop_zero_spread=True, refill_frac=0.5, loss_scale="linear")
    assert select(spread(1.0, 0.0, 1.0, 0.0, 1.0, 0.0), config, num_planned=4).loss_scale == 0.75


def test_weight_and_loss_scale_reach_the_advantages_of_their_group_alone() -> None:
    """Kept: widths 1 and 3 of four groups. Advantages without division -w/2, w/2; weights 1/3 and 1; scale 2/4."""
    groups = spread(0.0, 1.0, 3.0, 0.0)
    config = FilterConfig(drop_zero_spread=True, weighting="max", loss_scale="linear")
    selection = select(groups, config, num_planned=4)
    kept = [groups[position] for position in selection.kept]
    samples = weigh(make_samples(kept, CENTRED), groups, selection)
    found = [(sample.trajectory.key.group, float(sample.advantages[-1])) for sample in samples]
    expected = [(1, -0.5 / 3 / 2), (1, 0.5 / 3 / 2), (2, -1.5 / 2), (2, 1.5 / 2)]
    assert found == [(group, pytest.approx(value, rel=2e-6)) for group, value in expected]
    assert {sample.advantages.dtype for sample in samples} == {np.dtype(np.float32)}


def test_weighting_by_std_undoes_the_division_by_std() -> None:
    """GRPO with division, weighed by max: (R - mean) / max std, that is GRPO without division up to one factor for all."""
    groups = spread(1.0, 3.0)
    selection = choose(groups, weighting="max")
    weighed = weigh(make_samples(groups, DIVIDED), groups, selection)
    plain = make_samples(groups, CENTRED)
    ratios = [float(a.advantages[-1] / b.advantages[-1]) for a, b in zip(weighed, plain, strict=True)]
    assert ratios == pytest.approx([math.sqrt(2) / 3] * 4, rel=1e-5)


def test_statistics_of_the_batch_are_those_of_the_kept_groups() -> None:
    """Bug-log row 20: what the filter drops moves no mean. Kept returns 0 and 3: advantages -1.5 and 1.5, not from 0, 3, 9, 9."""
    groups = [make_group(0.0, 3.0), make_group(9.0, 9.0, group=1)]
    selection = select(groups, DYNAMIC, num_planned=2)
    samples = make_samples([groups[position] for position in selection.kept], AdvantageConfig(estimator="brpo", method="mean"))
    assert [float(sample.advantages[-1]) for sample in samples] == [-1.5, 1.5]


WIDTHS = st.lists(st.integers(0, 400).map(lambda n: n / 4), min_size=1, max_size=10)
CONFIGS = st.sampled_from(
    [
        STARPO_S,
        DYNAMIC,
        FilterConfig(rule="top_k", value=3, drop_zero_spread=True),
        FilterConfig(rule="top_p", value=0.8, score="variance"),
        FilterConfig(rule="min_p", value=0.4, score="range", engage_ratio=0.3),
        FilterConfig(weighting="max"),
        FilterConfig(rule="top_p", value=0.8, weighting="mean", loss_scale="sqrt"),
    ]
)


@given(widths=WIDTHS, config=CONFIGS, shift=st.integers(-50, 50))
def test_a_shift_of_all_returns_decides_nothing(widths: list[float], config: FilterConfig, shift: int) -> None:
    moved = [make_group(shift + 0.0, shift + width, group=place) for place, width in enumerate(widths)]
    before, after = (select(groups, config, num_planned=len(widths)) for groups in (spread(*widths), moved))
    assert after.kept == before.kept
    assert after.weights == pytest.approx(before.weights)


@given(widths=WIDTHS, config=CONFIGS, exponent=st.integers(-10, 10))
def test_the_unit_of_rewards_decides_nothing(widths: list[float], config: FilterConfig, exponent: int) -> None:
    """Powers of two, so that scaling does not round; the floor under weighting=max is left room. Not so for slack and softmax."""
    scaled = spread(*[width * 2.0**exponent for width in widths])
    before, after = (select(groups, config, num_planned=len(widths)) for groups in (spread(*widths), scaled))
    assert after.kept == before.kept
    assert after.weights == pytest.approx(before.weights, rel=0.02)


@given(widths=st.lists(st.integers(0, 400), min_size=1, max_size=8, unique=True), config=CONFIGS, data=st.data())
def test_the_order_of_groups_and_members_decides_nothing(widths: list[int], config: FilterConfig, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(widths))))
    groups = [make_group(0.0, float(width), 0.0, group=place) for place, width in enumerate(widths)]
    turned = [Group(trajectories=tuple(reversed(groups[place].trajectories))) for place in order]
    before, after = (select(each, config, num_planned=len(widths)) for each in (groups, turned))
    weights = dict(zip(before.kept, before.weights, strict=True))
    assert {order[at]: weight for at, weight in zip(after.kept, after.weights, strict=True)} == pytest.approx(weights)


@given(widths=WIDTHS, config=CONFIGS)
def test_something_is_kept_if_anything_varies_and_every_number_is_finite(widths: list[float], config: FilterConfig) -> None:
    selection = select(spread(*widths), config, num_planned=len(widths))
    assert selection.kept or not any(widths)
    assert len(selection.weights) == len(selection.kept) <= selection.num_wanted
    numbers = [*selection.weights, selection.loss_scale, selection.spread_ratio, selection.num_effective]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert selection.num_effective <= len(selection.kept) + 1e-9
