"""Differences and their tests: tables worked by hand, scipy's own tests, and what must hold of every p-value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from ragen.evaluation.paired import (
    Test,
    difference,
    holm,
    mcnemar,
    paired_difference,
    permutation_test,
    sign_flip_test,
    unpaired_difference,
)
from ragen.evaluation.statistics import Interval, wilson_interval


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (0, 6), (3, 3), (2, 9), (11, 4), (40, 71)])
def test_mcnemar_is_the_exact_binomial_test_of_the_seeds_that_differ(lost: int, won: int) -> None:
    expected = stats.binomtest(won, lost + won, 0.5).pvalue if lost + won else 1.0
    assert mcnemar(lost, won) == pytest.approx(expected)


def test_one_sample_a_seed_is_tested_by_mcnemar() -> None:
    """Eight seeds won, one lost, thirty alike: 2 (1 + 9) / 2^9 = 0.0390625."""
    differences = np.array([1.0] * 8 + [-1.0] + [0.0] * 30)
    assert sign_flip_test(differences) == (0.0390625, Test.MCNEMAR)


def test_a_few_unequal_differences_are_counted_out() -> None:
    """1, 2, 3: of the eight sums +-6, +-4, +-2, 0, 0 two are as far from 0 as 6."""
    assert sign_flip_test(np.array([1.0, 2.0, 3.0])) == (0.25, Test.SIGN_FLIPS)


def test_counting_out_agrees_with_scipy_s_permutation_test() -> None:
    differences = np.array([0.25, -0.5, 0.75, 0.25, 1.0, 0.5, -0.25, 0.0, 0.5])
    theirs = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_test(differences)[0] == pytest.approx(theirs.pvalue)


def test_many_are_drawn_and_agree_with_counting_out() -> None:
    """Twenty differences that a binomial describes but for one: the p-value by hand from the 2^19 signs of the others."""
    differences = np.array([1.0] * 14 + [-1.0] * 5 + [0.5])
    sums = [(2 * k - 19, stats.binom.pmf(k, 19, 0.5)) for k in range(20)]
    exact = sum(weight / 2 for total, weight in sums for last in (-0.5, 0.5) if abs(total + last) >= 9.5)
    p_value, test = sign_flip_test(differences)
    assert test is Test.SIGN_FLIPS
    assert p_value == pytest.approx(exact, abs=4 * (exact / 20_000) ** 0.5)


@settings(max_examples=25)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=2, max_size=10))
def test_a_p_value_is_one_and_does_not_care_who_is_the_baseline(differences: list[float]) -> None:
    p_value, _ = sign_flip_test(np.array(differences))
    assert 0 < p_value <= 1
    assert sign_flip_test(-np.array(differences))[0] == p_value


def test_shared_seeds_are_paired_and_the_rest_left_out() -> None:
    """Seeds 1, 2 are shared: +1 and 0; seed 9 would have made the other policy look worse."""
    found = difference([0, 1, 1], [1, 2, 3], [1, 1, 0], [1, 2, 9], limits=(0.0, 1.0))
    assert (found.interval.mean, found.num_pairs, found.test) == (0.5, 2, Test.MCNEMAR)


def test_samples_of_a_seed_are_averaged_before_they_are_compared() -> None:
    """Seed 1: 1/2 -> 1, seed 2: 0 -> 1/2: the same half on both; 2 of the 4 signs are as far: p = 1/2."""
    found = difference([1, 0, 0, 0], [1, 1, 2, 2], [1, 1, 0, 1], [1, 1, 2, 2], limits=(0.0, 1.0))
    assert (found.interval.mean, found.p_value) == (0.5, 0.5)


def test_two_policies_that_never_differ_are_not_said_to_be_the_same() -> None:
    """32 seeds without a difference leave room for one: half of Wilson's interval for 16 of 32, twice as wide."""
    found = paired_difference(np.zeros(32), span=1.0)
    wilson = wilson_interval(16, 32)
    assert wilson.high is not None
    assert found.p_value == 1.0
    assert found.interval.high == pytest.approx(2 * wilson.high - 1)
    assert found.interval.low == pytest.approx(1 - 2 * wilson.high)


def test_where_nothing_at_all_differs_there_is_no_interval() -> None:
    assert difference([2.0, 2.0], [1, 2], [2.0, 2.0], [1, 2]).interval == Interval(mean=0.0)


def test_without_shared_seeds_two_sets_are_compared() -> None:
    """Newcombe's example 56/70 against 48/80: method 10 gives 0.0524 to 0.3339 (Statistics in Medicine 17 (1998) 873-890)."""
    baseline, other = [1.0] * 48 + [0.0] * 32, [1.0] * 56 + [0.0] * 14
    found = difference(baseline, range(80), other, range(100, 170), limits=(0.0, 1.0))
    assert (found.test, found.num_pairs) == (Test.PERMUTATION, 0)
    assert found.interval.mean == pytest.approx(0.2)
    assert found.interval.low == pytest.approx(0.0524, abs=5e-5)
    assert found.interval.high == pytest.approx(0.3339, abs=5e-5)


def test_a_permutation_of_seeds_agrees_with_fisher_s_exact_test() -> None:
    """9 of 12 against 4 of 14, where both count the tables at least as far apart: scipy's sum over the hypergeometric chances."""
    ways = stats.hypergeom(26, 13, 12)
    exact = sum(ways.pmf(k) for k in range(13) if abs(k / 12 - (13 - k) / 14) >= abs(9 / 12 - 4 / 14) - 1e-9)
    a, b = np.array([1.0] * 9 + [0.0] * 3), np.array([1.0] * 4 + [0.0] * 10)
    assert permutation_test(a, b) == pytest.approx(exact, abs=4 * (exact / 20_000) ** 0.5)


def test_one_seed_each_decides_nothing() -> None:
    assert unpaired_difference([0.0], [1.0]).p_value == 1.0


def test_holm_s_correction_worked_by_hand() -> None:
    """0.01 * 4, 0.02 * 3, max(0.03 * 2, the one before), max(0.5, the one before)."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
