"""What the filter kept, what it dropped and what that cost, as numbers. Keys are defined in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from ragen.credit.filters import FilterConfig, Selection
from ragen.metrics import finite_only
from ragen.records import Group


def filter_metrics(
    groups: Sequence[Group], selection: Selection, config: FilterConfig, *, num_planned: int, num_rounds: int, seconds: float
) -> dict[str, float]:
    """Metrics of a step that has played `groups`, `num_planned` of them before any refill, in `seconds`. Empty if it is off."""
    if config.is_off:
        return {}
    kept = set(selection.kept)
    dropped = [group for position, group in enumerate(groups) if position not in kept]
    lost = [trajectory for group in dropped for trajectory in group.trajectories]
    lost_tokens = sum(trajectory.num_sampled for trajectory in lost)
    all_tokens = sum(t.num_sampled for group in groups for t in (*group.trajectories, *group.abstained, *group.failed))
    metrics: dict[str, float | None] = {
        "filter/kept_groups": len(kept),
        "filter/kept_frac": len(kept) / len(groups),
        "filter/missing_groups": max(0, selection.num_wanted - len(kept)),
        "filter/zero_spread_groups": selection.num_zero_spread,
        "filter/engaged": selection.is_engaged,
        "filter/spread_ratio": selection.spread_ratio,
        "filter/score_kept": _mean(score for at, score in enumerate(selection.scores) if at in kept),
        "filter/score_dropped": _mean(score for at, score in enumerate(selection.scores) if at not in kept),
        "filter/effective_groups": selection.num_effective,
        "filter/weight_mean": _mean(selection.weights),
        "filter/loss_scale": selection.loss_scale,
        "filter/dropped_trajectories": len(lost),
        "filter/dropped_tokens": lost_tokens,
        "filter/dropped_s": seconds * lost_tokens / all_tokens if all_tokens else 0.0,
        "filter/extra_groups": len(groups) - num_planned,
        "filter/extra_rounds": num_rounds,
        "filter/skipped_update": not kept,
    }
    return finite_only(metrics)


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return fmean(present) if present else None
