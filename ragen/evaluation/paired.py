"""Differences of two policies: on the same task seeds where both have them, else between two sets of seeds.

Most of what makes one episode easier than another is its seed. Two policies measured on the same seeds are therefore compared
seed by seed, which needs far fewer episodes for the same certainty than two rates held against each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from ragen.evaluation.statistics import Floats, Interval, cluster_sums, clustered_share, mean_interval

Seed = TypeVar("Seed", bound=Hashable)

NUM_DRAWS = 20_000  # of a permutation test that is too large to be counted out: the least p-value is 1 / 20 001
MOST_COUNTED_OUT = 14  # seeds that differ, up to which every assignment of signs is counted
_DRAWS_ENTROPY = 20_250_424  # the draws are the same whenever the data are


class Test(StrEnum):
    """How a p-value came about."""

    __test__ = False  # no test of pytest's

    MCNEMAR = "McNemar, exact"
    SIGN_FLIPS = "sign flips of the seeds' differences"
    PERMUTATION = "permutation of the seeds"
    T = "t over runs and seeds"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What another policy has more than the baseline."""

    interval: Interval  # 95 %, of this difference alone
    p_value: float  # two-sided, of this difference alone; 1 where nothing differs
    test: Test
    num_pairs: int  # task seeds that both have and that were compared; 0 if there are none: two sets of seeds


def difference(
    baseline: Sequence[float],
    baseline_seeds: Sequence[Hashable],
    other: Sequence[float],
    other_seeds: Sequence[Hashable],
    *,
    limits: tuple[float, float] | None = None,
) -> Difference:
    """The mean of `other` less that of `baseline`, values of episodes with the task seed of each.

    With at least two seeds in common it is the mean over these of the difference of the seed's means, and what else there is does
    not count. Its interval is that of `clustered_share` for the differences, scaled from the widest there can be to [0, 1]; the
    test is `sign_flip_test`. Otherwise `unpaired_difference`. `limits` as in `mean_interval`, and for both together.
    """
    a, b = seed_means(baseline, baseline_seeds), seed_means(other, other_seeds)
    shared = [seed for seed in a if seed in b]
    least, greatest = limits or (min(*baseline, *other), max(*baseline, *other))
    if len(shared) < 2:
        return unpaired_difference(list(a.values()), list(b.values()), limits=(least, greatest))
    return paired_difference(np.array([b[seed] - a[seed] for seed in shared]), span=greatest - least)


def paired_difference(differences_S: Floats, *, span: float) -> Difference:
    """The mean of the task seeds' differences, each within +- `span`; S >= 2."""
    mean = float(differences_S.mean())
    p_value, test = sign_flip_test(differences_S)
    if span == 0.0:
        return Difference(interval=Interval(mean=mean), p_value=p_value, test=test, num_pairs=len(differences_S))
    _, low, high = clustered_share((differences_S / span + 1.0) / 2.0, np.ones(len(differences_S)))
    ends = Interval(mean=mean, low=min(mean, span * (2.0 * float(low) - 1.0)), high=max(mean, span * (2.0 * float(high) - 1.0)))
    return Difference(interval=ends, p_value=p_value, test=test, num_pairs=len(differences_S))


def unpaired_difference(
    baseline: Sequence[float], other: Sequence[float], *, limits: tuple[float, float] | None = None
) -> Difference:
    """The difference of two means over different task seeds, from the seeds' means.

    Interval: (b - a) - sqrt((b - b_low)^2 + (a_high - a)^2), and likewise above; the test is `permutation_test`.
    Source: R. G. Newcombe, Statistics in Medicine 17 (1998) 873-890, method 10, with our intervals of the two means.
    """
    both = [*baseline, *other]
    p_value = permutation_test(np.array(baseline), np.array(other))
    bounds = limits or (min(both), max(both))
    a, b = (mean_interval(values, range(len(values)), limits=bounds) for values in (baseline, other))
    mean = b.mean - a.mean
    ends = Interval(mean=mean)
    if a.low is not None and a.high is not None and b.low is not None and b.high is not None:
        low, high = math.hypot(b.mean - b.low, a.high - a.mean), math.hypot(b.high - b.mean, a.mean - a.low)
        ends = Interval(mean=mean, low=mean - low, high=mean + high)
    return Difference(interval=ends, p_value=p_value, test=Test.PERMUTATION, num_pairs=0)


