"""Who may play in the place of a model: a person, the oracle of the environment, chance."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

import numpy as np

from ragen.environments import registry
from ragen.environments.spaces import AnyText
from ragen.errors import ConfigError, EngineFailure
from ragen.records import EpisodeKey
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.replies import ReplyFormat

LEAVE_WORDS = frozenset({"quit", "exit"})


class PlayerLeft(EngineFailure):
    """The player has had enough. The trajectory ends unscored, as when an engine goes away."""


class Player(Protocol):
    """Answers a turn: actions joined by the separator, or a whole reply with its tags. Raises PlayerLeft."""

    echoes: bool  # whether the answer still has to be shown

    def answer(self) -> str: ...


class Typist:
    """A person who types lines: at a terminal, or piped in."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.echoes = not stream.isatty()

    def answer(self) -> str:
        line = _asked() if self._stream.isatty() else self._stream.readline()
        if not line or line.strip().casefold() in LEAVE_WORDS:
            raise PlayerLeft("the player left")
        return line.strip()


class OraclePlayer:
    """The oracle of the environment, which plays ahead on a twin: one of its own that begins and goes on like the real one."""

    echoes = True

    def __init__(self, key: EpisodeKey, config: EnvironmentConfig, separator: str) -> None:
        """Raises ConfigError if the environment has no oracle."""
        self._twin = registry.make(config.name, config.options)
        weakref.finalize(self, self._twin.close)
        self._twin.reset(seed=key.task_seed, options={"dynamics_seed": key.dynamics_seed})
        if self._twin.oracle_action() is None:
            raise ConfigError(f"environment {config.name!r} has no oracle; play it yourself, or at random")
        self._config = config
        self._separator = separator
        self._actions_left = config.max_actions

    def answer(self) -> str:
        actions: list[str] = []
        ended = False
        while not ended and len(actions) < min(self._config.max_actions_per_turn, self._actions_left):
            action = self._twin.oracle_action()
            if action is None:
                break
            _, _, terminated, truncated, _ = self._twin.step(action)
            actions.append(action)
            ended = terminated or truncated
        if not actions:
            raise PlayerLeft("the oracle knows no action from here")
        self._actions_left -= len(actions)
        return f" {self._separator} ".join(actions)


class RandomPlayer:
    """One action a turn, each as likely as the others; any text where any text is an action."""

    echoes = True

    def __init__(self, names: Callable[[], Sequence[str] | None], seed: int | Sequence[int]) -> None:
        self._names = names
        self._random = np.random.default_rng(seed)

    def answer(self) -> str:
        names = self._names()
        if names is None:
            return " ".join(AnyText(self._random).sample().split())
        return names[int(self._random.integers(len(names)))]


def as_reply(form: ReplyFormat, answer: str, names: Sequence[str] | None) -> str:
    """The reply that says `answer`: actions joined by the separator, or a whole reply with its tags, which stays as it is."""
    tags = [f"<{mark}{name}>" for name in (form.think_tag, form.answer_tag) for mark in ("", "/")]
    if any(tag in answer for tag in tags):
        return answer
    actions = [part.strip() for part in answer.split(form.action_separator)] if form.tools else [answer]
    return form.render("", actions, names)


def _asked() -> str:
    """A line with the editing keys of the terminal; empty for Ctrl-D."""
    try:
        return input("> ") + "\n"
    except EOFError:
        return ""
