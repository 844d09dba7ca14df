"""The episodes of an evaluation: which there are, which a journal has already, and all of them as groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ragen.engines.base import Engine
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.journal import Journal, Place, place_of
from ragen.models.text_chat import TextChat
from ragen.records import Group, Sampling, Split, Trajectory
from ragen.rollout.collect import EngineOf, Progress, collect, context_factory
from ragen.rollout.config import RolloutConfig
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.state_manager import EnvStateManager

if TYPE_CHECKING:
    from ragen.models.chat import ChatTemplate


async def play_episodes(
    engine: Engine | EngineOf,
    template: ChatTemplate | TextChat,
    environments: Mapping[str, EnvironmentConfig],
    evaluation: EvaluationConfig,
    rollout: RolloutConfig,
    *,
    step: int,
    concurrency: int | None = None,
    journal: Journal | None = None,
    on_progress: Progress | None = None,
) -> list[Group]:
    """Play every held-out episode that `journal` does not have yet; one Group for every task seed, tag after tag.

    The seeds depend on the episode's number alone: every policy, run and set of tags is measured on the same episodes. Each
    episode is in the journal as soon as it has ended.
    Raises TrainingError if broken infrastructure takes more than `rollout.max_failed_frac` of the episodes.
    """
    finished = journal.finished if journal else {}
    num_finished, num_before = len(finished), sum(tried[-1].num_sampled for tried in finished.values())

    def show(num_done: int, total: int, num_sampled: int) -> None:
        if on_progress is not None:
            on_progress(num_finished + num_done, num_finished + total, num_before + num_sampled)

    with ExitStack() as stack:
        handles = []
        for tag, environment in environments.items():
            # A manager per tag, so that the seeds of one do not depend on which others there are.
            one = {tag: dataclasses.replace(environment, num_groups=evaluation.num_episodes)}
            manager = stack.enter_context(
                EnvStateManager(one, group_size=evaluation.samples_per_seed, run_seed=0, split=Split.VALIDATION)
            )
            handles.extend(manager.open(step))
        places = [[place_of(handle.key) for handle in members] for members in handles]
        waiting = [[handle for handle in members if place_of(handle.key) not in finished] for members in handles]
        played = await collect(
            [members for members in waiting if members],
            context_factory(template, rollout),
            engine,
            sampling_of(evaluation, rollout),
            rollout,
            show,
            num_step=sum(map(len, handles)),
            concurrency=concurrency,
            on_played=journal.write if journal else None,
        )
    if journal is None:
        return played
    return _groups(places, journal.attempts)


def sampling_of(evaluation: EvaluationConfig, rollout: RolloutConfig) -> Sampling:
    """How replies are sampled. The random streams follow from the episodes' own seeds, so equal weights give equal replies."""
    return Sampling(
        max_new_tokens=rollout.sampling.max_new_tokens,
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        top_k=evaluation.top_k,
    )


def _groups(places: Sequence[Sequence[Place]], attempts: Mapping[Place, Sequence[Trajectory]]) -> list[Group]:
    groups = []
    for members in places:
        tried = [trajectory for place in members for trajectory in attempts[place]]
        groups.append(
            Group(
                trajectories=tuple(t for t in tried if not t.end_reason.is_infrastructure),
                failed=tuple(t for t in tried if t.end_reason.is_infrastructure),
            )
        )
    return groups
