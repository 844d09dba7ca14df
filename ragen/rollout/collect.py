"""All trajectories of a step at once: one coroutine each over one engine, gathered into groups.

A trajectory whose infrastructure failed is played anew, from the same initial state, while the step can afford it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from typing import TYPE_CHECKING

from ragen.engines.base import Engine
from ragen.models.text_chat import TextChat
from ragen.records import Group, Sampling, Trajectory
from ragen.rollout.agent import Limits, run_trajectory
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.env_handle import EnvHandle
from ragen.rollout.faults import Faults

if TYPE_CHECKING:
    from ragen.models.chat import ChatTemplate

EngineOf = Callable[[EnvHandle, ContextManager], Engine]  # for policies that look at the episode they play
Played = Callable[[Sequence[Trajectory]], None]  # takes the attempts at one member, when the last of them has ended
Progress = Callable[[int, int, int], None]  # trajectories done, trajectories in all, tokens sampled in those that are done

logger = logging.getLogger(__name__)


def context_factory(template: ChatTemplate | TextChat, config: RolloutConfig) -> Callable[[EnvHandle], ContextManager]:
    """How training and evaluation make the context manager of an episode. Says aloud if a full history cannot be appended to."""

    def make_context(handle: EnvHandle) -> ContextManager:
        is_full = handle.config.max_turns > 1 and config.context.mode == "full"
        if not isinstance(template, TextChat) and is_full and not template.appends(config.context.think):
            _say_once(_split_notice(template, config.context.think))
        return ContextManager(
            template,
            config.context,
            handle.config,
            lambda: handle.action_names,  # known once the episode has been reset
            config.format_penalty,
            reserve_tokens=config.sampling.max_new_tokens,
            max_invalid_turns=config.max_invalid_turns,
        )

    return make_context


async def collect(
    handles: Sequence[Sequence[EnvHandle]],
    make_context: Callable[[EnvHandle], ContextManager],
    engine: Engine | EngineOf,
    sampling: Sampling,
    config: RolloutConfig,
    on_progress: Progress | None = None,
    num_step: int | None = None,
    *,
    concurrency: int | None = None,
    on_played: Played | None = None,
) -> list[Group]:
    """Play every handle to its end; returns one Group per inner sequence, members in the order given.

    Coroutines start in the order of the handles, so what an engine sees does not depend on timing. Infrastructure failures are
    put aside in `Group.failed` and replaced as rollout/faults.py says; if they are too many, TrainingError names the first. Any
    other exception cancels the rest and passes through. Every handle is closed in every exit. `num_step` is how many
    trajectories the step has, if these are not all of it: what it stands of failures is a share of that. At most `concurrency`
    trajectories are played at the same time, those that come first being ended first; None plays all of them at once.
    """
    total = sum(len(members) for members in handles)
    faults = Faults(total, config, num_step)
    num_done = num_sampled = 0
    room: AbstractAsyncContextManager[None] = asyncio.Semaphore(concurrency) if concurrency else nullcontext()

    async def attempt(handle: EnvHandle) -> Trajectory:
        limits = Limits(max_turns=handle.config.max_turns, max_invalid_turns=config.max_invalid_turns)
        with closing(handle):  # also one whose trajectory cannot even begin
            context = make_context(handle)
            own = engine(handle, context) if callable(engine) else engine
            return await run_trajectory(handle, context, own, sampling, limits)

    async def play(handle: EnvHandle, group_size: int) -> list[Trajectory]:
        """The attempts at one member, the last of which stands unless it failed as well."""
        nonlocal num_done, num_sampled
        attempts: list[Trajectory] = []
        async with room:
            try:
                attempts.append(await attempt(handle))
                while attempts[-1].end_reason.is_infrastructure and faults.may_replace(attempts[-1], group_size):
                    handle = handle.replacement()
                    attempts.append(await attempt(handle))
            finally:  # also of the failure that was one too many
                if on_played is not None and attempts:
                    on_played(attempts)
        num_done += 1
        num_sampled += sum(trajectory.num_sampled for trajectory in attempts)
        if on_progress is not None:
            on_progress(num_done, total, num_sampled)
        return attempts

    try:
        async with asyncio.TaskGroup() as tasks:
            running = [[tasks.create_task(play(handle, len(members))) for handle in members] for members in handles]
    except BaseExceptionGroup as errors:
        # The first is the cause; what others may have raised while they were cancelled is its echo.
        raise errors.exceptions[0] from None
    finally:
        for members in handles:
            for handle in members:
                handle.close()  # also one whose coroutine never started

    groups = [_group([trajectory for task in members for trajectory in task.result()]) for members in running]
    if report := faults.report(sum(len(group.trajectories) for group in groups)):
        logger.warning("%s", report)
    return groups


@functools.cache
def _say_once(message: str) -> None:
    logger.warning("%s", message)


def _split_notice(template: ChatTemplate, thoughts: bool) -> str:
    """Why every turn is a training sample of its own, what that costs, and how to change it."""
    user = template.layout.user
    problem, otherwise = user.problem, user.problem_with_thoughts
    if thoughts:
        problem, otherwise = otherwise, problem
    (found,) = (finding for finding in template.findings if finding.topic == "several turns")
    _, _, option = found.consequence.partition("by appending with ")
    other = "" if otherwise else f"rollout.context.think={str(not thoughts).lower()}"
    ways_out = [way for way in (option and f"model.{option}", other, "another model") if way]
    return (
        f"{template.name}: the chat template {problem}: every turn is a training sample of its own with its whole prompt, not one"
        f" sample per trajectory. To append instead: {' or '.join(ways_out)}"
    )


def _group(trajectories: Sequence[Trajectory]) -> Group:
    return Group(
        trajectories=tuple(t for t in trajectories if not t.end_reason.is_infrastructure),
        failed=tuple(t for t in trajectories if t.end_reason.is_infrastructure),
    )
