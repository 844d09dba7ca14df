"""Held-out evaluation: the agent loop of training, other seeds, another temperature, and no update."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ragen.credit.rewards import RewardsConfig, score
from ragen.engines.base import Engine
from ragen.errors import TrainingError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.results import VALIDATION, EvaluationResult, TagResult
from ragen.evaluation.statistics import clustered_interval, wilson_interval
from ragen.models.chat import ChatTemplate
from ragen.records import Group, Sampling, Split, Trajectory, Verdict
from ragen.rollout.collect import Progress, collect, context_factory
from ragen.rollout.config import RolloutConfig
from ragen.rollout.state_manager import EnvironmentConfig, EnvStateManager

logger = logging.getLogger(__name__)

_NOT_OF_THE_TASK = ("num_groups", "runs_in", "num_workers", "step_timeout_s", "max_seconds")


async def evaluate(
    engine: Engine,
    template: ChatTemplate,
    environments: Mapping[str, EnvironmentConfig],
    evaluation: EvaluationConfig,
    rollout: RolloutConfig,
    *,
    model: str,
    step: int,
    kind: str = VALIDATION,
    rewards: RewardsConfig | None = None,
    on_progress: Progress | None = None,
) -> EvaluationResult:
    """Play `evaluation.num_episodes` episodes of every environment tag, each from its own held-out seed, and measure them.

    Success and return are the environment's own, whatever a run trains on; `rewards` of one's own are measured beside them.

    The seeds depend on the episode's number alone: every policy, run and set of tags is measured on the same episodes.
    Raises TrainingError if broken infrastructure takes more than `rollout.max_failed_frac` of the episodes, or all of them.
    """
    started = time.monotonic()
    # The random streams follow from the episodes' own seeds, so equal weights give equal replies.
    sampling = Sampling(
        max_new_tokens=rollout.sampling.max_new_tokens,
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        top_k=evaluation.top_k,
    )

    with ExitStack() as stack:
        handles = []
        for tag, environment in environments.items():
            # A manager per tag, so that the seeds of one do not depend on which others there are.
            one = {tag: dataclasses.replace(environment, num_groups=evaluation.num_episodes)}
            manager = stack.enter_context(EnvStateManager(one, group_size=1, run_seed=0, split=Split.VALIDATION))
            handles.extend(manager.open(step))
        groups = await collect(handles, context_factory(template, rollout), engine, sampling, rollout, on_progress)
    return summarise(
        groups,
        model=model,
        step=step,
        kind=kind,
        seconds=time.monotonic() - started,
        settings=_settings(environments, evaluation, rollout),
        rewards=rewards or RewardsConfig(),
    )


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
    successes = [tag.successes for tag in tags.values()]
    return EvaluationResult(
        model=model,
        step=step,
        kind=kind,
        success=wilson_interval(sum(map(sum, successes)), sum(map(len, successes))),
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
    seeds = tuple(trajectory.key.task_seed for trajectory in scored)
    successes = tuple(trajectory.success for trajectory in scored)
    returns = tuple(trajectory.return_ for trajectory in scored)
    turns = [turn for trajectory in scored for turn in trajectory.turns]
    return TagResult(
        num_episodes=len(scored),
        success=wilson_interval(sum(successes), len(successes)),
        return_=clustered_interval(returns, seeds),
        format_validity=_mean(turn.reply.verdict is Verdict.VALID for turn in turns),
        num_turns=len(turns) / len(scored),
        num_actions=_mean(trajectory.num_actions for trajectory in scored),
        sampled_tokens=_mean(trajectory.num_sampled for trajectory in scored),
        end_reasons=_counts(scored),
        failures=_counts(failed),
        seeds=seeds,
        successes=successes,
        returns=returns,
    )


def _own_rewards(judged: Sequence[Trajectory], rewards: RewardsConfig) -> dict[str, float]:
    """The mean of each reward function, weighted, over the episodes that it judged."""
    means = {}
    for name in rewards.functions:
        sums = [sum(turn.parts[name] for turn in t.turns) for t in judged if all(name in turn.parts for turn in t.turns)]
        if sums:
            means[name] = _mean(sums)
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


def _mean(values: Iterable[float]) -> float:
    """0 for nothing: of no reply, no share could be read."""
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0


def _settings(
    environments: Mapping[str, EnvironmentConfig], evaluation: EvaluationConfig, rollout: RolloutConfig
) -> dict[str, Any]:
    """What a score depends on beside the policy, so that two scores can be told to be comparable."""
    return {
        "num_episodes": evaluation.num_episodes,
        "temperature": evaluation.temperature,
        "top_p": evaluation.top_p,
        "top_k": evaluation.top_k,
        "max_new_tokens": rollout.sampling.max_new_tokens,
        "format_penalty": rollout.format_penalty,
        "max_invalid_turns": rollout.max_invalid_turns,
        "context": dataclasses.asdict(rollout.context),
        "environments": {tag: _task(environment) for tag, environment in environments.items()},
    }


def _task(environment: EnvironmentConfig) -> dict[str, Any]:
    """What an episode depends on: not how many there are, nor where and how patiently they are run."""
    return {key: value for key, value in dataclasses.asdict(environment).items() if key not in _NOT_OF_THE_TASK}
