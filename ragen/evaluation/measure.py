"""From finished episodes to figures: what an evaluation measured, tag by tag."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragen.credit.rewards import RewardsConfig, score
from ragen.errors import TrainingError
from ragen.evaluation.pass_at_k import pass_curves
from ragen.evaluation.results import Episodes, EvaluationResult, TagResult
from ragen.evaluation.statistics import mean_interval, ratio_interval, share_interval
from ragen.records import Group, Trajectory, Verdict

logger = logging.getLogger(__name__)


def summarise(
    groups: Sequence[Group],
    *,
    model: str,
    step: int,
    kind: str,
    seconds: float,
    settings: Mapping[str, Any],
    rewards: RewardsConfig,
) -> EvaluationResult:
    """Measure finished episodes, tag by tag; a tag without a single scored episode is left out with a warning.

    Raises TrainingError if no tag has one.
    """
    scored, failed = _by_tag(group.trajectories for group in groups), _by_tag(group.failed for group in groups)
    judged = _by_tag(group.trajectories for group in score(groups, rewards))
    lost = [tag for tag in failed if tag not in scored]
    for tag in lost if scored else ():
        logger.warning("evaluation of %s: no episode was scored, it is left out: %s", tag, failed[tag][0].error)
    tags = {
        tag: dataclasses.replace(
            measure(tag, scored.get(tag, []), failed.get(tag, [])), reward_parts=_own_rewards(judged.get(tag, []), rewards)
        )
        for tag in scored or failed
    }
    successes = [success for tag in tags.values() for success in tag.episodes.successes]
    clusters = [(name, seed) for name, tag in tags.items() for seed in tag.episodes.seeds]
    return EvaluationResult(
        model=model,
        step=step,
        kind=kind,
        success=share_interval(successes, clusters),
        seconds=seconds,
        settings=settings,
        environments=tags,
        groups=tuple(groups),
    )


def measure(tag: str, scored: Sequence[Trajectory], failed: Sequence[Trajectory]) -> TagResult:
    """Measure the episodes of one tag. Raises TrainingError if none was scored."""
    if not scored:
        cause = failed[0].error if failed else "none was played"
        raise TrainingError(f"evaluation of {tag}: no episode was scored ({cause})")
    episodes = _columns(scored)
    seeds = episodes.seeds
    pass_at, pass_all = pass_curves(episodes.successes, seeds)
    return TagResult(
        num_episodes=len(episodes),
        success=share_interval(episodes.successes, seeds),
        return_=mean_interval(episodes.returns, seeds),
        pass_at=pass_at,
        pass_all=pass_all,
        format_validity=ratio_interval(episodes.valid_turns, episodes.turns, seeds),
        num_turns=mean_interval(episodes.turns, seeds),
        num_actions=mean_interval(episodes.actions, seeds),
        sampled_tokens=mean_interval(episodes.sampled_tokens, seeds),
        prompt_tokens=mean_interval(episodes.prompt_tokens, seeds) if all(episodes.prompt_tokens) else None,
        end_reasons=_counts(scored),
        failures=_counts(failed),
        episodes=episodes,
    )


def _columns(scored: Sequence[Trajectory]) -> Episodes:
    return Episodes(
        seeds=tuple(trajectory.key.task_seed for trajectory in scored),
        successes=tuple(trajectory.success for trajectory in scored),
        returns=tuple(trajectory.return_ for trajectory in scored),
        turns=tuple(len(trajectory.turns) for trajectory in scored),
        valid_turns=tuple(sum(turn.reply.verdict is Verdict.VALID for turn in t.turns) for t in scored),
        actions=tuple(trajectory.num_actions for trajectory in scored),
        sampled_tokens=tuple(trajectory.num_sampled for trajectory in scored),
        # A turn's prompt is all that stands before its reply in its segment; the prompt of a summary likewise.
        prompt_tokens=tuple(sum(turn.start for turn in t.turns) + sum(each.start for each in t.summaries) for t in scored),
    )


def _own_rewards(judged: Sequence[Trajectory], rewards: RewardsConfig) -> dict[str, float]:
    """The mean of each reward function, weighted, over the episodes that it judged."""
    means = {}
    for name in rewards.functions:
        sums = [sum(turn.parts[name] for turn in t.turns) for t in judged if all(name in turn.parts for turn in t.turns)]
        if sums:
            means[name] = math.fsum(sums) / len(sums)
    return means


def _by_tag(parts: Iterable[Sequence[Trajectory]]) -> dict[str, list[Trajectory]]:
    tags: dict[str, list[Trajectory]] = {}
    for part in parts:
        for trajectory in part:
            tags.setdefault(trajectory.key.environment, []).append(trajectory)
    return tags


def _counts(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    counts = Counter(trajectory.end_reason.value for trajectory in trajectories)
    return dict(sorted(counts.items()))
