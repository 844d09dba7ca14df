"""An outside Gymnasium environment played as a TextEnv: its actions by name, its observations as text, its flags made one.

Shared by classes (gymnasium_env.py) and registered ids (gymnasium_id.py). Described in docs/environments/gymnasium.md.
"""

from __future__ import annotations

import inspect
import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import gymnasium

from ragen.environments.adapters.actions import action_table, mentions_all, read_names, text_problem
from ragen.environments.adapters.answers import check_observation, read_start, read_step, read_verdict
from ragen.environments.adapters.base import Adapter, SuccessRule, plain_numbers
from ragen.environments.adapters.texts import as_text, plain_ansi, sections_for_agents
from ragen.environments.text_env import StepAnswer, TextEnvConfig, option
from ragen.errors import ConfigError, near_match

OBSERVATIONS = ("auto", "ansi", "values")

OutsideEnv = gymnasium.Env[Any, Any]


@dataclass(kw_only=True)
class ReadingConfig(TextEnvConfig):
    """How an outside environment is read. Every field serves every environment; what is None is found out."""

    instruction: str | None = option(None, "what the agent is told; null: the environment's `instruction`, else its docstring")
    action_names: list[str] | None = option(None, "names of the actions; null: the environment's `action_names`, else 0 to n-1")
    observation: str = option("auto", "auto (text as it is, else ansi if there, else values), ansi (its render), values")
    success_key: str | None = option(None, "name in info that says solved; null: success or is_success if there")
    success_threshold: float | None = option(None, "an ended episode is solved if its return reaches this")

    def check(self) -> None:
        if self.observation not in OBSERVATIONS:
            near = near_match(self.observation, OBSERVATIONS)
            raise ConfigError(f"observation={self.observation!r}: must be one of {', '.join(OBSERVATIONS)}{near}")
        if self.success_key is not None and self.success_threshold is not None:
            raise ConfigError(f"success_threshold={self.success_threshold:g}: cannot stand beside success_key; give one of them")
        if self.action_names is not None:
            read_names(self.action_names)


class OutsideAdapter(Adapter):
    """Plays `self.outside`, which a subclass makes. Without `action_names`, any text is an action."""

    outside: OutsideEnv

    def __init__(self, config: TextEnvConfig | None = None, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)
        self._reading = self._read_config()
        self._success_rule = SuccessRule(key=self._reading.success_key, threshold=self._reading.success_threshold)
        self.outside = self._make_outside()
        check_readable(self.outside, self._reading)

    @abstractmethod
    def _make_outside(self) -> OutsideEnv:
        """A new outside environment, with render_mode="ansi" if it has that and the options want it."""

    @abstractmethod
    def _read_config(self) -> ReadingConfig:
        """The options that say how to read it."""

    def _begin(self) -> str:
        observation = read_start(self.outside.reset(seed=self._draw_start_seed()))
        # From here on chance belongs to the member, no longer to the group. An environment that keeps a generator of its own
        # goes on with that: then all members of a group meet the same chance.
        self.outside.unwrapped.np_random = self.dynamics_random
        self._table = action_table(self.outside, self._reading.action_names, title(self.outside))
        self.action_names = None if self._table is None else tuple(self._table)
        self._return, self._solved = 0.0, False
        self._text = self._as_text(observation)
        self.instruction = self._compose_instruction()
        return self._text

    def _play(self, action: str) -> StepAnswer:
        if self._table is None and (problem := text_problem(self.outside.action_space, action)):
            return problem, 0.0, False, False, {"success": self._solved, "effective": False}
        chosen = action if self._table is None else self._table[action]
        observation, reward, terminated, truncated, info = read_step(self.outside.step(chosen))
        self._return += reward
        self._solved = self._success_rule.holds(info, terminated=terminated, truncated=truncated, episode_return=self._return)
        before, self._text = self._text, self._as_text(observation)
        said = info.get("effective")
        changed = terminated or truncated or self._text != before
        effective = changed if said is None else read_verdict("effective", said)
        truncated = truncated and not terminated  # an end inside the task, reached with the last step allowed, is no cut
        return self._text, reward, terminated, truncated, plain_numbers(info) | {"success": self._solved, "effective": effective}

    def close(self) -> None:
        super().close()
        self.outside.close()

    def _as_text(self, observation: Any) -> str:
        mode = self._reading.observation
        if mode == "auto" and isinstance(observation, str):
            return str(observation)
        if mode != "values" and _renders_text(self.outside):
            rendered = self.outside.render()
            if isinstance(rendered, str):
                return plain_ansi(rendered)
        check_observation(getattr(self.outside, "observation_space", None), observation)
        return as_text(observation)

    def _compose_instruction(self) -> str:
        said = self._reading.instruction or getattr(self.outside.unwrapped, "instruction", None)
        text = said if isinstance(said, str) and said.strip() else sections_for_agents(_docstring(self.outside))
        text = text.strip() or f"Play {title(self.outside)}."
        if re.search(r"\[\w+:.*?\]", self._text) and _renders_text(self.outside):
            text += "\n[red:X] is an X shown in red; other colours likewise."
        if self.action_names is not None and not mentions_all(text, self.action_names):
            text += f"\nActions: {', '.join(self.action_names)}."
        return text


def check_readable(outside: OutsideEnv, reading: ReadingConfig) -> None:
    """Raises ConfigError if the environment cannot be read as the options say."""
    if reading.observation == "ansi" and not _renders_text(outside):
        raise ConfigError(f"observation='ansi': {title(outside)} does not offer render_mode='ansi'")
    if getattr(outside, "action_space", None) is not None:  # some know it only after reset
        action_table(outside, reading.action_names, title(outside))


def _renders_text(outside: OutsideEnv) -> bool:
    return outside.render_mode == "ansi"


def title(outside: OutsideEnv) -> str:
    return outside.spec.id if outside.spec is not None else type(outside.unwrapped).__name__


def _docstring(outside: OutsideEnv) -> str:
    """The docstring of the environment's class or the nearest parent that has one, but not Gymnasium's own."""
    parents = type(outside.unwrapped).__mro__
    docs = (vars(parent).get("__doc__") for parent in parents[: parents.index(gymnasium.Env)])
    return inspect.cleandoc(next((doc for doc in docs if doc), ""))
