"""Intervals of one mean: published tables, sums worked by hand, and coverage over simulated evaluations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.evaluation.statistics import (
    Interval,
    clustered_share,
    mean_interval,
    ratio_interval,
    share_interval,
    t_quantile,
    wilson_interval,
)
from tests.support import coverage


@pytest.mark.parametrize(
    ("num_successes", "num_trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_agrees_with_the_published_table(num_successes: int, num_trials: int, low: float, high: float) -> None:
    """R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3."""
    interval = wilson_interval(num_successes, num_trials)
    assert interval.mean == num_successes / num_trials
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@settings(max_examples=50)
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_its_mean_stays_in_the_unit_interval_and_mirrors(counts: tuple[int, int]) -> None:
    successes, trials = counts
    interval, mirrored = wilson_interval(successes, trials), wilson_interval(trials - successes, trials)
    assert interval.low is not None
    assert interval.high is not None
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1
    assert interval.low < interval.high
    assert mirrored.high == pytest.approx(1 - interval.low, abs=1e-12)


@pytest.mark.parametrize(("num_successes", "num_trials"), [(0, 0), (3, 2), (-1, 5)])
def test_wilson_interval_refuses_impossible_counts(num_successes: int, num_trials: int) -> None:
    with pytest.raises(ValueError, match="num_successes"):
        wilson_interval(num_successes, num_trials)


def test_the_quantiles_of_t_are_those_of_the_printed_tables() -> None:
    assert t_quantile([1, 2, 10, 30]) == pytest.approx([12.706, 4.303, 2.228, 2.042], abs=5e-4)


@pytest.mark.parametrize("num_solved", [0, 1, 17, 40])
def test_one_episode_a_seed_gives_wilson_s_interval(num_solved: int) -> None:
    wins = [i < num_solved for i in range(40)]
    found, wilson = share_interval(wins, range(40)), wilson_interval(num_solved, 40)
    assert (found.mean, found.low, found.high) == pytest.approx((wilson.mean, wilson.low, wilson.high), abs=1e-12)


def test_samples_that_always_agree_within_a_seed_count_once() -> None:
    wins = [won for won in (True, False, False, True, True) for _ in range(16)]
    found, wilson = share_interval(wins, [i // 16 for i in range(80)]), wilson_interval(3, 5)
    assert (found.mean, found.low, found.high) == pytest.approx((wilson.mean, wilson.low, wilson.high), abs=1e-12)


def test_an_effective_number_of_trials_worked_by_hand() -> None:
    """Four seeds with 1, 1, 2 and 0 of 2: residuals 0, 0, 1, -1 around 1 each.

    V = 4/3 * 2 / 64 = 1/24, p (1 - p) / V = 6. Kurtosis 4 * 2 / 4 = 2: 8 / (1 + 2/3) = 4.8 degrees, at most 3, t = 3.182446. So
    6 * (1.959964 / 3.182446)^2 = 2.28 trials, below the four seeds that there are: Wilson's interval of 2 in 4.
    """
    found, wilson = share_interval([1, 0, 0, 1, 1, 1, 0, 0], [1, 1, 2, 2, 3, 3, 4, 4]), wilson_interval(2, 4)
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=1e-12)


def test_an_effective_number_above_the_seeds_worked_by_hand() -> None:
    """Eight seeds of 4 samples: six with 2 solved, one with 1, one with 3. Residuals 0 (six times), -1, 1; N = 32, p = 1/2.

    V = 8/7 * 2 / 1024 = 1/448; p (1 - p) / V = 112. Kurtosis 8 * 2 / 4 = 4: 16 / (3 + 2/7) = 4.8696 degrees. Between
    t(4) = 2.776445 and t(5) = 2.570582 lies 2.5926, and 112 * (1.959964 / 2.5926)^2 = 64.01. At p = 1/2 Wilson's half width is
    z / (2 sqrt(n + z^2)) = 1.959964 / (2 sqrt(67.85)) = 0.1190.
    """
    wins = [i < solved for solved in (2, 2, 2, 2, 2, 2, 1, 3) for i in range(4)]
    found = share_interval(wins, [i // 4 for i in range(32)])
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(0.1190, abs=2e-4)


def test_rare_outcomes_that_come_one_a_seed_are_known_not_to_cluster_worked_by_hand() -> None:
    """Sixteen seeds of 2 samples, four with 1 solved: N = 32, p = 1/8, residuals 3/4 (four times) and -1/4.

    V = 16/15 * 3 / 1024 = 1/320; p (1 - p) / V = 35. r^2 over its mean 3/16: 3 and 1/3. The slope is (3/4) / (7/64) / 2 = 24/7:
    u = 3 - 1 - 24/7 * 3/4 = -4/7 and 1/3 - 1 + 24/7 * 1/4 = 4/21; the mean of u^2 is 0.108844. 32 / (0.108844 + 2/15) = 132.1
    degrees; between t(120) = 1.97993 and t(140) = 1.97705 lies 1.97808; n = 35 * (1.959964 / 1.97808)^2 = 34.36. Wilson:
    z^2/n = 0.111795, (0.1808975 -+ 0.123903) / 1.111795 = 0.05126 and 0.27415.
    """
    sums, sizes = np.array([1.0] * 4 + [0.0] * 12), np.full(16, 2.0)
    assert clustered_share(sums, sizes) == pytest.approx((0.125, 0.05126, 0.27415), abs=5e-5)
    # Of values without limits nothing of the kind is known: kurtosis 7/3, 32 / (4/3 + 2/15) = 21.8 degrees, t = 2.0752 and
    # n = 35 * (1.959964 / 2.0752)^2 = 31.22: z^2/n = 0.123045, (0.186523 -+ 0.131278) / 1.123045 = 0.04919 and 0.28298.
    assert clustered_share(sums, sizes, has_limits=False) == pytest.approx((0.125, 0.04919, 0.28298), abs=1e-4)


def test_with_rare_outcomes_in_fewer_than_four_seeds_that_is_not_believed() -> None:
    sums, sizes = np.array([1.0] * 3 + [0.0] * 13), np.full(16, 2.0)
    assert clustered_share(sums, sizes) == clustered_share(sums, sizes, has_limits=False)


def test_a_mean_without_limits_is_scaled_by_the_least_and_the_greatest_value() -> None:
    """-0.1 and 1 are a share in disguise: three of four."""
    wilson = wilson_interval(3, 4)
    assert wilson.low is not None
    assert wilson.high is not None
    found = mean_interval([1.0, -0.1, 1.0, 1.0], [1, 2, 3, 4])
    assert found.mean == pytest.approx(0.725)
    assert found.low == pytest.approx(-0.1 + 1.1 * wilson.low)
    assert found.high == pytest.approx(-0.1 + 1.1 * wilson.high)


def test_many_symmetric_values_have_nearly_the_usual_interval() -> None:
    """200 values evenly over [0, 1]: s^2 = (200^2 - 1) / 12 / 200^2 * 200/199, s.e. = 0.020463.

    Kurtosis 1.8: 400 / (0.8 + 2/199) = 493.8 degrees, t = 1.9648: 0.04021.
    """
    found = mean_interval([(i + 0.5) / 200 for i in range(200)], range(200))
    assert found.low == pytest.approx(0.5 - 0.04021, abs=2e-4)
    assert found.high == pytest.approx(0.5 + 0.04021, abs=2e-4)


def test_what_the_data_cannot_tell_has_no_interval() -> None:
    assert mean_interval([1.0, 3.0], [7, 7]) == Interval(mean=2.0)  # one seed
    assert mean_interval([2.0, 2.0], [7, 9]) == Interval(mean=2.0)  # nothing that differs
    assert ratio_interval([], [], []) == Interval(mean=0.0)
    assert ratio_interval([0, 0], [0, 0], [1, 2]) == Interval(mean=0.0)


def test_a_ratio_weighs_every_thing_alike_whatever_its_episode() -> None:
    """1 of 1 and 0 of 3: 1 of 4."""
    assert ratio_interval([1, 0], [1, 3], [1, 2]).mean == 0.25


def test_a_batch_of_data_sets_gives_what_each_gives_alone() -> None:
    sums = np.array([[0.0, 3.0, 1.0, 2.0], [3.0, 3.0, 3.0, 3.0], [0.0, 0.0, 0.0, 1.0]])
    together = np.stack(clustered_share(sums, np.full((3, 4), 3.0)), axis=1)
    alone = [clustered_share(row, np.full(4, 3.0)) for row in sums]
    assert together == pytest.approx(np.array(alone), abs=1e-15)


@pytest.mark.parametrize(("values", "clusters"), [([], []), ([1.0], [1, 2])])
def test_missing_or_unequal_data_are_refused(values: list[float], clusters: list[int]) -> None:
    with pytest.raises(ValueError, match="clusters"):
        mean_interval(values, clusters)


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0\.0, 1\.0\]"):
        share_interval([0.5, 1.5], [1, 2])


# --- coverage; docs/statistics.md has it for 10 000 evaluations a line, measured by the same functions

SHORT = 1500  # one standard error is 0.56 points, so that 4 of them are 2.3


@pytest.mark.parametrize("band", coverage.BANDS)
def test_95_percent_is_95_percent_for_independent_episodes(band: tuple[float, float]) -> None:
    line = coverage.wilson(np.random.default_rng(1), num=SHORT, episodes=128, band=band)
    assert 0.935 <= line.coverage <= 0.98


@pytest.mark.parametrize("alike", [0.0, 0.4, 0.8, 1.0])
@pytest.mark.parametrize(("seeds", "samples", "band"), [(64, 4, (0.2, 0.3)), (32, 16, (0.45, 0.55)), (128, 8, (0.85, 0.93))])
def test_95_percent_is_95_percent_for_clustered_episodes(
    alike: float, seeds: int, samples: int, band: tuple[float, float]
) -> None:
    line = coverage.success(np.random.default_rng(2), num=SHORT, seeds=seeds, samples=samples, alike=alike, band=band)
    assert 0.93 <= line.coverage <= 0.975


def test_rare_successes_of_few_clustered_seeds_are_not_overrated() -> None:
    """The usual interval holds the truth in four of five such evaluations: where nothing is solved it has no width."""
    line = coverage.success(np.random.default_rng(3), num=SHORT, seeds=32, samples=16, alike=0.8, band=(0.015, 0.03))
    assert line.of_usual < 0.7
    assert line.coverage > 0.93


@pytest.mark.parametrize("name", ["exponential", "puzzle, 25 % solved", "puzzle, 90 % solved, 8 samples"])
def test_95_percent_is_95_percent_for_skewed_returns(name: str) -> None:
    line = coverage.returns(np.random.default_rng(4), num=SHORT, seeds=64, name=name)
    assert 0.93 <= line.coverage <= 0.975


@pytest.mark.parametrize(("samples", "rates"), [(1, (0.3, 0.6)), (4, (0.05, 0.05)), (16, (0.5, 0.5))])
def test_95_percent_is_95_percent_for_paired_differences(samples: int, rates: tuple[float, float]) -> None:
    line = coverage.differences(np.random.default_rng(5), num=SHORT, seeds=64, samples=samples, rates=rates, alike=0.7)
    assert 0.93 <= line.coverage <= 0.98
