"""Whether "95 %" is true: evaluations are simulated whose true means are known, and the intervals that hold them are counted.

Every simulated evaluation draws a true mean of its own from a band. With whole counts the coverage at one fixed mean jumps by
several points when the mean moves by a little, for every interval there is; over a band the jumps average out.

    python -m tests.support.coverage            # 10 000 evaluations a line: the tables of docs/statistics.md
    python -m tests.support.coverage --num 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr  # type: ignore[import-untyped]

from ragen.evaluation.runs import mean_over_runs
from ragen.evaluation.statistics import Floats, clustered_share, score_bounds, t_quantile

Generator = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: how often the interval held the truth, and how often the usual one, mean +- t s.e., did."""

    title: str
    coverage: float
    of_usual: float
    mean_width: float


def success(generator: Generator, *, num: int, seeds: int, samples: int, alike: float, band: tuple[float, float]) -> Line:
    """Success rates: each seed has its own chance, from a Beta with correlation `alike` between two samples of one seed."""
    truth = generator.uniform(*band, num)
    chances = _chances(generator, truth, seeds, alike)
    sums = generator.binomial(samples, chances).astype(float)
    _, low, high = clustered_share(sums, np.full_like(sums, samples))
    title = f"| {seeds} | {samples} | {alike:g} | {band[0]:g}-{band[1]:g} |"
    return _line(title, truth, low, high, sums / samples)


def returns(generator: Generator, *, num: int, seeds: int, name: str) -> Line:
    """Mean returns, skewed ones, whose limits the interval is not told."""
    values_NSM, truth = RETURNS[name](generator, num, seeds)
    least, span = values_NSM.min((1, 2)), np.ptp(values_NSM, axis=(1, 2))
    span = np.where(span == 0.0, 1.0, span)
    means = values_NSM.mean(2)
    _, low, high = clustered_share((means - least[:, None]) / span[:, None], np.ones_like(means), has_limits=False)
    truths = np.full(num, truth)
    return _line(f"| {name} | {seeds} |", truths, least + span * low, least + span * high, means)


def differences(generator: Generator, *, num: int, seeds: int, samples: int, rates: tuple[float, float], alike: float) -> Line:
    """Differences of two success rates on the same seeds, whose chances go together with correlation `alike`."""
    shared, own = generator.normal(size=(num, seeds)), generator.normal(size=(2, num, seeds))
    # A chance ndtr(sqrt(2) m + x) with x normal has the mean ndtr(m): true rates in a band around the two named ones.
    centres = np.array(rates)[:, None] * generator.uniform(0.8, 1.2, (2, num))
    points = _normal_quantile(np.clip(centres, 0.005, 0.995))
    latent = np.sqrt(alike) * shared + np.sqrt(1.0 - alike) * own
    wins = generator.binomial(samples, ndtr(np.sqrt(2.0) * points[:, :, None] + latent)) / samples
    truth, per_seed = ndtr(points[1]) - ndtr(points[0]), wins[1] - wins[0]
    _, low, high = clustered_share((per_seed + 1.0) / 2.0, np.ones_like(per_seed))
    title = f"| {seeds} | {samples} | {rates[0]:g} and {rates[1]:g} | {alike:g} |"
    return _line(title, truth, 2.0 * low - 1.0, 2.0 * high - 1.0, per_seed)


def wilson(generator: Generator, *, num: int, episodes: int, band: tuple[float, float]) -> Line:
    """Independent episodes, one a seed."""
    truth = generator.uniform(*band, num)
    share = generator.binomial(episodes, truth) / episodes
    low, high = score_bounds(share, np.full(num, float(episodes)))
    half = 1.959964 * np.sqrt(share * (1.0 - share) / episodes)
    return Line(
        title=f"| {episodes} | {band[0]:g}-{band[1]:g} |",
        coverage=_held(truth, low, high),
        of_usual=_held(truth, share - half, share + half),
        mean_width=float((high - low).mean()),
    )


def recipes(generator: Generator, *, num: int, runs: int, seeds: int, luck: float) -> Line:
    """Means over several runs on shared seeds; `luck` is how much runs differ, as a part of how much seeds do."""
    held, usual, width = 0, 0, 0.0
    truth = float(ndtr(0.2 / np.sqrt(2.0 + luck**2)))
    for _ in range(num):
        latent = 0.2 + luck * generator.normal(size=(runs, 1)) + generator.normal(size=(1, seeds))
        cells = (generator.random((runs, seeds)) < ndtr(latent)).astype(float)
        interval = mean_over_runs(cells, limits=(0.0, 1.0)).interval
        assert interval.low is not None
        assert interval.high is not None
        held += interval.low <= truth <= interval.high
        width += interval.high - interval.low
        of_runs = cells.mean(1)
        usual += abs(of_runs.mean() - truth) <= t_quantile(runs - 1) * of_runs.std(ddof=1) / np.sqrt(runs)
    return Line(
        title=f"| {runs} | {seeds} | {luck:g} |", coverage=held / num, of_usual=float(usual / num), mean_width=width / num
    )


