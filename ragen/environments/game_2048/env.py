"""2048 as an environment: a thin shell around its rules. Described in docs/environments/game_2048.md."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from ragen.environments.game_2048 import rules
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError

_DRAWN_AT_ONCE = 64  # random numbers; one call for many costs little more than one call for one


@dataclass(kw_only=True)
class Game2048Config(TextEnvConfig):
    size: int = option(4, "rows and columns of the board, 2 to 6")
    goal_tile: int = option(2048, "the tile to make, a power of two from 8 on; making it ends the game with success")
    two_prob: float = option(0.9, "probability that a new tile is a 2 and not a 4, 0 to 1")
    log_reward: bool = option(True, "a move is worth 0.1 * log2(points + 1); otherwise its points")
    invalid_penalty: float = option(0.1, "subtracted for an action that moves no tile, at least 0")

    def check(self) -> None:
        if not 2 <= self.size <= 6:
            raise ConfigError(f"size={self.size}: must be within 2..6")
        if not 0.0 <= self.two_prob <= 1.0:
            raise ConfigError(f"two_prob={self.two_prob}: must be within 0..1")
        # The board is full with one tile of each size and the smallest twice; the smallest is what chance can deal, at best a 4.
        largest = 2 ** (self.size**2 + (self.two_prob < 1.0))
        if not 8 <= self.goal_tile <= largest or self.goal_tile & (self.goal_tile - 1):
            raise ConfigError(
                f"goal_tile={self.goal_tile}: must be a power of two from 8 to {largest}, the largest that fits on the board"
            )
        if self.invalid_penalty < 0.0:
            raise ConfigError(f"invalid_penalty={self.invalid_penalty}: must be at least 0")


class Game2048Env(TextEnv):
    """Slide all tiles at once, merge equal ones, until the goal tile is made or nothing can move.

    There is no oracle: the best play of a game of chance with so many boards is not known.
    """

    Config = Game2048Config
    config: Game2048Config

    def _begin(self) -> str:
        config = self.config
        self.action_names = rules.DIRECTIONS
        self.score = 0
        self._draws: list[float] = []  # from the dynamics stream, not yet used; those of a former episode are void
        self._width = len(str(config.goal_tile))
        empty: rules.Board = ((0,) * config.size,) * config.size
        draws = self.np_random.random(4).tolist()
        self.board = rules.add_tile(
            rules.add_tile(empty, *draws[:2], two_prob=config.two_prob), *draws[2:], two_prob=config.two_prob
        )
        self.max_tile = rules.max_tile(self.board)
        self.moves = rules.legal_moves(self.board)
        self.instruction = self._write_instruction()
        return self._show()

    def _play(self, action: str) -> StepAnswer:
        if action not in self.moves:
            text = f"{action} moves nothing.\n{self._show()}"
            return text, 0.0 - self.config.invalid_penalty, False, False, self._info(effective=False)
        self.board, points = rules.move(self.board, action)
        self.score += points
        reward = 0.1 * log2(points + 1) if self.config.log_reward else float(points)
        self.max_tile = rules.max_tile(self.board)
        if self.max_tile >= self.config.goal_tile:
            self.moves = ()
            text = f"You made {self.config.goal_tile}.\n{self._show()}"
        else:
            self.board = rules.add_tile(self.board, self._draw(), self._draw(), two_prob=self.config.two_prob)
            self.moves = rules.legal_moves(self.board)
            text = self._show() if self.moves else f"No move is possible. The game is lost.\n{self._show()}"
        return text, reward, not self.moves, False, self._info(effective=True)

    def _draw(self) -> float:
        if not self._draws:
            self._draws = self.dynamics_random.random(_DRAWN_AT_ONCE).tolist()
        return self._draws.pop()

    def _info(self, *, effective: bool) -> dict[str, bool | int]:
        success = self.max_tile >= self.config.goal_tile
        return {"success": success, "effective": effective, "score": self.score, "max_tile": self.max_tile}

    def _show(self) -> str:
        moves = f" Possible moves: {', '.join(self.moves)}." if self.moves else ""
        return f"Score: {self.score}.{moves}\n{rules.show(self.board, self._width)}"

    def _write_instruction(self) -> str:
        config = self.config
        new_tile = {0.0: "a 4", 1.0: "a 2"}.get(config.two_prob, "a 2 or a 4")
        worth = "0.1 * log2(points + 1)" if config.log_reward else "the points"
        return (
            f"You are playing 2048 on a {config.size}x{config.size} board. Goal: make a tile of {config.goal_tile}. "
            "This ends the game with success. The game is lost when no move is possible.\n"
            f"Actions: {', '.join(rules.DIRECTIONS)}. An action slides all tiles in that direction as far as they can go. "
            "Two equal tiles that meet merge into one tile with their sum. "
            "A merged tile does not merge again in the same action. "
            f"Then a new tile, {new_tile}, appears in a random empty cell.\n"
            "The points of an action are the sum of the tiles made by merging. Score is the sum of all points. "
            f"The reward of an action is {worth}. "
            f"An action that moves nothing brings no new tile and a reward of {0.0 - config.invalid_penalty:g}.\n"
            "The board shows one row per line, from top to bottom. A dot is an empty cell."
        )
