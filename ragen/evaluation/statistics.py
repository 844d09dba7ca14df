"""Means of evaluated episodes with 95 % intervals. A success rate without its interval is half a number.

Episodes of one task seed are alike, so the seed, not the episode, is what was drawn independently. One interval serves every
mean: Wilson's score interval on the *effective number of episodes*, the number of independent yes-or-no trials that would give a
mean as uncertain as the clustered data do. docs/statistics.md derives it and has its measured coverage.

X is any number of leading axes, C runs over clusters (task seeds).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit  # type: ignore[import-untyped]

Z95 = NormalDist().inv_cdf(0.975)  # 1.959964
NO_SPREAD = 1e-18  # a variance below this part of the squared range is rounding
FEW = 16  # clusters below which the kurtosis of their residuals says little
ENOUGH = 4.0  # clusters with the rarer outcome from which on its clustering can be told from its frequency

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and the ends of its 95 % interval; the ends are None where the data cannot tell.

    That is: fewer than two clusters, or, of values without known limits, not two that differ.
    """

    mean: float
    low: float | None = None
    high: float | None = None


def t_quantile(degrees: ArrayLike, *, level: float = 0.05) -> Floats:
    """What |t| of Student's distribution exceeds with chance `level`, for `degrees` of freedom, whole or not."""
    return np.asarray(stdtrit(degrees, 1.0 - level / 2.0), np.float64)


def wilson_interval(num_successes: int, num_trials: int) -> Interval:
    """The score interval of a share of independent trials; sensible also at 0 %, at 100 % and for few trials.

    Source: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209-212; without continuity correction.
    Raises ValueError for no trial or an impossible count.
    """
    if not 0 <= num_successes <= num_trials or num_trials == 0:
        raise ValueError(f"num_successes={num_successes}, num_trials={num_trials}: need 0 <= successes <= trials and a trial")
    share = num_successes / num_trials
    low, high = score_bounds(np.float64(share), np.float64(num_trials))
    return Interval(mean=share, low=float(low), high=float(high))


def score_bounds(mean_X: ArrayLike, trials_X: ArrayLike) -> tuple[Floats, Floats]:
    """Ends in [0, 1] of Wilson's interval of a share `mean_X` among `trials_X` independent trials, whole or not.

    (p + z^2/2n -+ z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n), with z = 1.96.
    """
    mean, trials = np.asarray(mean_X, np.float64), np.asarray(trials_X, np.float64)
    z2_n = Z95**2 / trials
    centre = mean + z2_n / 2
    half = Z95 * np.sqrt((mean * (1 - mean) + z2_n / 4) / trials)
    # At 0 % and 100 % rounding may leave an end a hair beyond the mean.
    low = np.minimum(mean, np.maximum(0.0, (centre - half) / (1 + z2_n)))
    high = np.maximum(mean, np.minimum(1.0, (centre + half) / (1 + z2_n)))
    return low, high


def clustered_share(sums_XC: ArrayLike, sizes_XC: ArrayLike, *, has_limits: bool = True) -> tuple[Floats, Floats, Floats]:
    """(mean, low, high), [X] each, of values in [0, 1] of which cluster c holds `sizes_XC`, adding up to `sums_XC`; C >= 2.

    mean = S / N over all values. Its variance V is the cluster-robust one, sum of r_c^2 * C / (C - 1) / N^2 with residuals
    r_c = S_c - mean N_c. The effective number of trials is mean (1 - mean) / V, made smaller by (z / t)^2, where t has the
    degrees of freedom of `_degrees`: what is known of V itself is worth no more than that. It is never below
    N^2 / (sum of N_c^2), the number of clusters where they are equally large: no data in [0, 1] spread more than clusters in
    which all values agree. So one value a cluster gives Wilson's interval. `has_limits`: no value can lie outside [0, 1]; False
    where 0 and 1 are but the least and greatest that were seen.

    Source: an effective sample size in the interval of a share is usual for clustered surveys, as in E. L. Korn and
    B. I. Graubard, Survey Methodology 24 (1998) 193-201. Differs: Wilson's interval instead of the exact one, the degrees of
    freedom, the bound.
    """
    sums, sizes = np.asarray(sums_XC, np.float64), np.asarray(sizes_XC, np.float64)
    num_clusters, total = sums.shape[-1], sizes.sum(-1)
    mean = np.clip(sums.sum(-1) / total, 0.0, 1.0)
    residuals = sums - mean[..., None] * sizes
    variance = num_clusters / (num_clusters - 1) * (residuals**2).sum(-1) / total**2
    fewest = total**2 / (sizes**2).sum(-1)
    spreads = variance > NO_SPREAD
    rarer = np.where(mean[..., None] <= 0.5, sums, sizes - sums)
    is_told = has_limits & (rarer.sum(-1) ** 2 >= ENOUGH * (rarer**2).sum(-1))
    # Where nothing spreads, the values put in its place are not used.
    product = np.where(spreads, mean * (1.0 - mean), 1.0)
    slope = np.where(is_told, (1.0 - 2.0 * mean) / product * num_clusters / total, 0.0)
    degrees = _degrees(np.where(spreads[..., None], residuals, 1.0), slope)
    trials = product / np.where(spreads, variance, 1.0) * (Z95 / t_quantile(degrees)) ** 2
    # Where no two clusters differ, the data say nothing of how alike the values of one cluster are: the worst is assumed.
    low, high = score_bounds(mean, np.maximum(fewest, np.where(spreads, trials, fewest)))
    return mean, low, high


