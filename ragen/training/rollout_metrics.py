"""What a rollout looked like, as numbers. Keys are defined in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from ragen.credit.normalize import all_equal
from ragen.metrics import finite_only
from ragen.records import EndReason, FinishReason, Group, Trajectory, Verdict


def rollout_metrics(groups: Sequence[Group], *, seconds: float) -> dict[str, float]:
    """Metrics of the trajectories played to an end; failures of the infrastructure count in `failed_frac` and end reasons alone.

    Returns and their spread leave out what every reward function abstained about.
    """
    scored = [t for group in groups for t in group.trajectories]
    played = [t for group in groups for t in (*group.trajectories, *group.abstained)]
    failed = [t for group in groups for t in group.failed]
    turns = [turn for t in played for turn in t.turns]
    compared = [group.trajectories for group in groups if len(group.trajectories) > 1]
    returns = [[t.return_ for t in members] for members in compared]
    metrics: dict[str, float | None] = {
        "rollout/success": _mean(t.success for t in played),
        "rollout/return": _mean(t.return_ for t in scored),
        "rollout/reward": _mean(t.rewards for t in played),
        "rollout/format_penalty": _mean(t.format_penalties for t in played),
        "rollout/format_validity": _mean(turn.reply.verdict is Verdict.VALID for turn in turns),
        "rollout/num_turns": _mean(len(t.turns) for t in played),
        "rollout/num_actions": _mean(t.num_actions for t in played),
        "rollout/response_tokens": _mean(t.num_sampled for t in played),
        "rollout/num_segments": _mean(len(t.segments) for t in played),
        "rollout/num_summaries": _mean(len(t.summaries) for t in played),
        "rollout/summary_tokens": _mean(sum(each.stop - each.start for each in t.summaries) for t in played),
        "rollout/truncated_reply_frac": _mean(turn.finish_reason is FinishReason.LENGTH for turn in turns),
        "rollout/group_return_std": _mean(map(stdev, returns)),
        "rollout/group_reward_std": _mean(stdev(t.rewards for t in members) for members in compared),
        "rollout/group_penalty_std": _mean(stdev(t.format_penalties for t in members) for members in compared),
        "rollout/zero_spread_frac": _mean(map(all_equal, returns)),
        "rollout/failed_frac": len(failed) / max(1, len(played) + len(failed)),
        "rollout/replaced_frac": _mean(t.key.attempt > 0 for t in played),
        "rollout/tokens_per_s": sum(t.num_sampled for t in played + failed) / seconds,
    }
    for reason in EndReason:
        share = fmean(t.end_reason is reason for t in played + failed)
        if share:
            metrics[f"rollout/end/{reason}"] = share
    for tag, members in _by_tag(played).items():
        metrics[f"rollout/{tag}/success"] = _mean(t.success for t in members)
        metrics |= _info_metrics(tag, members)
    for tag, members in _by_tag(scored).items():
        metrics[f"rollout/{tag}/return"] = _mean(t.return_ for t in members)
    return finite_only(metrics)


def _info_metrics(tag: str, members: Sequence[Trajectory]) -> dict[str, float | None]:
    """What the environment itself says: the share of effective actions, and the mean of each number of its info at the end."""
    infos = [info for t in members if (info := next((turn.info for turn in reversed(t.turns) if turn.info), None)) is not None]
    names = dict.fromkeys(name for info in infos for name in info if name not in ("success", "effective"))
    num_effective = sum(turn.info.get("effective", 0.0) for t in members for turn in t.turns)
    num_actions = sum(t.num_actions for t in members)
    return {
        f"rollout/{tag}/effective_frac": num_effective / num_actions if infos and num_actions else None,
        **{f"rollout/{tag}/info/{name}": _mean(info[name] for info in infos if name in info) for name in names},
    }


def _by_tag(trajectories: Iterable[Trajectory]) -> dict[str, list[Trajectory]]:
    tags: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        tags.setdefault(trajectory.key.environment, []).append(trajectory)
    return tags


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None
