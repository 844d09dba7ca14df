"""Sudoku as an environment: a thin shell around its rules. Described in docs/environments/sudoku.md."""

from __future__ import annotations

from dataclasses import dataclass
from operator import eq

from ragen.environments.sudoku.generate import MAX_BLANKS, draw_puzzle
from ragen.environments.sudoku.oracle import best_move
from ragen.environments.sudoku.rules import Board, Scores, play
from ragen.environments.sudoku.text import BOARDS, MoveError, candidate_list, read_move, write_move
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError, EnvironmentFailure, near_match

_MAX_GRIDS = 200  # tried in one reset; where grids fail most often, 12 blanks of 16, three in ten do
_BLANKS = {4: {"easy": 6, "medium": 8, "hard": 9}, 9: {"easy": 32, "medium": 40, "hard": 48}}


@dataclass(kw_only=True)
class SudokuConfig(TextEnvConfig):
    size: int = option(4, "rows, columns and digits: 4 or 9")
    difficulty: str = option("easy", "easy, medium or hard: 6, 8 or 9 empty cells for size 4; 32, 40 or 48 for size 9")
    num_blanks: int | None = option(None, "empty cells, in place of difficulty; at most 12 for size 4, 54 for size 9")
    observation_format: str = option("detailed", "detailed (numbered rows and columns, given digits marked) or simple")
    show_conflicts: bool = option(True, "a refused placement names the row, column or box that holds the digit")
    show_candidates: bool = option(False, "list the digits possible in the empty cells, for up to 10 of these")
    correct_placement_score: float = option(1.0, "points for the first right digit in a cell")
    invalid_action_score: float = option(-0.1, "points for an action that cannot be read or is refused")
    completion_bonus: float = option(10.0, "points for the last cell, beside those for its digit")

    @property
    def scores(self) -> Scores:
        return Scores(correct=self.correct_placement_score, invalid=self.invalid_action_score, completion=self.completion_bonus)

    @property
    def blanks_wanted(self) -> int:
        return _BLANKS[self.size][self.difficulty] if self.num_blanks is None else self.num_blanks

    def check(self) -> None:
        if self.size not in _BLANKS:
            raise ConfigError(f"size={self.size}: must be 4 or 9")
        levels = _BLANKS[self.size]
        for key, allowed in (("difficulty", levels), ("observation_format", BOARDS)):
            value = getattr(self, key)
            if value not in allowed:
                raise ConfigError(f"{key}={value!r}: must be one of {', '.join(allowed)}{near_match(value, allowed)}")
        if not 1 <= self.blanks_wanted <= MAX_BLANKS[self.size]:
            raise ConfigError(f"num_blanks={self.num_blanks}: must be within 1..{MAX_BLANKS[self.size]} for size {self.size}")
        for key in ("correct_placement_score", "completion_bonus"):
            if getattr(self, key) < 0.0:
                raise ConfigError(f"{key}={getattr(self, key)}: must be at least 0")
        if self.invalid_action_score > 0.0:
            raise ConfigError(f"invalid_action_score={self.invalid_action_score}: must be at most 0")


class SudokuEnv(TextEnv):
    """Fill a 4x4 or 9x9 Sudoku digit by digit. Its solution is unique; success is the full board."""

    Config = SudokuConfig
    config: SudokuConfig

    def _begin(self) -> str:
        puzzle = draw_puzzle(self.config.size, self.config.blanks_wanted, self.np_random, max_grids=_MAX_GRIDS)
        if puzzle is None:
            raise EnvironmentFailure(f"sudoku: none of {_MAX_GRIDS} grids left {self.config.blanks_wanted} cells empty")
        self.puzzle = puzzle
        self.board = Board(cells=puzzle.givens)
        self.instruction = _instruction(self.config)
        return self._view()

    def _play(self, action: str) -> StepAnswer:
        try:
            move = read_move(action, self.config.size)
        except MoveError as error:
            reward, effective, feedback = self.config.invalid_action_score, False, str(error)
        else:
            result = play(self.puzzle, self.board, move, self.config.scores, show_conflicts=self.config.show_conflicts)
            self.board = result.board
            reward, effective, feedback = result.reward, result.effective, result.feedback
        solved = self.board.solved
        num_given = len(self.board.cells) - self.puzzle.num_blanks
        num_right = sum(map(eq, self.board.cells, self.puzzle.solution)) - num_given
        info = {"success": solved, "effective": effective, "right_frac": num_right / self.puzzle.num_blanks}
        return f"{feedback}\n{self._view()}", reward, solved, False, info

    def oracle_action(self) -> str | None:
        move = best_move(self.puzzle, self.board.cells)
        return None if move is None else write_move(move)

    def max_return(self) -> float:
        return self.puzzle.num_blanks * self.config.correct_placement_score + self.config.completion_bonus

    def _view(self) -> str:
        board = BOARDS[self.config.observation_format](self.puzzle, self.board.cells)
        if self.config.show_candidates and not self.board.solved:
            return f"{board}\n{candidate_list(self.puzzle, self.board.cells)}"
        return board


def _instruction(config: SudokuConfig) -> str:
    size, side, scores = config.size, int(config.size**0.5), config.scores
    if config.observation_format == "detailed":
        legend = "In the grid, [3] is a given digit, 3 without brackets is a digit that you placed, and . is an empty cell."
    else:
        legend = "In the grid, . is an empty cell."
    return (
        f"Solve the {size}x{size} Sudoku: fill every empty cell with a digit from 1 to {size}.\n"
        f"Each row, each column and each {side}x{side} box must hold every digit once. There is exactly one solution.\n"
        f"{legend} Rows count from the top and columns from the left, both from 1 to {size}.\n"
        'There are two kinds of action. "place 3 at row 1 col 2" puts a 3 into that cell, also in place of a digit of yours. '
        '"clear row 1 col 2" removes a digit of yours from that cell. Given digits cannot be changed.\n'
        "A digit that is already in the same row, column or box is refused.\n"
        f"Reward: {scores.correct:g} when a cell first gets its right digit, {scores.completion:g} more when the Sudoku is "
        f"solved, {scores.invalid:g} for an action that is refused or cannot be read, 0 otherwise."
    )
