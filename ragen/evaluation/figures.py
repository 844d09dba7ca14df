"""The figures that are compared: where each stands in a result, what it is per task seed, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ragen.evaluation.paired import seed_means
from ragen.evaluation.pass_at_k import Estimator, pass_all_k, pass_at_k
from ragen.evaluation.results import TagResult
from ragen.evaluation.statistics import Floats, Interval

SHARE = (0.0, 1.0)
UNBOUNDED = (-math.inf, math.inf)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of a comparison."""

    key: str
    title: str
    form: str  # of a value
    interval: Callable[[TagResult], Interval | None]  # of a single evaluation
    by_seed: Callable[[TagResult], dict[int, float]] | None  # the mean of each task seed; None if it is not one over seeds
    values: Callable[[TagResult], Sequence[float]] = lambda _: ()  # per episode, where differences are tested
    limits: tuple[float, float] = UNBOUNDED
    is_tested: bool = False

    def cells(self, runs: Sequence[TagResult]) -> Floats | None:
        """[R, S] of several evaluations on the seeds that all have, or [R, 1] where no two are shared; None without a mean."""
        shared = self.shared_seeds(runs)
        if len(shared) > 1:
            return self.table(runs, shared)
        means = [interval.mean for run in runs if (interval := self.interval(run)) is not None]
        return np.array(means)[:, None] if len(means) == len(runs) else None

    def shared_seeds(self, runs: Sequence[TagResult]) -> list[int]:
        """The task seeds that all evaluations have, in the order of the first."""
        if self.by_seed is None:
            return []
        seeds = [self.by_seed(run) for run in runs]
        return [seed for seed in seeds[0] if all(seed in each for each in seeds)]

    def table(self, runs: Sequence[TagResult], shared: Sequence[int]) -> Floats:
        """[R, S]"""
        assert self.by_seed is not None, self.key
        return np.array([[means[seed] for seed in shared] for means in map(self.by_seed, runs)])

    def limits_of(self, values: Sequence[Sequence[float]]) -> tuple[float, float]:
        """The limits, or, of values without, the least and the greatest there is."""
        if self.limits != UNBOUNDED:
            return self.limits
        return min(map(min, values)), max(map(max, values))


def figures_of(tags: Sequence[Sequence[TagResult]]) -> list[Figure]:
    """Everything that is compared in one environment, given every evaluation of every arm."""
    samples = min(tag.samples_per_seed for runs in tags for tag in runs)
    return [
        Figure(
            key="success",
            title="success",
            form="{:.1%}",
            interval=lambda tag: tag.success,
            by_seed=lambda tag: _means(tag, tag.episodes.successes),
            values=lambda tag: tag.episodes.successes,
            limits=SHARE,
            is_tested=True,
        ),
        Figure(
            key="return",
            title="return",
            form="{:+.3f}",
            interval=lambda tag: tag.return_,
            by_seed=lambda tag: _means(tag, tag.episodes.returns),
            values=lambda tag: tag.episodes.returns,
            is_tested=True,
        ),
        *(_pass(f"pass@{k}", k, pass_at_k, lambda tag: tag.pass_at) for k in range(2, samples + 1)),
        *(_pass(f"pass^{k}", k, pass_all_k, lambda tag: tag.pass_all) for k in range(2, samples + 1)),
        Figure(
            key="format_validity",
            title="format validity",
            form="{:.1%}",
            interval=lambda tag: tag.format_validity,
            by_seed=None,
            limits=SHARE,
        ),
        _mean("turns", "turns", lambda tag: tag.num_turns, lambda tag: tag.episodes.turns),
        _mean("actions", "actions", lambda tag: tag.num_actions, lambda tag: tag.episodes.actions),
        _mean("sampled_tokens", "sampled tokens", lambda tag: tag.sampled_tokens, lambda tag: tag.episodes.sampled_tokens),
        _mean("prompt_tokens", "prompt tokens", lambda tag: tag.prompt_tokens, lambda tag: tag.episodes.prompt_tokens),
    ]


def _mean(
    key: str,
    title: str,
    interval: Callable[[TagResult], Interval | None],
    column: Callable[[TagResult], Sequence[float]],
) -> Figure:
    def by_seed(tag: TagResult) -> dict[int, float]:
        return _means(tag, column(tag)) if interval(tag) is not None else {}

    return Figure(key=key, title=title, form="{:.1f}", interval=interval, by_seed=by_seed)


def _pass(key: str, k: int, estimate: Estimator, curve: Callable[[TagResult], Sequence[Interval]]) -> Figure:
    def by_seed(tag: TagResult) -> dict[int, float]:
        counts: dict[int, list[int]] = {}
        for seed, success in zip(tag.episodes.seeds, tag.episodes.successes, strict=True):
            count = counts.setdefault(seed, [0, 0])
            count[0] += 1
            count[1] += success
        return {seed: estimate(n, c, k) for seed, (n, c) in counts.items() if n >= k}

    return Figure(key=key, title=key, form="{:.1%}", interval=lambda tag: curve(tag)[k - 1], by_seed=by_seed, limits=SHARE)


def _means(tag: TagResult, values: Sequence[float]) -> dict[int, float]:
    return seed_means(values, tag.episodes.seeds)
