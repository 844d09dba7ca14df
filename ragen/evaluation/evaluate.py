"""Held-out evaluation: the agent loop of training, other seeds, another temperature, and no update."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ragen.credit.rewards import RewardsConfig
from ragen.engines.base import Engine
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.episodes import play_episodes
from ragen.evaluation.journal import Journal
from ragen.evaluation.measure import summarise
from ragen.evaluation.results import VALIDATION, EvaluationResult
from ragen.models.text_chat import TextChat
from ragen.rollout.collect import EngineOf, Progress
from ragen.rollout.config import RolloutConfig
from ragen.rollout.environment_config import EnvironmentConfig

if TYPE_CHECKING:
    from ragen.models.chat import ChatTemplate

_NOT_OF_THE_TASK = ("num_groups", "runs_in", "num_workers", "step_timeout_s", "max_seconds")


async def evaluate(
    engine: Engine | EngineOf,
    template: ChatTemplate | TextChat,
    environments: Mapping[str, EnvironmentConfig],
    evaluation: EvaluationConfig,
    rollout: RolloutConfig,
    *,
    model: str,
    step: int,
    kind: str = VALIDATION,
    rewards: RewardsConfig | None = None,
    concurrency: int | None = None,
    journal: Journal | None = None,
    on_progress: Progress | None = None,
) -> EvaluationResult:
    """Play every environment tag from `evaluation.num_episodes` held-out seeds, `samples_per_seed` times each, and measure it.

    Success and return are the environment's own, whatever a run trains on; `rewards` of one's own are measured beside them.
    What is played, at most `concurrency` episodes at the same time, and kept in `journal`, is `play_episodes`' to say.
    Raises TrainingError if broken infrastructure takes more than `rollout.max_failed_frac` of the episodes, or all of them.
    """
    started = time.monotonic()
    groups = await play_episodes(
        engine,
        template,
        environments,
        evaluation,
        rollout,
        step=step,
        concurrency=concurrency,
        journal=journal,
        on_progress=on_progress,
    )
    return summarise(
        groups,
        model=model,
        step=step,
        kind=kind,
        seconds=time.monotonic() - started,
        settings=settings_of(environments, evaluation, rollout),
        rewards=rewards or RewardsConfig(),
    )


def settings_of(
    environments: Mapping[str, EnvironmentConfig], evaluation: EvaluationConfig, rollout: RolloutConfig
) -> dict[str, Any]:
    """What a score depends on beside the policy, so that two scores can be told to be comparable."""
    return {
        "num_episodes": evaluation.num_episodes,
        "samples_per_seed": evaluation.samples_per_seed,
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
