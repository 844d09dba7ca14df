"""From returns to advantages: how good a trajectory was beside others. Pure functions on plain numbers.

Formulas and sources: docs/algorithms/starpo.md. All three are one idea at three ranges of comparison (GRPO: the group, BRPO: the
batch, ARPO: none), following the reward normalisation of RAGEN. Only scored trajectories come here: failures of the
infrastructure are not in a group's `trajectories`, so they move no mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import numpy as np

from ragen.errors import TrainingError
from ragen.records import Group, Sample

EPSILON = 1e-6
ROUNDING = 1e-12  # relative to the largest return; the same rewards added in another order differ by less
MAX_RETURN = 1e38  # float32, in which advantages are kept, ends a little above

Returns = Sequence[Sequence[float]]  # per group, per member


def all_equal(returns: Sequence[float]) -> bool:
    """Whether the returns, at least one, differ by no more than rounding: then there is nothing to learn from them."""
    return max(returns) - min(returns) <= ROUNDING * max(map(abs, returns))


def normalize(returns: Sequence[float], *, divide: bool) -> list[float]:
    """R - mean(R), divided by (std(R) + 1e-6) if `divide`. std is the unbiased one.

    Equal returns give exactly 0, and so does a lone return: there is nothing to compare it with.
    """
    if len(returns) < 2 or all_equal(returns):
        return [0.0] * len(returns)
    mean = fmean(returns)
    scale = stdev(returns) + EPSILON if divide else 1.0
    return [(r - mean) / scale for r in returns]


def grpo(returns: Returns, *, divide: bool) -> list[list[float]]:
    """Each return against its own group.

    Source: Shao et al. 2024 (DeepSeekMath), eq. for outcome supervision; without division: Liu et al. 2025 (Dr. GRPO).
    Differs from the paper: the unbiased standard deviation is used, as published RAGEN does.
    """
    return [normalize(group, divide=divide) for group in returns]


def brpo(returns: Returns, *, divide: bool) -> list[list[float]]:
    """Each return against the whole batch: a group in which all members did well is pushed up as a whole."""
    flat = iter(normalize([r for group in returns for r in group], divide=divide))
    return [[next(flat) for _ in group] for group in returns]


def arpo(returns: Returns, *, divide: bool) -> list[list[float]]:
    """The return itself, as the environment gave it. `divide` has no meaning here and must be False."""
    if divide:
        raise ValueError("arpo keeps the raw return: divide must be False")
    return [list(group) for group in returns]


ESTIMATORS: dict[str, Callable[..., list[list[float]]]] = {"grpo": grpo, "brpo": brpo, "arpo": arpo}


def make_samples(groups: Sequence[Group], *, estimator: str, divide: bool) -> list[Sample]:
    """One sample per segment of every scored trajectory, the trajectory's advantage on every token.

    A segment without a trained token gives none, but the return of its trajectory counts in the group: it was scored.
    Raises TrainingError naming the trajectory whose return is not a number that can be trained on.
    """
    for trajectory in (t for group in groups for t in group.trajectories):
        if not abs(trajectory.return_) <= MAX_RETURN:
            key = trajectory.key
            where = f"{key.environment} group {key.group} member {key.member} (task seed {key.task_seed})"
            raise TrainingError(f"return {trajectory.return_} of {where}: must be a number within +-{MAX_RETURN:g}")
    advantages = ESTIMATORS[estimator]([[t.return_ for t in group.trajectories] for group in groups], divide=divide)
    samples = [
        Sample(trajectory=t, segment=index, advantages=np.full(len(segment.ids), advantage, dtype=np.float32))
        for group, row in zip(groups, advantages, strict=True)
        for t, advantage in zip(group.trajectories, row, strict=True)
        for index, segment in enumerate(t.segments)
    ]
    return [sample for sample in samples if sample.mask.any()]
