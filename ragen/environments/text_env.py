"""The contract of every environment: Gymnasium's API with text in and text out.

An environment knows nothing of tokens, models or event loops. Its randomness comes from two streams and nowhere else:
`self.np_random`, seeded by the *task seed*, decides the initial state; `self.dynamics_random`, seeded by the *dynamics seed*,
decides what chance does afterwards. Members of a group share the first and differ in the second, so they read the same prompt.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from ragen.environments.spaces import AnyText, NamedActions, resolve
from ragen.errors import near_match

T = TypeVar("T")
StepAnswer = tuple[str, float, bool, bool, dict[str, Any]]  # observation, reward, terminated, truncated, info


def option(default: T, doc: str) -> T:
    """A field of an environment's Config, with the phrase that `ragen envs NAME` prints beside it."""
    value: T = field(default=default, metadata={"doc": doc})
    return value


@dataclass(kw_only=True)
class TextEnvConfig:
    """Base of an environment's options: fields of type bool, int, float, str, or one of these `| None`."""

    def check(self) -> None:
        """Raise ConfigError("field=value: what is allowed") for a value out of range or an impossible combination."""


class TextEnv(gymnasium.Env[str, str]):
    """Base of every environment. A subclass sets `Config`, fills `_begin` and `_play`, and may add `close` and `oracle_action`.

    `instruction` (valid after reset) says everything an agent must know but the format of its reply. `action_names` (valid after
    reset, fixed within the episode) lists the actions; None means that any text is one. `info` of every step holds at least
    "success" (bool: solved, as things stand) and "effective" (bool: the action changed something); its numbers become metrics.
    """

    Config: ClassVar[type[TextEnvConfig]] = TextEnvConfig
    config: TextEnvConfig
    instruction: str
    action_names: tuple[str, ...] | None = None
    dynamics_random: np.random.Generator

    def __init__(self, config: TextEnvConfig | None = None) -> None:
        self.config = self.Config() if config is None else config
        self.config.check()
        self.instruction = ""
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self.dynamics_random = np.random.default_rng()
        self._in_episode = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode: `seed` is the task seed, options={"dynamics_seed": int} the dynamics seed.

        Without a dynamics seed it follows from `seed`; without either, both streams go on where they stand.
        Raises ValueError for any other option.
        """
        options = options or {}
        if unknown := set(options) - {"dynamics_seed"}:
            raise ValueError(f"reset options {sorted(unknown)} are unknown; there is only 'dynamics_seed'")
        self._in_episode = False  # a reset that fails leaves nothing to step
        super().reset(seed=seed)
        dynamics_seed = options.get("dynamics_seed", seed)
        if dynamics_seed is not None:
            # The spawn key keeps this stream apart from that of np_random, even where both seeds are the same number.
            self.dynamics_random = np.random.default_rng(np.random.SeedSequence(dynamics_seed, spawn_key=(1,)))
        observation = self._begin()
        self.action_space = AnyText() if self.action_names is None else NamedActions(self.action_names)
        self._in_episode = True
        return observation, {}

    def step(self, action: str) -> StepAnswer:
        """Play one action. Raises ResetNeeded outside an episode, ValueError for an action the environment does not know."""
        if not self._in_episode:
            raise ResetNeeded(f"{type(self).__name__}.step: the episode has ended or was never begun; call reset first")
        known = resolve(action, self.action_names)
        if known is None:
            names = self.action_names or ()
            raise ValueError(f"action {action!r} is unknown{near_match(action, names)} (actions: {', '.join(names)})")
        answer = self._play(known)
        self._in_episode = not (answer[2] or answer[3])
        return answer

    def close(self) -> None:
        """Let go of what the environment holds. May be called at any time and more than once."""
        self._in_episode = False

    def oracle_action(self) -> str | None:
        """The action of a best policy that sees everything but future chance; None where no oracle exists."""
        return None

    @abstractmethod
    def _begin(self) -> str:
        """Draw an initial state from `np_random`, set `instruction` and `action_names`, answer the first observation."""

    @abstractmethod
    def _play(self, action: str) -> StepAnswer:
        """Play a known action, in the environment's own spelling."""
