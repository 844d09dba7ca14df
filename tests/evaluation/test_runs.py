"""Several training seeds of one recipe: bug-log row 98."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from ragen.evaluation.paired import Test
from ragen.evaluation.runs import difference_of_runs, mean_over_runs
from ragen.evaluation.statistics import Interval, wilson_interval

SHARE = (0.0, 1.0)


def test_runs_that_differ_on_one_seed_only_have_the_textbook_interval() -> None:
    """bug-log row 98: 0.2, 0.4, 0.6: mean 0.4, s = 0.2, t(2) = 4.302653: half width 0.49683."""
    found = mean_over_runs(np.array([[0.2], [0.4], [0.6]]), limits=(-5.0, 5.0))
    assert found.interval.mean == pytest.approx(0.4)
    assert found.interval.low == pytest.approx(0.4 - 0.49683, abs=1e-5)
    assert found.interval.high == pytest.approx(0.4 + 0.49683, abs=1e-5)
    assert found.over_runs == pytest.approx(0.2 / 3**0.5)


def test_both_sources_add_up_as_squares() -> None:
    """Runs 0 and 1 against seeds +-3, with nothing else: MS_R = 2 * 2 (1/2)^2 = 1... over 4 cells, MS_S = 2 * 18 = 36.

    half^2 = (12.7062^2 * 1 + 12.7062^2 * 36) / 4: t(1) for both.
    """
    found = mean_over_runs(np.array([[-3.0, 3.0], [-2.0, 4.0]]), limits=(-1000.0, 1000.0))
    assert found.interval.mean == 0.5
    assert found.interval.high == pytest.approx(0.5 + 12.7062 * (37 / 4) ** 0.5, rel=1e-4)
    assert (found.over_runs, found.over_seeds) == pytest.approx((0.5, 3.0))


def test_pooling_episodes_would_have_promised_too_much() -> None:
    """bug-log row 98: runs of 16 %, 38 % and 60 % on 256 seeds: pooled as 768 episodes they would be known within 3.5 points."""
    cells = np.array([[float(i < solved) for i in range(256)] for solved in (41, 97, 154)])
    found = mean_over_runs(cells, limits=SHARE).interval
    pooled = wilson_interval(41 + 97 + 154, 768)
    assert found.low is not None
    assert found.high is not None
    assert pooled.low is not None
    assert pooled.high is not None
    assert pooled.high - pooled.low < 0.07
    assert found.high - found.low > 0.7


def test_runs_that_all_solve_everything_are_as_certain_as_their_seeds() -> None:
    assert mean_over_runs(np.ones((3, 64)), limits=SHARE).interval == wilson_interval(64, 64)
    assert mean_over_runs(np.full((3, 1), 0.5), limits=(-np.inf, np.inf)).interval == Interval(mean=0.5)


def test_the_interval_holds_the_truth_for_other_runs_on_other_seeds() -> None:
    """Normal cells, 3 runs x 48 seeds: runs with s = 0.3, seeds with s = 1, the rest 0.5; the truth is 0."""
    generator, num_held = np.random.default_rng(0), 0
    for _ in range(400):
        cells = 0.3 * generator.normal(size=(3, 1)) + generator.normal(size=(1, 48)) + 0.5 * generator.normal(size=(3, 48))
        interval = mean_over_runs(cells, limits=(-100.0, 100.0)).interval
        assert interval.low is not None
        assert interval.high is not None
        num_held += interval.low <= 0.0 <= interval.high
    assert 0.92 <= num_held / 400 <= 0.995


def test_two_recipes_whose_seeds_do_not_matter_are_compared_by_welch_s_test() -> None:
    """Every run has the same value on all seeds, so the seeds add nothing: scipy's test of the run means."""
    baseline, other = [0.10, 0.20, 0.15], [0.50, 0.30, 0.45, 0.40]
    cells = [np.repeat(np.array(means)[:, None], 20, axis=1) for means in (baseline, other)]
    found = difference_of_runs(*cells, span=1.0)
    theirs = stats.ttest_ind(other, baseline, equal_var=False)
    assert found.test is Test.T
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-6)
    interval = theirs.confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((interval.low, interval.high))


def test_a_single_run_is_taken_to_vary_as_the_others_do() -> None:
    """One run at 0.5 against runs at 0.1 and 0.3: s^2 = 0.02, times (1 + 1/2) is 0.03, t(1) = 12.7062."""
    single, several = np.full((1, 10), 0.5), np.repeat(np.array([[0.1], [0.3]]), 10, axis=1)
    found = difference_of_runs(single, several, span=100.0)
    assert found.interval.mean == pytest.approx(-0.3)
    assert found.interval.high == pytest.approx(-0.3 + 12.7062 * 0.03**0.5, rel=1e-4)


def test_a_difference_must_hold_over_the_seeds_as_well() -> None:
    """Both runs of a recipe agree exactly, so training seems to add nothing; three seeds against one prove nothing either."""
    baseline, other = np.zeros((2, 4)), np.tile([1.0, 1.0, 1.0, -1.0], (2, 1))
    assert difference_of_runs(baseline, other, span=1.0).p_value >= 0.625  # McNemar of 3 against 1
