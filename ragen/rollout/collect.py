"""All trajectories of a step at once: one coroutine each over one engine, gathered into groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ragen.engines.base import Engine
from ragen.errors import TrainingError
from ragen.models.chat import ChatTemplate
from ragen.records import Group, Sampling, Trajectory
from ragen.rollout.agent import Limits, run_trajectory
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.state_manager import EnvHandle

Progress = Callable[[int, int, int], None]  # trajectories done, trajectories in all, tokens sampled in those that are done

logger = logging.getLogger(__name__)


def context_factory(template: ChatTemplate, config: RolloutConfig) -> Callable[[EnvHandle], ContextManager]:
    """How training and evaluation make the context manager of an episode."""

    def make_context(handle: EnvHandle) -> ContextManager:
        return ContextManager(
            template,
            config.context,
            handle.config,
            lambda: handle.action_names,  # known once the episode has been reset
            config.format_penalty,
            reserve_tokens=config.sampling.max_new_tokens,
        )

    return make_context


async def collect(
    handles: Sequence[Sequence[EnvHandle]],
    make_context: Callable[[EnvHandle], ContextManager],
    engine: Engine,
    sampling: Sampling,
    config: RolloutConfig,
    on_progress: Progress | None = None,
) -> list[Group]:
    """Play every handle to its end; returns one Group per inner sequence, members in the order given.

    Coroutines start in the order of the handles, so what an engine sees does not depend on timing. Infrastructure failures are
    put aside in `Group.failed`; if they are more than `config.max_failed_frac` of the step, TrainingError names the first. Any
    other exception cancels the rest and passes through. Every handle is closed in every exit.
    """
    total = sum(len(members) for members in handles)
    num_done = num_sampled = 0

    async def play(handle: EnvHandle) -> Trajectory:
        nonlocal num_done, num_sampled
        limits = Limits(max_turns=handle.config.max_turns, max_invalid_turns=config.max_invalid_turns)
        trajectory = await run_trajectory(handle, make_context(handle), engine, sampling, limits)
        num_done += 1
        num_sampled += trajectory.num_sampled
        if on_progress is not None:
            on_progress(num_done, total, num_sampled)
        return trajectory

    try:
        async with asyncio.TaskGroup() as tasks:
            running = [[tasks.create_task(play(handle)) for handle in members] for members in handles]
    except BaseExceptionGroup as errors:
        # The first is the cause; what others may have raised while they were cancelled is its echo.
        raise errors.exceptions[0] from None
    finally:
        for members in handles:
            for handle in members:
                handle.close()  # also one whose trajectory could not even begin

    groups = [_group([task.result() for task in members]) for members in running]
    _check_failures(groups, total, config.max_failed_frac)
    return groups


def _group(trajectories: Sequence[Trajectory]) -> Group:
    return Group(
        trajectories=tuple(t for t in trajectories if not t.end_reason.is_infrastructure),
        failed=tuple(t for t in trajectories if t.end_reason.is_infrastructure),
    )


def _check_failures(groups: Sequence[Group], total: int, max_failed_frac: float) -> None:
    failed = [trajectory for group in groups for trajectory in group.failed]
    if not failed:
        return
    lost = f"{len(failed)} of {total} trajectories failed"
    if len(failed) > max_failed_frac * total:
        raise TrainingError(f"{lost}, more than rollout.max_failed_frac={max_failed_frac} allows; the first: {failed[0].error}")
    logger.warning("%s and are left out; the first: %s", lost, failed[0].error)