def _chances(generator: Generator, truth_N: Floats, seeds: int, alike: float) -> Floats:
    means = np.broadcast_to(truth_N[:, None], (len(truth_N), seeds))
    if alike == 0.0:
        return means
    if alike == 1.0:
        return (generator.random(means.shape) < means).astype(float)
    weight = (1.0 - alike) / alike
    return generator.beta(means * weight, (1.0 - means) * weight)


def _puzzle(chance: float, samples: int) -> Callable[[Generator, int, int], tuple[Floats, float]]:
    """A return as in Sokoban: a solved episode pays 10.9 less 0.1 a move, another costs 1 to 1.2."""

    def draw(generator: Generator, num: int, seeds: int) -> tuple[Floats, float]:
        chances = _chances(generator, np.full(num, chance), seeds, 0.4)[:, :, None]
        shape = (num, seeds, samples)
        solved = 10.9 - 0.1 * generator.integers(1, 10, shape)
        values = np.where(generator.random(shape) < chances, solved, -1.0 - 0.1 * generator.integers(0, 3, shape))
        return values, chance * 10.4 + (1.0 - chance) * -1.1

    return draw


RETURNS: dict[str, Callable[[Generator, int, int], tuple[Floats, float]]] = {
    "normal": lambda generator, num, seeds: (generator.normal(size=(num, seeds, 1)), 0.0),
    "exponential": lambda generator, num, seeds: (generator.exponential(size=(num, seeds, 1)), 1.0),
    "lognormal": lambda generator, num, seeds: (generator.lognormal(size=(num, seeds, 1)), float(np.exp(0.5))),
    "puzzle, 10 % solved": _puzzle(0.1, 1),
    "puzzle, 25 % solved": _puzzle(0.25, 1),
    "puzzle, 10 % solved, 8 samples": _puzzle(0.1, 8),
    "puzzle, 90 % solved, 8 samples": _puzzle(0.9, 8),
}


def _normal_quantile(share: Floats) -> Floats:
    from scipy.special import ndtri

    return np.asarray(ndtri(share), np.float64)


def _line(title: str, truth: Floats, low: Floats, high: Floats, per_seed: Floats) -> Line:
    seeds = per_seed.shape[1]
    mean, half = per_seed.mean(1), t_quantile(seeds - 1) * per_seed.std(1, ddof=1) / np.sqrt(seeds)
    return Line(
        title=title,
        coverage=_held(truth, low, high),
        of_usual=_held(truth, mean - half, mean + half),
        mean_width=float((high - low).mean()),
    )


def _held(truth: Floats, low: Floats, high: Floats) -> float:
    return float(((low <= truth) & (truth <= high)).mean())


BANDS = ((0.015, 0.03), (0.03, 0.07), (0.07, 0.15), (0.2, 0.3), (0.45, 0.55), (0.97, 0.985))


def all_tables(num: int) -> Iterator[tuple[str, Iterator[Line]]]:
    """(heading, lines) of every table of docs/statistics.md; the generator is one for each table."""
    one, two, three, four, five = np.random.default_rng(91).spawn(5)
    yield (
        "| episodes | true rate |",
        (wilson(one, num=num, episodes=n, band=band) for n in (32, 64, 128, 256) for band in BANDS),
    )
    yield (
        "| seeds | samples | alike | true rate |",
        (
            success(two, num=num, seeds=seeds, samples=samples, alike=alike, band=band)
            for seeds in (32, 64, 128, 256)
            for samples in (4, 16)
            for alike in (0.0, 0.1, 0.4, 0.8, 1.0)
            for band in BANDS
        ),
    )
    yield (
        "| returns | seeds |",
        (returns(three, num=num, seeds=seeds, name=name) for name in RETURNS for seeds in (32, 64, 128, 256)),
    )
    yield (
        "| seeds | samples | true rates | alike |",
        (
            differences(four, num=num, seeds=seeds, samples=samples, rates=rates, alike=alike)
            for seeds in (32, 64, 256)
            for samples in (1, 4, 16)
            for rates in ((0.05, 0.05), (0.02, 0.1), (0.3, 0.6), (0.5, 0.5), (0.05, 0.9))
            for alike in (0.0, 0.7)
        ),
    )
    yield (
        "| runs | seeds | luck |",
        (
            recipes(five, num=num // 5, runs=runs, seeds=seeds, luck=luck)
            for runs in (2, 3, 5)
            for seeds in (32, 128)
            for luck in (0.0, 0.3, 0.6)
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the coverage of the 95 % intervals.")
    parser.add_argument("--num", type=int, default=10_000, help="simulated evaluations a line")
    for heading, lines in all_tables(parser.parse_args().num):
        print(f"{heading} coverage | of mean +- t s.e. | mean width |")
        for line in lines:
            print(f"{line.title} {line.coverage:.1%} | {line.of_usual:.1%} | {line.mean_width:.3f} |", flush=True)
        print()


if __name__ == "__main__":
    main()
