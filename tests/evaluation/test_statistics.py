"""Intervals against published tables and sums worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.evaluation.statistics import Interval, clustered_interval, wilson_interval


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


def test_interval_of_independent_values_is_the_usual_one() -> None:
    """Values 1, 2, 3, 4: mean 2.5, s^2 = 5/3, s.e. = sqrt(5/12) = 0.645497, times 1.959964 = 1.265152."""
    interval = clustered_interval([1.0, 2.0, 3.0, 4.0], [10, 11, 12, 13])
    assert interval.mean == 2.5
    assert interval.low == pytest.approx(1.234848, abs=1e-6)
    assert interval.high == pytest.approx(3.765152, abs=1e-6)


def test_members_of_one_seed_that_agree_count_once() -> None:
    """Seeds a: 0, 0 and b: 1, 1. Residual sums -1 and +1: s.e.^2 = 2/1 * 2 / 16 = 0.25, half width 1.96 * 0.5."""
    interval = clustered_interval([0.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b"])
    assert interval.mean == 0.5
    assert interval.low == pytest.approx(0.5 - 0.979982, abs=1e-6)
    assert interval.high == pytest.approx(0.5 + 0.979982, abs=1e-6)
    assert clustered_interval([0.0, 1.0], ["a", "b"]).high == pytest.approx(interval.high)


def test_one_seed_has_a_mean_but_no_interval() -> None:
    assert clustered_interval([1.0, 3.0], [7, 7]) == Interval(mean=2.0)


@pytest.mark.parametrize(("values", "clusters"), [([], []), ([1.0], [1, 2])])
def test_interval_refuses_missing_or_unequal_data(values: list[float], clusters: list[int]) -> None:
    with pytest.raises(ValueError, match="clusters"):
        clustered_interval(values, clusters)
