"""What the state manager costs: its time per step beside that of the bare environment, with many episodes alive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from ragen.environments.text_env import StepAnswer, TextEnv
from ragen.records import Split
from ragen.rollout.env_handle import EnvHandle
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.state_manager import EnvStateManager

ACTION = "on"
_NAMES = (ACTION, "off", "left", "right", "up", "down")


class Idle(TextEnv):
    """Does as little as an environment can: what is left of a step is the manager's own."""

    action_names = _NAMES

    def _begin(self) -> str:
        self.instruction = "Nothing happens here."
        return "nothing"

    def _play(self, action: str) -> StepAnswer:
        return "nothing", 0.0, False, False, {"success": False, "effective": False}


@dataclass(frozen=True, kw_only=True)
class ManagerOverhead:
    """Microseconds per episode. Steps are the fastest of the repeats, since other load on the machine only adds to them."""

    num_live: int  # episodes alive at once
    step_us: float  # EnvHandle.step with one action
    bare_step_us: float  # env.step with the same action
    begin_us: float  # EnvStateManager.open and EnvHandle.reset, with the making of the environment
    close_us: float

    @property
    def overhead_us(self) -> float:
        """The manager's own share of a step."""
        return self.step_us - self.bare_step_us


def manager_overhead(num_live: int, *, runs_in: str = "inline", repeats: int = 10) -> ManagerOverhead:
    """Hold `num_live` (>= 1) episodes of an idle environment at once and step them all, one after the other, `repeats` times."""
    config = EnvironmentConfig(
        name=f"{Idle.__module__}:{Idle.__qualname__}",
        num_groups=num_live,
        max_turns=repeats,
        max_actions=repeats,
        runs_in=runs_in,
    )
    bare = Idle()
    bare.reset(seed=0)
    bare_s = min(_seconds(lambda: [bare.step(ACTION) for _ in range(num_live)]) for _ in range(repeats))
    with EnvStateManager({"idle": config}, group_size=1, run_seed=0, split=Split.TRAIN) as manager, asyncio.Runner() as loop:
        handles: list[EnvHandle] = []
        begin_s = _seconds(lambda: handles.extend(loop.run(_begin(manager))))
        step_s = min(_seconds(lambda: loop.run(_step(handles))) for _ in range(repeats))
        close_s = _seconds(manager.close)
    step_us, bare_us, begin_us, close_us = (seconds / num_live * 1e6 for seconds in (step_s, bare_s, begin_s, close_s))
    return ManagerOverhead(num_live=num_live, step_us=step_us, bare_step_us=bare_us, begin_us=begin_us, close_us=close_us)


async def _begin(manager: EnvStateManager) -> list[EnvHandle]:
    handles = [handle for members in manager.open(0) for handle in members]
    for handle in handles:
        await handle.reset()
    return handles


async def _step(handles: list[EnvHandle]) -> None:
    for handle in handles:
        await handle.step((ACTION,))


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
