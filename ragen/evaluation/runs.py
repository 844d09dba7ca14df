"""Several training runs of one recipe: what the recipe gives, not what one lucky run gave.

R runs (training seeds), each measured on the same S task seeds, fill a table of R x S cells, a cell being the mean of the samples
that the run drew for the seed. Another run and another set of tasks would both give another mean. Pooling all episodes as if they
were independent would count a run's luck hundreds of times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq  # type: ignore[import-untyped]

from ragen.evaluation.paired import Difference, Test, paired_difference
from ragen.evaluation.statistics import Floats, Interval, mean_interval, t_quantile


@dataclass(frozen=True, kw_only=True)
class RunsMean:
    """The mean over runs, and the two sources of what makes it uncertain."""

    interval: Interval  # 95 %, for another run of the recipe on other task seeds
    over_runs: float  # standard error of the mean from training and sampling: standard deviation of the run means / sqrt(R)
    over_seeds: float  # standard error of the mean from the task seeds, which all runs share; 0 if none is seen beside the above
    num_runs: int
    num_seeds: int


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A variance that was estimated, and with how many degrees of freedom."""

    variance: float
    degrees: float


def mean_over_runs(cells_RS: Floats, *, limits: tuple[float, float]) -> RunsMean:
    """The mean of a table of runs x task seeds, R >= 2, with both sources of variance in its interval.

    half^2 = t(R - 1)^2 MS_R / RS + t(S - 1)^2 max(MS_S - MS_E, 0) / RS, with the mean squares of runs, seeds and rest in a
    two-way table without repetition. With S = 1 the runs alone are left: mean +- t(R - 1) s / sqrt(R). The ends are kept within
    `limits`. Where no two cells differ, the seeds are all there is to judge by (`mean_interval`).
    Source: two margins of error added as squares, as in F. A. Graybill and C.-M. Wang, J. Am. Stat. Assoc. 75 (1980) 869-873;
    the mean squares as in S. R. Searle, G. Casella, C. E. McCulloch, Variance Components (1992), chapter 4.
    """
    num_runs, num_seeds = cells_RS.shape
    of_runs, of_seeds, rest = _mean_squares(cells_RS)
    interval = Interval(mean=float(cells_RS.mean()))
    runs = _Source(variance=of_runs / cells_RS.size, degrees=num_runs - 1)
    seeds = _Source(variance=max(of_seeds - rest, 0.0) / cells_RS.size, degrees=max(num_seeds - 1, 1))
    if runs.variance or seeds.variance:
        interval = _interval(interval.mean, (runs, seeds), limits)
    elif num_seeds > 1 and math.isfinite(limits[0]) and math.isfinite(limits[1]):
        interval = mean_interval(cells_RS.mean(0).tolist(), range(num_seeds), limits=limits)
    return RunsMean(
        interval=interval,
        over_runs=math.sqrt(runs.variance),
        over_seeds=math.sqrt(seeds.variance),
        num_runs=num_runs,
        num_seeds=num_seeds,
    )


def difference_of_runs(baseline_RS: Floats, other_RS: Floats, *, span: float) -> Difference:
    """The difference of two recipes on the same S >= 2 task seeds; at least one of them has several runs.

    As `mean_over_runs`: the runs add s_a^2 / R_a + s_b^2 / R_b (Welch's degrees of freedom), the task seeds the variance of the
    differences of the seeds' means over S, less what of it is the rest MS_E / RS of either recipe. A recipe with a single run is
    taken to vary from run to run as the other does. The p-value is the level at which the interval just touches 0, and not below
    that of the seeds alone (`sign_flip_test`). Every cell lies within `span` of every other.
    """
    differences_S = other_RS.mean(0) - baseline_RS.mean(0)
    by_seed = paired_difference(differences_S, span=span)
    several = [cells for cells in (baseline_RS, other_RS) if len(cells) > 1]
    stand_ins = [cells if len(cells) > 1 else several[0] for cells in (baseline_RS, other_RS)]
    sizes = [len(baseline_RS), len(other_RS)]
    parts = [
        _Source(variance=float(known.mean(1).var(ddof=1)) / size, degrees=len(known) - 1)
        for known, size in zip(stand_ins, sizes, strict=True)
    ]
    # A single estimate that stands for both recipes is known no better for being used twice.
    runs = _sum(parts) if len(several) == 2 else _Source(variance=sum(p.variance for p in parts), degrees=parts[0].degrees)
    rest = sum(_mean_squares(known)[2] / size for known, size in zip(stand_ins, sizes, strict=True))
    own = max(float(differences_S.var(ddof=1)) - rest, 0.0) / len(differences_S)
    sources = (runs, _Source(variance=own, degrees=len(differences_S) - 1))
    if not any(source.variance for source in sources):  # all runs solve the same seeds: these are all there is to judge by
        return by_seed
    return Difference(
        interval=_interval(by_seed.interval.mean, sources, (-span, span)),
        p_value=max(_p_value(by_seed.interval.mean, sources), by_seed.p_value),
        test=Test.T,
        num_pairs=by_seed.num_pairs,
    )


def _interval(mean: float, sources: tuple[_Source, ...], limits: tuple[float, float]) -> Interval:
    half = _margin(0.05, sources)
    return Interval(mean=mean, low=min(mean, max(limits[0], mean - half)), high=max(mean, min(limits[1], mean + half)))


def _margin(level: float, sources: tuple[_Source, ...]) -> float:
    """Half the width of the interval that misses in a share `level` of all cases."""
    return math.hypot(*(float(t_quantile(each.degrees, level=level)) * math.sqrt(each.variance) for each in sources))


def _p_value(mean: float, sources: tuple[_Source, ...]) -> float:
    least = 1e-12
    if abs(mean) >= _margin(least, sources):
        return least
    return float(brentq(lambda level: _margin(level, sources) - abs(mean), least, 1.0))


def _sum(sources: list[_Source]) -> _Source:
    """The sum of two independent estimates, with the degrees of freedom of F. E. Satterthwaite, Biometrics 2 (1946) 110-114."""
    total = math.fsum(each.variance for each in sources)
    uncertain = math.fsum(each.variance**2 / each.degrees for each in sources)
    return _Source(variance=total, degrees=total**2 / uncertain if uncertain else min(each.degrees for each in sources))


def _mean_squares(cells_RS: Floats) -> tuple[float, float, float]:
    """Of runs, of seeds and of the rest; 0 for the last two where there is a single seed."""
    num_runs, num_seeds = cells_RS.shape
    mean, runs_R1, seeds_1S = cells_RS.mean(), cells_RS.mean(1, keepdims=True), cells_RS.mean(0, keepdims=True)
    of_runs = num_seeds * float(((runs_R1 - mean) ** 2).sum()) / (num_runs - 1)
    if num_seeds == 1:
        return of_runs, 0.0, 0.0
    of_seeds = num_runs * float(((seeds_1S - mean) ** 2).sum()) / (num_seeds - 1)
    rest = float(((cells_RS - runs_R1 - seeds_1S + mean) ** 2).sum()) / ((num_runs - 1) * (num_seeds - 1))
    return of_runs, of_seeds, rest
