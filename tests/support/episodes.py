"""Short ways to open, begin and play episodes of the state manager; an environment whose first observation tells its seed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from ragen.environments.registry import register
from ragen.environments.text_env import StepAnswer, TextEnv
from ragen.records import Observation, Split
from ragen.rollout.curriculum import CurriculumConfig
from ragen.rollout.state_manager import EnvHandle, EnvironmentConfig, EnvStateManager
from tests.support import corridor as _registered  # noqa: F401 - registers the corridor


class Ticket(TextEnv):
    """Shows a number drawn from the task seed, different for every seed; any text is an action, and nothing ever ends."""

    def _begin(self) -> str:
        self.instruction = "Say anything."
        self.number = int(self.np_random.integers(2**62))
        return f"ticket {self.number}"

    def _play(self, action: str) -> StepAnswer:
        return f"ticket {self.number}", 0.0, False, False, {"success": False, "effective": True}


register("ticket", Ticket, "a number per task seed (for tests)")

_LIMITS = {field.name for field in dataclasses.fields(EnvironmentConfig)} - {"name", "options"}


def corridor(**settings: Any) -> EnvironmentConfig:
    """One group of the corridor; `settings` are limits of EnvironmentConfig or options of the corridor itself."""
    limits = {key: value for key, value in settings.items() if key in _LIMITS}
    options = {key: value for key, value in settings.items() if key not in _LIMITS}
    return EnvironmentConfig(name="corridor", options=options, **({"num_groups": 1} | limits))


def manager(
    *,
    group_size: int = 1,
    run_seed: int = 0,
    split: Split = Split.TRAIN,
    curriculum: CurriculumConfig | None = None,
    **environments: EnvironmentConfig,
) -> EnvStateManager:
    """A state manager over the environments given by tag."""
    return EnvStateManager(environments, group_size=group_size, run_seed=run_seed, split=split, curriculum=curriculum)


def begin(episodes: EnvStateManager, step: int = 0) -> list[EnvHandle]:
    """Open a step and reset every member; the handles, group after group."""
    handles = [handle for members in episodes.open(step) for handle in members]
    for handle in handles:
        asyncio.run(handle.reset())
    return handles


def play(config: EnvironmentConfig, *turns: Sequence[str]) -> list[Observation]:
    """Play the turns in one episode: the observation of the reset, then one per turn."""

    async def episode(handle: EnvHandle) -> list[Observation]:
        return [await handle.reset(), *[await handle.step(actions) for actions in turns]]

    with manager(corridor=config) as episodes:
        return asyncio.run(episode(episodes.open(0)[0][0]))
