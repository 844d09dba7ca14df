"""The corridor: an environment small enough to work out by hand, with a switch for every fault an environment can have.

Five cells in a row, the agent ('P') walks Left and Right, the goal ('G') is the last cell, six steps are allowed. A step costs
0.1, the step that reaches the goal pays 1. From the start in the first cell, Right four times solves it: -0.1 * 3 + 1 = 0.7.
Importing this module registers it as "corridor".
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ragen.environments.registry import register
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError

NUM_CELLS = 5
MAX_STEPS = 6
HUGE = 100_000  # characters of the huge observation
SWITCHES = {
    "observation": "grid unicode huge empty none number surrogate pid",
    "reward": "normal none nan text bool",
    "flags": "normal none number",
    "info": "normal none no_success",
}

_open: dict[int, Corridor] = {}  # holds the corridors themselves, so that a forgotten one stays counted


def num_open() -> int:
    """How many corridors have been made and not closed."""
    return len(_open)


def forget_open() -> None:
    """Start counting anew: what an earlier test left open is not this one's fault."""
    _open.clear()


class Broken(RuntimeError):
    """What a corridor raises when a switch tells it to."""


@dataclass(kw_only=True)
class CorridorConfig(TextEnvConfig):
    start: int | None = option(0, "cell of the start; None: drawn from the task seed")
    slip: float = option(0.0, "probability, by the dynamics seed, that a step goes nowhere")
    both_flags: bool = option(False, "set truncated together with terminated on reaching the goal")
    raise_in_reset: bool = option(False, "raise in reset")
    raise_at_step: int | None = option(None, "raise in this step, counted from 1")
    raise_in_close: bool = option(False, "raise in close, after letting go")
    hang_in_reset: bool = option(False, "hang in reset")
    hang_at_step: int | None = option(None, "hang in this step, counted from 1")
    hang_in_close: bool = option(False, "hang in close, after letting go")
    hang_s: float = option(60.0, "how long that is; code that hangs swallows every Exception meanwhile")
    exit_at_step: int | None = option(None, "end the whole process in this step, with exit code 3")
    step_s: float = option(0.0, "how long each step takes")
    raise_frac: float = option(
        1.0, "share of episodes, drawn from the dynamics seed, in which faults act (those in close always)"
    )
    observation: str = option("grid", "what it shows, see SWITCHES")
    reward: str = option("normal", "what it pays, see SWITCHES")
    flags: str = option("normal", "what terminated is, see SWITCHES")
    info: str = option("normal", "what info is, see SWITCHES")

    def check(self) -> None:
        if self.start is not None and not 0 <= self.start < NUM_CELLS - 1:
            raise ConfigError(f"start={self.start}: must be within 0..{NUM_CELLS - 2}, or None")
        for switch, allowed in SWITCHES.items():
            if getattr(self, switch) not in allowed.split():
                raise ConfigError(f"{switch}={getattr(self, switch)!r}: must be one of {allowed}")


class Corridor(TextEnv):
    """See the module's docstring."""

    Config = CorridorConfig
    config: CorridorConfig
    action_names = ("Left", "Right")

    def __init__(self, config: CorridorConfig | None = None) -> None:
        super().__init__(config)
        _open[id(self)] = self

    def close(self) -> None:
        super().close()
        if _open.pop(id(self), None) is None:
            return
        if self.config.hang_in_close:
            self._hang()
        if self.config.raise_in_close:
            raise Broken("close")

    def oracle_action(self) -> str:
        return "Right"

    def _begin(self) -> str:
        drawn = int(self.np_random.integers(NUM_CELLS - 1))
        self.cell = drawn if self.config.start is None else self.config.start
        self.num_steps = 0
        self.instruction = "Walk to G. Actions: Left, Right."
        self.breaks = float(self.dynamics_random.random()) < self.config.raise_frac
        if self.breaks and self.config.raise_in_reset:
            raise Broken("reset")
        if self.breaks and self.config.hang_in_reset:
            self._hang()
        return self._render()

    def _play(self, action: str) -> StepAnswer:
        self.num_steps += 1
        if self.breaks and self.num_steps == self.config.raise_at_step:
            raise Broken(f"step {self.num_steps}")
        if self.breaks and self.num_steps == self.config.hang_at_step:
            self._hang()
        if self.breaks and self.num_steps == self.config.exit_at_step:
            os._exit(3)
        if self.config.step_s:
            time.sleep(self.config.step_s)
        before = self.cell
        if self.dynamics_random.random() >= self.config.slip:
            self.cell = min(NUM_CELLS - 1, max(0, self.cell + (1 if action == "Right" else -1)))
        solved = self.cell == NUM_CELLS - 1
        truncated = (self.num_steps == MAX_STEPS and not solved) or (solved and self.config.both_flags)
        reward = 1.0 if solved else -0.1
        info = {"success": solved, "effective": self.cell != before, "cell": self.cell, "note": "not a number"}
        flags: Any = {"normal": solved, "none": None, "number": 1}[self.config.flags]
        return self._render(), self._reward(reward), flags, truncated, self._info(info)

    def _hang(self) -> None:
        until = time.monotonic() + self.config.hang_s
        while (left_s := until - time.monotonic()) > 0:
            with suppress(Exception):
                time.sleep(left_s)

    def _reward(self, reward: float) -> Any:
        return {"normal": reward, "none": None, "nan": float("nan"), "text": "1.0", "bool": True}[self.config.reward]

    def _info(self, info: dict[str, Any]) -> Any:
        return {"normal": info, "none": None, "no_success": {"effective": True}}[self.config.info]

    def _render(self) -> Any:
        player, goal, floor = "🧍🏁▢" if self.config.observation == "unicode" else "PG_"
        cells = [floor] * (NUM_CELLS - 1) + [goal]
        cells[self.cell] = player
        grid = " ".join(cells)
        special = {"huge": "x" * HUGE, "empty": "", "none": None, "number": 3, "surrogate": "\ud800", "pid": f"{os.getpid()}"}
        return special.get(self.config.observation, grid)


register("corridor", Corridor, "five cells, Left and Right, a switch for every fault (for tests)")