def sign_flip_test(differences_S: Floats) -> tuple[float, Test]:
    """Two-sided p-value of the hypothesis that on each seed the two policies are interchangeable, so that every sign is a coin.

    The share of all assignments of signs whose sum is at least as far from 0 as the one observed. Where the differences that are
    not 0 are equally large, as with one success or failure a seed, that is McNemar's exact test: the sum is binomial. Few others
    are counted out, many are drawn, and the observed assignment counts as a draw.
    Source: R. A. Fisher, The Design of Experiments (1935), section 21; Q. McNemar, Psychometrika 12 (1947) 153-157.
    """
    sizes = np.abs(differences_S)
    differ = sizes > 1e-12 * max(1.0, float(sizes.max(initial=0.0)))
    signed, sizes = differences_S[differ], sizes[differ]
    if not len(sizes):
        return 1.0, Test.MCNEMAR
    if np.allclose(sizes, sizes[0], rtol=1e-9):
        return mcnemar(int((signed < 0).sum()), int((signed > 0).sum())), Test.MCNEMAR
    observed = abs(float(signed.sum())) * (1 - 1e-9)
    if len(sizes) <= MOST_COUNTED_OUT:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(sizes))))
        return float((np.abs(signs @ sizes) >= observed).mean()), Test.SIGN_FLIPS
    bits = np.random.default_rng(_DRAWS_ENTROPY).integers(0, 2, (NUM_DRAWS, len(sizes)), dtype=np.int8)
    sums = (2.0 * bits - 1.0) @ sizes
    return float((1 + (np.abs(sums) >= observed).sum()) / (1 + NUM_DRAWS)), Test.SIGN_FLIPS


def mcnemar(num_lost: int, num_won: int) -> float:
    """Two-sided exact p-value: `num_won` seeds that only the other policy solves, `num_lost` that only the baseline does.

    Twice the smaller tail of a fair coin thrown num_lost + num_won times, at most 1; the seeds on which both agree say nothing.
    """
    num_throws = num_lost + num_won
    tail = sum(math.comb(num_throws, k) for k in range(min(num_lost, num_won) + 1))
    return min(1.0, float(2 * tail / 2**num_throws))


def permutation_test(a: Floats, b: Floats) -> float:
    """Two-sided p-value of the hypothesis that which seeds' means belong to which policy is chance; drawn, as above."""
    pooled = np.concatenate([a, b])
    observed = abs(b.mean() - a.mean()) * (1 - 1e-9)
    if len(pooled) < 3 or float(np.ptp(pooled)) == 0.0:
        return 1.0
    shuffled = np.random.default_rng(_DRAWS_ENTROPY).permuted(np.tile(pooled, (NUM_DRAWS, 1)), axis=1)
    means_a = shuffled[:, : len(a)].mean(1)
    means_b = shuffled[:, len(a) :].mean(1)
    return float((1 + (np.abs(means_b - means_a) >= observed).sum()) / (1 + NUM_DRAWS))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, in the same order: below 0.05 for none that is true, in 95 % of all comparisons.

    The i-th smallest of m becomes (m - i + 1) times itself, at least the one before it, at most 1.
    Source: S. Holm, Scandinavian Journal of Statistics 6 (1979) 65-70.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def seed_means(values: Sequence[float], seeds: Sequence[Seed]) -> dict[Seed, float]:
    """The mean of each task seed, in the order in which they first appear."""
    sums, sizes = cluster_sums(values, seeds)
    return dict(zip(dict.fromkeys(seeds), map(float, sums / sizes), strict=True))
