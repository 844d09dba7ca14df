"""Lights Out as an environment: a thin shell around its rules. Described in docs/environments/lights_out.md."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.environments.lights_out.rules import OFF, ON, button_name, press, press_all, show
from ragen.environments.lights_out.solver import draw_presses, farthest, shortest_solution
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError

_MAX_SIZE = 8


@dataclass(kw_only=True)
class LightsOutConfig(TextEnvConfig):
    size: int = option(3, f"rows and columns of the board, 2 to {_MAX_SIZE}")
    num_presses: int = option(3, "presses of the shortest solution from the start, exactly")

    def check(self) -> None:
        if not 2 <= self.size <= _MAX_SIZE:
            raise ConfigError(f"size={self.size}: must be within 2..{_MAX_SIZE}")
        most = farthest(self.size)
        if not 1 <= self.num_presses <= most:
            raise ConfigError(f"num_presses={self.num_presses}: must be within 1..{most} for size={self.size}")


class LightsOutEnv(TextEnv):
    """Press buttons, each of which flips its light and the lights around it, until all lights are off."""

    Config = LightsOutConfig
    config: LightsOutConfig

    def __init__(self, config: LightsOutConfig | None = None, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)
        size = self.config.size
        self._buttons = {button_name(button, size): button for button in range(size * size)}
        self.action_names = tuple(self._buttons)

    def _begin(self) -> str:
        size = self.config.size
        self.lights = press_all(draw_presses(size, self.config.num_presses, self.np_random), size)
        self.instruction = _instruction(size)
        return show(self.lights, size)

    def _play(self, action: str) -> StepAnswer:
        self.lights = press(self.lights, self._buttons[action], self.config.size)
        success = self.lights == 0
        return show(self.lights, self.config.size), float(success), success, False, {"success": success, "effective": True}

    def oracle_action(self) -> str | None:
        presses = shortest_solution(self.lights, self.config.size)
        if not presses:
            return None
        first = (presses & -presses).bit_length() - 1
        return button_name(first, self.config.size)

    def max_return(self) -> float:
        return 1.0


def _instruction(size: int) -> str:
    return (
        f"You are playing Lights Out on a board of {size} rows and {size} columns. Goal: turn all lights off.\n"
        f"Each light has a button. Pressing it flips its own light and the lights directly above, below, left and right of it: "
        f"on becomes off, and off becomes on.\n"
        f"Symbols: {ON} a light that is on, {OFF} a light that is off.\n"
        "Turning the last light off is success and gives reward 1. Any other press gives reward 0.\n"
        f"Actions: an action is row,column of the button to press. Rows count from 1 at the top to {size} at the bottom, "
        f"columns from 1 at the left to {size} at the right. So 1,2 presses row 1, column 2."
    )
