"""The parts of the return, where rewards of one's own are mixed in, as numbers. Keys are defined in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from ragen.records import Group, Trajectory


def reward_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean and spread of every part, and how much abstained. Empty where the return is the environment's as it is."""
    scored = [t for group in groups for t in group.trajectories]
    abstained = sum(len(group.abstained) for group in groups)
    names = dict.fromkeys(name for t in scored for turn in t.turns for name in turn.parts)
    if not names and not abstained:
        return {}
    metrics = {"rollout/abstained_frac": abstained / (abstained + len(scored))}
    for name in names:
        judged = [t for t in scored if _has(t, name)]
        metrics[f"rollout/part/{name}"] = fmean(_sum(t, name) for t in judged)
        metrics[f"rollout/part_abstained_frac/{name}"] = 1 - len(judged) / (len(scored) + abstained)
        compared = [members for group in groups if len(members := [t for t in group.trajectories if _has(t, name)]) > 1]
        if compared:
            metrics[f"rollout/part_std/{name}"] = fmean(stdev(_sum(t, name) for t in members) for members in compared)
    return metrics


def _has(trajectory: Trajectory, name: str) -> bool:
    return any(name in turn.parts for turn in trajectory.turns)


def _sum(trajectory: Trajectory, name: str) -> float:
    return sum(turn.parts.get(name, 0.0) for turn in trajectory.turns)
