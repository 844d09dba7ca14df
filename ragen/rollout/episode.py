"""One environment from its making to its closing, wherever it runs: nothing it does or says is believed before it is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragen.environments import registry
from ragen.environments.text_env import TextEnv
from ragen.errors import RagenError
from ragen.redaction import redact
from ragen.rollout.answers import Answer, read_answer, read_names, read_text

# What counts as raised by an environment: errors of ours too, `sys.exit`, and a cancellation, which is nobody else's here since
# nothing is awaited. KeyboardInterrupt is the person's.
RAISED = (Exception, SystemExit, asyncio.CancelledError)


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What an environment said to its reset."""

    text: str
    instruction: str
    action_names: tuple[str, ...] | None  # None: any text is an action


class Episode:
    """One environment and its one episode. Methods let through what the environment raises; `reason` reads it."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._name = name
        self._options = options
        self._env: TextEnv | None = None

    def begin(self, task_seed: int, dynamics_seed: int) -> Beginning:
        """Make the environment and reset it."""
        self._env = env = registry.make(self._name, self._options)
        text, _ = env.reset(seed=task_seed, options={"dynamics_seed": dynamics_seed})
        return Beginning(text=read_text(text), instruction=read_text(env.instruction), action_names=read_names(env.action_names))

    def play(self, action: str) -> Answer:
        """Play one action that the environment knows."""
        assert self._env is not None, "the episode was not begun, or is closed"
        return read_answer(self._env.step(action))

    def close(self) -> None:
        """Let the environment go. May be called in any state, and more than once."""
        env, self._env = self._env, None
        if env is not None:
            env.close()


def reason(cause: BaseException) -> str:
    """Why an environment failed, in one line; at most 500 characters of what it said itself, without keys and passwords."""
    detail = redact(" ".join(str(cause).split()))[:500] or "no message"
    return detail if isinstance(cause, RagenError) else f"{type(cause).__name__}: {detail}"
