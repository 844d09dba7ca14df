"""Where environments run. A host holds those of one tag, each in a seat of its own; this one runs them in the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ragen.errors import EnvironmentFailure
from ragen.rollout.answers import Answer
from ragen.rollout.deadline import EnvironmentTimeout, Stopwatch
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.episode import RAISED, Beginning, Episode, reason

T = TypeVar("T")


class Seat(Protocol):
    """The place of one episode. One call at a time; each raises EnvironmentFailure, or EnvironmentTimeout after `timeout_s`."""

    @property
    def seconds(self) -> float:
        """Time that the environment has taken so far, without waiting for its turn."""

    async def begin(self, task_seed: int, dynamics_seed: int, timeout_s: float) -> Beginning:
        """Make the environment and reset it."""

    async def play(self, action: str, timeout_s: float) -> Answer:
        """Play one action that the environment knows."""

    def close(self, timeout_s: float, warn: Callable[[str], None]) -> None:
        """Let the environment go, in any state and without waiting for a worker; `warn` hears what goes wrong with it."""


class Host(Protocol):
    """Owns what its environments need to run."""

    @property
    def num_lost(self) -> int:
        """Workers that hung or died, and were replaced."""

    def seat(self) -> Seat:
        """A place for one more episode."""

    def close(self) -> None:
        """Let go of every environment and worker that is left. A seat taken afterwards starts workers anew."""


class InlineHost:
    """Environments in the event loop: no thread, no waiting, and answers in the order in which they are asked for."""

    num_lost = 0

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config

    def seat(self) -> InlineSeat:
        return InlineSeat(Episode(self._config.name, self._config.options))

    def close(self) -> None:
        """There is nothing but the episodes, which their seats close."""


class InlineSeat:
    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._watch = Stopwatch()

    @property
    def seconds(self) -> float:
        return self._watch.seconds

    async def begin(self, task_seed: int, dynamics_seed: int, timeout_s: float) -> Beginning:
        return self._call(timeout_s, self._episode.begin, task_seed, dynamics_seed)

    async def play(self, action: str, timeout_s: float) -> Answer:
        return self._call(timeout_s, self._episode.play, action)

    def close(self, timeout_s: float, warn: Callable[[str], None]) -> None:
        try:
            self._call(timeout_s, self._episode.close)
        except EnvironmentFailure as failure:
            warn(str(failure))

    def _call(self, timeout_s: float, function: Callable[..., T], *args: Any) -> T:
        try:
            return self._watch.call(timeout_s, function, *args)
        except EnvironmentTimeout:
            raise
        except RAISED as cause:
            raise EnvironmentFailure(reason(cause)) from cause
