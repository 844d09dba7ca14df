"""The contract of every environment: Gymnasium's API with text in and text out.

An environment knows nothing of tokens, models or event loops. Its randomness comes from two streams and nowhere else:
`self.np_random`, seeded by the *task seed*, decides the initial state; `self.dynamics_random`, seeded by the *dynamics seed*,
decides what chance does afterwards. Members of a group share the first and differ in the second, so they read the same prompt.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from ragen.environments.spaces import AnyText, NamedActions, normalise
from ragen.errors import near_match

T = TypeVar("T")
StepAnswer = tuple[str, float, bool, bool, dict[str, Any]]  # observation, reward, terminated, truncated, info


def option(default: T, doc: str) -> T:
    """A field of an environment's Config, with the phrase that `ragen envs NAME` prints beside it. A list or dict is copied."""
    metadata = {"doc": doc}
    if isinstance(default, (list, dict)):
        copied: T = field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
        return copied
    value: T = field(default=default, metadata=metadata)
    return value


@dataclass(kw_only=True)
class TextEnvConfig:
    """Base of an environment's options.

    Fields are of type bool, int, float, str, one of these `| None`, a list of one of them, or dict[str, Any].
    """

    def check(self) -> None:
        """Raise ConfigError("field=value: what is allowed") for a value out of range or an impossible combination."""


class TextEnv(gymnasium.Env[str, str]):
    """Base of every environment. A subclass sets `Config` and fills `_begin` and `_play`; the rest is there if it needs it.

    `instruction` (valid after reset) says everything an agent must know but the format of its reply and the budgets, which the
    context manager announces. `action_names` (valid after reset, fixed within the episode) lists the actions; None means that any
    text is one. `info` of every step holds at least "success" (bool: solved, as things stand) and "effective" (bool: the action
    changed something); its numbers become metrics. Instances can be pickled and copied in the middle of an episode.
    """

    Config: ClassVar[type[TextEnvConfig]] = TextEnvConfig
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}  # type: ignore[misc]
    config: TextEnvConfig
    instruction: str
    action_names: tuple[str, ...] | None = None

    def __init__(self, config: TextEnvConfig | None = None, *, render_mode: str | None = None) -> None:
        """Raises ConfigError for impossible options, ValueError for a render mode that is not in `metadata`."""
        self.config = self.Config() if config is None else config
        self.config.check()
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            raise ValueError(f"render_mode={render_mode!r}: must be one of {', '.join(modes)}{near_match(render_mode, modes)}")
        self.render_mode = render_mode
        self.instruction = ""
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._spellings: dict[str, str] | None = None  # own and folded spellings -> own; None: any text
        self._named: tuple[str, ...] | None = None  # the names that action_space and _spellings were made for
        self._dynamics_seed: int | None = None
        self._dynamics_random: np.random.Generator | None = None
        self._observation = ""
        self._in_episode = False

    @property
    def dynamics_random(self) -> np.random.Generator:
        """What chance does after the start. Made when it is first asked for: most environments leave nothing to chance."""
        if self._dynamics_random is None:
            # The spawn key keeps this stream apart from that of np_random, even where both seeds are the same number.
            self._dynamics_random = np.random.default_rng(np.random.SeedSequence(self._dynamics_seed, spawn_key=(1,)))
        return self._dynamics_random

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
            self._dynamics_seed, self._dynamics_random = dynamics_seed, None
        self._observation = self._begin()
        if self.action_names != self._named:
            self._take_names(self.action_names)
        self._in_episode = True
        return self._observation, {}

    def step(self, action: str) -> StepAnswer:
        """Play one action. Raises ResetNeeded outside an episode, ValueError for an action the environment does not know."""
        if not self._in_episode:
            raise ResetNeeded(f"{type(self).__name__}.step: the episode has ended or was never begun; call reset first")
        spellings = self._spellings
        known = action if spellings is None else spellings.get(action) or self._recognise(action, spellings)
        answer = self._play(known)
        self._observation = answer[0]
        if answer[2] or answer[3]:
            self._in_episode = False
        return answer

    def render(self) -> Any:
        """The last observation ("ansi"), a picture as uint8 [H, W, 3] ("rgb_array"), or None without a render mode."""
        if self.render_mode == "rgb_array":
            return self._pixels()
        return self._observation if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Let go of what the environment holds. May be called at any time and more than once."""
        self._in_episode = False

    def oracle_action(self) -> str | None:
        """The action of a best policy that sees everything but future chance; None where there is none."""
        return None

    def max_return(self) -> float | None:
        """The return of a best episode from this start (valid after reset); None if chance decides or nobody knows."""
        return None

    @abstractmethod
    def _begin(self) -> str:
        """Draw an initial state from `np_random`, set `instruction` and `action_names`, answer the first observation."""

    @abstractmethod
    def _play(self, action: str) -> StepAnswer:
        """Play a known action, in the environment's own spelling."""

    def _pixels(self) -> np.typing.NDArray[np.uint8]:
        """The state as a picture [H, W, 3]; for environments that list "rgb_array" among their render modes."""
        raise NotImplementedError

    def _take_names(self, names: Sequence[str] | None) -> None:
        self._named = None if names is None else tuple(names)
        self.action_space = AnyText() if names is None else NamedActions(names)
        self._spellings = None if names is None else {normalise(name): name for name in names} | {name: name for name in names}

    def _recognise(self, action: str, spellings: dict[str, str]) -> str:
        known = spellings.get(normalise(action))
        if known is None:
            names = self.action_names or ()
            raise ValueError(f"action {action!r} is unknown{near_match(action, names)} (actions: {', '.join(names)})")
        return known
