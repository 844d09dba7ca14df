"""Any environment of Gymnasium's registry by its id, as the environment `gymnasium`. See docs/environments/gymnasium.md."""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import DeprecatedEnv, VersionNotFound
from gymnasium.wrappers import TimeLimit

from ragen.environments.adapters.outside import OutsideAdapter, OutsideEnv, ReadingConfig, check_readable
from ragen.environments.adapters.trial import try_out
from ragen.environments.text_env import StepAnswer, option
from ragen.errors import ConfigError, boundary, near_match

_probed: set[str] = set()  # options that made an environment once: making it may be slow


@dataclass(kw_only=True)
class GymnasiumConfig(ReadingConfig):
    id: str = option("FrozenLake-v1", "an id of Gymnasium's registry, or module:id, which imports the module first")
    kwargs: dict[str, Any] = option({}, "arguments for gymnasium.make, e.g. {is_slippery: false}")
    max_episode_steps: int | None = option(None, "steps until the episode is cut off; null: as registered")
    announce_limit: bool = option(False, "name that limit in the instruction; running out is then a failure, not a cut")

    def check(self) -> None:
        super().check()
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ConfigError(f"max_episode_steps={self.max_episode_steps}: must be at least 1, or null")
        find_spec(self.id)
        if repr(self) in _probed:
            return
        try_out(self._probe, f"id={self.id!r}: Gymnasium cannot make it")
        _probed.add(repr(self))

    def _probe(self) -> None:
        outside = make_outside(self)
        try:
            check_readable(outside, self)
            if self.announce_limit and step_limit(outside) is None:
                raise ConfigError(f"announce_limit=True: {self.id} has no step limit; set max_episode_steps")
        finally:
            outside.close()


class GymnasiumEnv(OutsideAdapter):
    """A registered Gymnasium environment with a discrete or text action space."""

    Config = GymnasiumConfig
    config: GymnasiumConfig

    def __init__(self, config: GymnasiumConfig | None = None, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)
        self.step_limit = step_limit(self.outside)  # the effective one; None: no limit of its own
        self._num_steps = 0

    def _make_outside(self) -> OutsideEnv:
        return make_outside(self.config)

    def _read_config(self) -> ReadingConfig:
        return self.config

    def _begin(self) -> str:
        self._num_steps = 0
        observation = super()._begin()
        if self.config.announce_limit:
            self.instruction += f"\nThe episode ends after {self.step_limit} actions."
        return observation

    def _play(self, action: str) -> StepAnswer:
        self._num_steps += 1
        observation, reward, terminated, truncated, info = super()._play(action)
        if self.config.announce_limit and truncated and self._num_steps == self.step_limit:
            terminated, truncated = True, False  # a limit that the agent knows is part of the task
        return observation, reward, terminated, truncated, info


def make_outside(config: GymnasiumConfig) -> OutsideEnv:
    """Raises ConfigError if Gymnasium cannot make it, or if a limit inside it is tighter than the one asked for."""
    spec = find_spec(config.id)
    kwargs = copy.deepcopy(config.kwargs)
    if config.observation != "values" and "render_mode" not in {*kwargs, *spec.kwargs} and _has_ansi(spec):
        kwargs["render_mode"] = "ansi"
    with boundary(ConfigError, f"id={config.id!r}: Gymnasium cannot make it"):
        # Gymnasium's own checker warns of what does not matter here; ours is `ragen envs check`.
        outside = gymnasium.make(spec, max_episode_steps=config.max_episode_steps, disable_env_checker=True, **kwargs)
    limit = step_limit(outside)
    if config.max_episode_steps is not None and limit is not None and limit < config.max_episode_steps:
        outside.close()
        raise ConfigError(
            f"max_episode_steps={config.max_episode_steps}: {config.id} itself ends episodes after {limit} steps; at most that"
        )
    return outside


def step_limit(outside: OutsideEnv) -> int | None:
    """The tightest of the time limits wrapped around an environment: one inside another ends the episode just the same."""
    limits = []
    while isinstance(outside, gymnasium.Wrapper):
        if isinstance(outside, TimeLimit):
            limits.append(int(outside._max_episode_steps))
        outside = outside.env
    return min(limits, default=None)


def find_spec(name: str) -> EnvSpec:
    """What Gymnasium's registry holds under an id, or under module:id once the module is imported. Raises ConfigError."""
    module, _, bare = name.rpartition(":")
    if module:
        with boundary(ConfigError, f"id={name!r}: {module} cannot be imported"):
            importlib.import_module(module)
    try:
        return gymnasium.spec(bare)
    except (DeprecatedEnv, VersionNotFound) as error:
        raise ConfigError(f"id={name!r}: {' '.join(str(error).split())}") from None
    except gymnasium.error.Error:
        raise ConfigError(f"id={name!r}: Gymnasium knows no such environment{near_match(bare, gymnasium.registry)}") from None


def _has_ansi(spec: EnvSpec) -> bool:
    """Whether the class says that it renders as text."""
    entry = spec.entry_point
    with boundary(ConfigError, f"id={spec.id!r} cannot be imported"):
        loaded: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    return "ansi" in ((getattr(loaded, "metadata", None) or {}).get("render_modes") or ())
