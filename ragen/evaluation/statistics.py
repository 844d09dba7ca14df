"""Means with 95 % intervals. A success rate without its interval is half a number."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

Z95 = NormalDist().inv_cdf(0.975)  # 1.959964


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and the ends of its 95 % interval; the ends are None where the data cannot tell (fewer than two clusters)."""

    mean: float
    low: float | None = None
    high: float | None = None


def wilson_interval(num_successes: int, num_trials: int) -> Interval:
    """The score interval of a share, in [0, 1]; sensible also at 0 %, at 100 % and for few trials, where mean +- z s.e. is not.

    (p + z^2/2n +- z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n), with p = num_successes / num_trials and z = 1.96.
    Source: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209-212; without continuity correction.
    Raises ValueError for no trial or an impossible count.
    """
    if not 0 <= num_successes <= num_trials or num_trials == 0:
        raise ValueError(f"num_successes={num_successes}, num_trials={num_trials}: need 0 <= successes <= trials and a trial")
    share = num_successes / num_trials
    z2_n = Z95**2 / num_trials
    centre = share + z2_n / 2
    half = Z95 * math.sqrt((share * (1 - share) + z2_n / 4) / num_trials)
    # At 0 % and 100 % rounding may leave an end a hair beyond the mean.
    return Interval(
        mean=share,
        low=min(share, max(0.0, (centre - half) / (1 + z2_n))),
        high=max(share, min(1.0, (centre + half) / (1 + z2_n))),
    )


def clustered_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """Mean +- 1.96 standard errors, where values of one cluster (one task seed) may be correlated.

    s.e.^2 = C / (C - 1) * sum over clusters of (sum of the residuals inside)^2 / n^2, for C clusters and n values; with one
    value a cluster this is the usual s^2 / n. Source: the cluster-robust error of a mean, as in E. Miller, "Adding Error Bars
    to Evals", arXiv 2411.00640, with the small-sample factor C / (C - 1). Below about 30 clusters it is too narrow.
    Raises ValueError for no value, or if the two lengths differ.
    """
    if not values or len(values) != len(clusters):
        raise ValueError(f"{len(values)} values and {len(clusters)} clusters: need as many of each, and at least one")
    mean = math.fsum(values) / len(values)
    residuals: dict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster] += value - mean
    num_clusters = len(residuals)
    if num_clusters < 2:
        return Interval(mean=mean)
    variance = num_clusters / (num_clusters - 1) * math.fsum(r**2 for r in residuals.values()) / len(values) ** 2
    half = Z95 * math.sqrt(variance)
    return Interval(mean=mean, low=mean - half, high=mean + half)
