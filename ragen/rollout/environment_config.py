"""One environment of a run: which, how many groups a step plays of it, what an episode may use, and where it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ragen.environments import registry
from ragen.errors import ConfigError, near_match

INLINE, THREAD, PROCESS = "inline", "thread", "process"
PLACES = (INLINE, THREAD, PROCESS)


@dataclass(kw_only=True)
class EnvironmentConfig:
    """One environment of a run, under its tag `environments.<tag>`."""

    name: str = ""  # a registered name or "module:Class"
    num_groups: int = 8  # initial states per step
    max_turns: int = 5  # model replies per trajectory; announced in the prompt
    max_actions: int = 10  # actions executed per trajectory; announced in the prompt
    max_actions_per_turn: int = 5  # actions that one reply may hold
    max_seconds: float | None = None  # of a trajectory spent in the environment; one that is slower is infrastructure that failed
    step_timeout_s: float = 30.0  # deadline of each reset, step and close; missing it is infrastructure that failed, too
    runs_in: str = INLINE  # inline: between the engine's decode steps; thread, process: beside them, for slow or risky code
    num_workers: int | None = None  # threads or processes; null: 16 threads, or a process per core; inline has none
    options: dict[str, Any] = field(default_factory=dict)  # of the environment itself, see `ragen envs NAME`

    def check(self, tag: str = "<tag>") -> None:
        """Raise ConfigError, with the key below `environments.<tag>`, for a value out of range or an option that does not fit."""
        where = f"environments.{tag}"
        if not self.name:
            raise ConfigError(f"{where}.name='': must name an environment (known: {', '.join(registry.names())})")
        for key in ("num_groups", "max_turns", "max_actions", "max_actions_per_turn"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{where}.{key}={getattr(self, key)}: must be at least 1")
        if not self.step_timeout_s > 0:
            raise ConfigError(f"{where}.step_timeout_s={self.step_timeout_s}: must be above 0")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ConfigError(f"{where}.max_seconds={self.max_seconds}: must be above 0, or null for no limit")
        self._check_place(where)
        with _prefixed(f"{where}.name"):
            registry.load(self.name)
        registry.configure(self.name, self.options, where=f"{where}.options")
        if self.runs_in == PROCESS:
            with _prefixed(f"{where}.runs_in={PROCESS}"):
                registry.portable_name(self.name)

    def _check_place(self, where: str) -> None:
        if self.runs_in not in PLACES:
            allowed = f"must be one of {', '.join(PLACES)}{near_match(self.runs_in, PLACES)}"
            raise ConfigError(f"{where}.runs_in={self.runs_in!r}: {allowed}")
        if self.num_workers is None:
            return
        if self.num_workers < 1:
            raise ConfigError(f"{where}.num_workers={self.num_workers}: must be at least 1, or null")
        if self.runs_in == INLINE:
            raise ConfigError(f"{where}.num_workers={self.num_workers}: has no effect with runs_in=inline; leave it out")


@contextmanager
def _prefixed(where: str) -> Iterator[None]:
    """Put the key in front of a ConfigError that cannot know it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
