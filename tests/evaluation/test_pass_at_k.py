"""pass@k and pass^k against what they mean: every subset of k samples, looked at one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ragen.evaluation.pass_at_k import pass_all_k, pass_at_k, pass_curves
from ragen.evaluation.statistics import wilson_interval


@pytest.mark.parametrize("num_samples", range(1, 8))
def test_they_are_the_shares_of_all_subsets_in_which_any_and_all_succeed(num_samples: int) -> None:
    for num_successes in range(num_samples + 1):
        samples = [i < num_successes for i in range(num_samples)]
        for k in range(1, num_samples + 1):
            subsets = list(itertools.combinations(samples, k))
            assert pass_at_k(num_samples, num_successes, k) == pytest.approx(np.mean([any(each) for each in subsets]))
            assert pass_all_k(num_samples, num_successes, k) == pytest.approx(np.mean([all(each) for each in subsets]))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_their_mean_over_all_evaluations_is_the_chance_of_any_and_of_all(p: float) -> None:
    """Unbiased: summed over the binomial chance of every count of successes in 6 samples."""
    chances = [_binomial(6, c, p) for c in range(7)]
    for k in range(1, 7):
        assert sum(w * pass_at_k(6, c, k) for c, w in enumerate(chances)) == pytest.approx(1 - (1 - p) ** k)
        assert sum(w * pass_all_k(6, c, k) for c, w in enumerate(chances)) == pytest.approx(p**k)


def _binomial(n: int, c: int, p: float) -> float:
    return len(list(itertools.combinations(range(n), c))) * p**c * (1 - p) ** (n - c)


@pytest.mark.parametrize("counts", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="num_samples"):
        pass_at_k(*counts)
    with pytest.raises(ValueError, match="num_samples"):
        pass_all_k(*counts)


def test_every_k_up_to_the_samples_is_a_mean_over_seeds() -> None:
    """Of 3 samples seed 1 solves 1, seed 2 solves 3: pass@2 = (2/3 + 1) / 2, pass^2 = (0 + 1) / 2, pass@3 = 1, pass^3 = 1/2."""
    at, all_ = pass_curves([True, False, False, True, True, True], [1, 1, 1, 2, 2, 2])
    assert [each.mean for each in at] == pytest.approx([2 / 3, 5 / 6, 1.0])
    assert [each.mean for each in all_] == pytest.approx([2 / 3, 1 / 2, 1 / 2])


def test_a_seed_that_lost_samples_counts_for_the_k_it_still_has() -> None:
    """Seed 2 has a single sample left, solved: pass@1 = (1/2 + 1) / 2, pass@2 is seed 1's alone."""
    at, _ = pass_curves([True, False, True], [1, 1, 2])
    assert [each.mean for each in at] == [0.75, 1.0]
    assert at[1].low is None  # one seed


def test_the_interval_is_one_over_seeds() -> None:
    """All samples of a seed agree, so pass@2 is a share of seeds: 3 of 4."""
    at, _ = pass_curves([True] * 6 + [False] * 2, [1, 1, 2, 2, 3, 3, 4, 4])
    wilson = wilson_interval(3, 4)
    assert (at[1].low, at[1].high) == pytest.approx((wilson.low, wilson.high))
