"""The frozen lake as an environment: a thin shell around its rules. Described in docs/environments/frozen_lake.md."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.environments.frozen_lake.rules import ACTIONS, Lake, draw_lake, neighbours, read_map, slip
from ragen.environments.frozen_lake.solver import best_directions
from ragen.environments.frozen_lake.views import FORMATS, SYMBOLS, View, check_symbols, legend
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError, near_match

_MAX_SIZE = 20
_NUM_CHANCES = 32  # drawn at a time: one call costs as much as the rest of a step
_DIRECTIONS = {name: direction for direction, name in enumerate(ACTIONS)}


@dataclass(kw_only=True)
class FrozenLakeConfig(TextEnvConfig):
    success_rate: float = option(0.8, "probability that a move goes where it should, above 0 to 1; else it slips to a side")
    size: int = option(4, f"rows and columns of a drawn lake, 2 to {_MAX_SIZE}")
    frozen_prob: float = option(0.9, "probability that a cell of a drawn lake is ice, 0 to 1")
    min_distance: int = option(1, "rows plus columns between start and goal of a drawn lake, at least; 2: never neighbours")
    map: list[str] | None = option(None, "your own lake in place of a drawn one: rows of S (start), F (ice), H (hole), G (goal)")
    observation_format: str = option("grid", "grid (a map), coord (coordinates) or grid_coord (both)")
    symbols: str = option(SYMBOLS, "six characters: player, ice, hole, goal, player in a hole, player on the goal")
    oracle_horizon: int | None = option(None, "moves within which the oracle wants to reach the goal; null: it takes its time")

    def check(self) -> None:
        if not 0.0 < self.success_rate <= 1.0:
            raise ConfigError(f"success_rate={self.success_rate}: must be above 0 and at most 1")
        if not 2 <= self.size <= _MAX_SIZE:
            raise ConfigError(f"size={self.size}: must be within 2..{_MAX_SIZE}")
        if not 0.0 <= self.frozen_prob <= 1.0:
            raise ConfigError(f"frozen_prob={self.frozen_prob}: must be within 0..1")
        farthest = 2 * (self.size - 1)
        if not 1 <= self.min_distance <= farthest:
            raise ConfigError(f"min_distance={self.min_distance}: must be within 1..{farthest} for size={self.size}")
        if self.observation_format not in FORMATS:
            known = ", ".join(FORMATS)
            hint = near_match(self.observation_format, FORMATS)
            raise ConfigError(f"observation_format={self.observation_format!r}: must be one of {known}{hint}")
        check_symbols(self.symbols, self.observation_format)
        if self.oracle_horizon is not None and self.oracle_horizon < 1:
            raise ConfigError(f"oracle_horizon={self.oracle_horizon}: must be at least 1, or null")
        if self.map is not None:
            self._check_map(self.map)

    def _check_map(self, rows: list[str]) -> None:
        for key in ("size", "frozen_prob", "min_distance"):
            if getattr(self, key) != getattr(type(self), key):
                raise ConfigError(f"{key}={getattr(self, key)}: has no effect beside map; leave it out")
        lake = read_map(rows)
        if max(lake.height, lake.width) > _MAX_SIZE:
            raise ConfigError(f"map={rows}: must have at most {_MAX_SIZE} rows and columns")


class FrozenLakeEnv(TextEnv):
    """Walk over slippery ice to the goal without falling into a hole. Success is standing on the goal."""

    Config = FrozenLakeConfig
    config: FrozenLakeConfig
    action_names = ACTIONS

    def _begin(self) -> str:
        config = self.config
        if config.map is not None:
            self.lake = read_map(config.map)
        else:
            self.lake = draw_lake(config.size, config.frozen_prob, config.min_distance, self.np_random)
        self.cell = self.lake.start
        self.num_moves = 0
        self.instruction = _instruction(self.lake, config)
        self._view = View(self.lake, config.symbols, config.observation_format)
        self._neighbours = neighbours(self.lake.height, self.lake.width)
        self._chances: list[float] = []
        return self._view.show(self.cell)

    def _play(self, action: str) -> StepAnswer:
        direction = _DIRECTIONS[action]
        success_rate = self.config.success_rate
        if success_rate < 1.0:
            if not self._chances:
                self._chances = self.dynamics_random.random(_NUM_CHANCES).tolist()
            direction = slip(direction, self._chances.pop(), success_rate)
        self.num_moves += 1
        before, self.cell = self.cell, self._neighbours[self.cell][direction]
        success = self.cell == self.lake.goal
        terminated = success or self.cell in self.lake.holes
        info = {"success": success, "effective": self.cell != before}
        return self._view.show(self.cell), float(success), terminated, False, info

    def oracle_action(self) -> str:
        horizon = self.config.oracle_horizon or 0
        plan = best_directions(self.lake, self.config.success_rate, horizon)
        return ACTIONS[plan[max(horizon - self.num_moves, 0)][self.cell]]

    def max_return(self) -> float | None:
        return 1.0 if self.config.success_rate == 1.0 else None


def _instruction(lake: Lake, config: FrozenLakeConfig) -> str:
    if config.success_rate == 1.0:
        ice = "Every move goes where you want."
    else:
        side = (1.0 - config.success_rate) / 2
        ice = (
            f"The ice is slippery: a move goes where you want with probability {config.success_rate:.4g}, "
            f"and to each of the two sides of that direction with probability {side:.4g}."
        )
    return (
        "You are walking on a frozen lake. Goal: reach the goal without falling into a hole.\n"
        f"{ice} A move off the edge leaves you where you are.\n"
        "Reaching the goal is success and gives reward 1. Falling into a hole ends the game with reward 0. "
        "Any other move gives reward 0.\n"
        f"{legend(lake, config.symbols, config.observation_format)}\n"
        "Actions: Left (column - 1), Down (row + 1), Right (column + 1), Up (row - 1)."
    )