def _degrees(residuals_XC: Floats, slope_X: Floats) -> Floats:
    """Degrees of freedom with which the ratio of V, the variance of a mean p, to p (1 - p) is known.

    The moment match of F. E. Satterthwaite, Biometrics 2 (1946) 110-114: d = 2 C / (m + 2 / (C - 1)) if cluster c moves the ratio
    by u_c and m is the mean of u_c^2. With q = r_c^2 / (mean of r^2), u_c = q - 1 - slope r_c. The slope, which is
    (1 - 2 p) / (p (1 - p)) in units of a cluster, takes off what V and p (1 - p) have in common: where rare outcomes come one a
    cluster, both grow with their number, and the ratio is known well. With slope 0 the degrees are those of V alone, which is
    the wide side where too little was seen to tell the two apart. At least 2, and at most C - 1 where there are FEW clusters.
    """
    num_clusters = residuals_XC.shape[-1]
    squares = residuals_XC**2
    moves = squares / squares.mean(-1)[..., None] - 1.0 - slope_X[..., None] * residuals_XC
    most = num_clusters - 1 if num_clusters < FEW else np.inf
    degrees = 2.0 * num_clusters / ((moves**2).mean(-1) + 2.0 / (num_clusters - 1))
    return np.asarray(np.clip(degrees, min(2.0, most), most), np.float64)


def cluster_sums(values: Iterable[float], clusters: Iterable[Hashable]) -> tuple[Floats, Floats]:
    """(sums [C], sizes [C]) in the order in which the clusters first appear."""
    sums: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums.setdefault(cluster, []).append(value)
    return np.array([math.fsum(each) for each in sums.values()]), np.array([float(len(each)) for each in sums.values()])


def share_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """The mean of values in [0, 1], such as successes, clustered by task seed.

    Raises ValueError for no value, one outside [0, 1], or if the two lengths differ.
    """
    return mean_interval(values, clusters, limits=(0.0, 1.0))


def mean_interval(
    values: Sequence[float], clusters: Sequence[Hashable], *, limits: tuple[float, float] | None = None
) -> Interval:
    """The mean of values between `limits`, clustered by task seed; without limits, the least and greatest value stand for them.

    Scaled to [0, 1] the values are treated as in `clustered_share`. For skewed values this covers far better than mean +- t s.e.,
    but what never occurred in the data, such as a rare large reward, no interval can account for.
    Raises ValueError for no value, one outside the limits, or if the two lengths differ.
    """
    if not len(values) or len(values) != len(clusters):
        raise ValueError(f"{len(values)} values and {len(clusters)} clusters: need as many of each, and at least one")
    least, greatest = limits or (min(values), max(values))
    if min(values) < least or max(values) > greatest:
        raise ValueError(f"values from {min(values)} to {max(values)}: must lie in [{least}, {greatest}]")
    mean = math.fsum(values) / len(values)
    if greatest == least:
        return Interval(mean=mean)
    sums, sizes = cluster_sums(values, clusters)
    if len(sums) < 2:
        return Interval(mean=mean)
    span = greatest - least
    _, low, high = clustered_share((sums - least * sizes) / span, sizes, has_limits=limits is not None)
    # Scaling there and back may move an end a hair across the mean.
    return Interval(mean=mean, low=min(mean, least + span * float(low)), high=max(mean, least + span * float(high)))


def ratio_interval(parts: Sequence[int], wholes: Sequence[int], clusters: Sequence[Hashable]) -> Interval:
    """A share among things of which an episode has many, such as valid replies: `parts` of `wholes` in each episode, clustered.

    Episodes without any, such as one that ended before a reply, do not count; without a single one the share is 0, no interval.
    Raises ValueError if the lengths differ.
    """
    some = [(p, w, c) for p, w, c in zip(parts, wholes, clusters, strict=True) if w]
    if not some:
        return Interval(mean=0.0)
    kept = [c for _, _, c in some]
    sums, _ = cluster_sums([p for p, _, _ in some], kept)
    sizes, _ = cluster_sums([w for _, w, _ in some], kept)
    mean = float(sums.sum() / sizes.sum())
    if len(sums) < 2:
        return Interval(mean=mean)
    _, low, high = clustered_share(sums, sizes)
    return Interval(mean=mean, low=float(low), high=float(high))
