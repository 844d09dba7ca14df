"""Minesweeper as an environment: a thin shell around its rules. Described in docs/environments/minesweeper.md."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.environments.minesweeper import rules
from ragen.environments.minesweeper.generate import closed_field, opened_field
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError

_MIN_SIDE, _MAX_SIDE = 4, 16
_MAX_NO_GUESS_FRAC = 0.2  # share of mines up to which fields that need no guess are found in milliseconds


@dataclass(kw_only=True)
class MinesweeperConfig(TextEnvConfig):
    height: int = option(5, "rows, 4 to 16")
    width: int = option(5, "columns, 4 to 16")
    num_mines: int = option(4, "mines, at least 1; with no_guess at most a fifth of the cells")
    opened: bool = option(True, "an area without mines is revealed at the start")
    no_guess: bool = option(True, "from the opened area every safe cell can be found by logic; needs opened")
    progress_reward: float = option(0.5, "shared out over the safe cells that are hidden at the start, at least 0")
    mine_penalty: float = option(0.0, "subtracted for revealing a mine, at least 0")

    def check(self) -> None:
        for name in ("height", "width"):
            if not _MIN_SIDE <= getattr(self, name) <= _MAX_SIDE:
                raise ConfigError(f"{name}={getattr(self, name)}: must be within {_MIN_SIDE}..{_MAX_SIDE}")
        for name in ("progress_reward", "mine_penalty"):
            if getattr(self, name) < 0.0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be at least 0")
        if self.no_guess and not self.opened:
            raise ConfigError("no_guess=True: needs opened=true, since the first reveal of a hidden field is a guess")
        largest, why = self._max_mines()
        if not 1 <= self.num_mines <= largest:
            raise ConfigError(
                f"num_mines={self.num_mines}: must be within 1..{largest} on {self.height}x{self.width} cells, {why}"
            )

    def _max_mines(self) -> tuple[int, str]:
        num_cells = self.height * self.width
        if self.no_guess:
            return int(num_cells * _MAX_NO_GUESS_FRAC), "a fifth of them, with no_guess=true"
        if self.opened:
            return num_cells - 9, "without the 9 around the start, with opened=true"
        return num_cells - 1, "of which one must be safe"


class MinesweeperEnv(TextEnv):
    """Reveal all cells that are not mines; a revealed number tells how many mines are around."""

    Config = MinesweeperConfig
    config: MinesweeperConfig

    def _begin(self) -> str:
        config = self.config
        size = config.height, config.width
        if config.opened:
            self.field, opened, order = opened_field(*size, config.num_mines, self.np_random, no_guess=config.no_guess)
        else:
            self.field, opened, order = closed_field(*size, config.num_mines, self.np_random), (), None
        self.action_names = rules.cell_names(*size)
        self._cell = {name: cell for cell, name in enumerate(self.action_names)}
        self._pieces, self._places = rules.blank(*size)
        self.shown: set[int] = set()
        self._reveal(opened)
        self._num_to_reveal = self._safe_left
        # Where logic suffices the oracle needs no other knowledge. Elsewhere it knows the mines, and takes 0s first, which reveal
        # whole areas: no other order needs fewer actions.
        by_area = sorted(range(self.field.num_cells), key=lambda cell: self.field.numbers[cell] != 0)
        self._plan = order or tuple(cell for cell in by_area if cell not in self.field.mines)
        self.instruction = self._write_instruction()
        return self._show()

    def _play(self, action: str) -> StepAnswer:
        cell = self._cell[action]
        if cell in self.field.mines:
            return self._lose(action)
        if cell in self.shown:
            return f"{action} is revealed already.\n{self._show()}", 0.0, False, False, self._info(effective=False)
        before = self._safe_left
        self._reveal(self.field.opens[cell])
        reward = self.config.progress_reward * (before - self._safe_left) / self._num_to_reveal
        if self._safe_left:
            return self._show(), reward, False, False, self._info(effective=True)
        return f"All safe cells are revealed.\n{self._show()}", reward + 1.0, True, False, self._info(effective=True)

    def oracle_action(self) -> str | None:
        """A hidden cell that is safe, with no_guess by logic alone; None once the game is won."""
        names = self.action_names or ()
        return next((names[cell] for cell in self._plan if cell not in self.shown), None)

    def max_return(self) -> float:
        """What revealing every safe cell earns, in whatever order."""
        return 1.0 + self.config.progress_reward

    @property
    def _safe_left(self) -> int:
        return self.field.num_safe - len(self.shown)

    def _reveal(self, cells: rules.Cells) -> None:
        self.shown.update(cells)
        for cell in cells:
            self._pieces[self._places[cell]] = str(self.field.numbers[cell])

    def _lose(self, action: str) -> StepAnswer:
        for mine in self.field.mines:
            self._pieces[self._places[mine]] = rules.MINE
        text = f"{action} was a mine. The game is lost.\n{''.join(self._pieces)}"
        return text, 0.0 - self.config.mine_penalty, True, False, self._info(effective=True)

    def _show(self) -> str:
        return f"Safe cells left: {self._safe_left}\n{''.join(self._pieces)}"

    def _info(self, *, effective: bool) -> dict[str, bool | float]:
        revealed_frac = (self._num_to_reveal - self._safe_left) / self._num_to_reveal
        return {"success": self._safe_left == 0, "effective": effective, "revealed_frac": revealed_frac}

    def _write_instruction(self) -> str:
        config = self.config
        names = self.action_names or ()
        start = " A part of the field is revealed at the start." if config.opened else ""
        if config.no_guess:
            start += " You never need to guess: some hidden cell can always be proved safe."
        progress = f" Safe cells earn {config.progress_reward:g} in all, each the same share." if config.progress_reward else ""
        return (
            f"You are playing Minesweeper on a field of {config.height} rows and {config.width} columns. "
            f"It hides {config.num_mines} mine{'s' if config.num_mines > 1 else ''}. "
            "Goal: reveal every cell that is not a mine. This ends the game with success. Revealing a mine loses the game.\n"
            f"{rules.HIDDEN} is a hidden cell. A number is a revealed cell: that many of the up to 8 cells around it are mines. "
            f"Revealing a 0 reveals all cells around it too.{start}\n"
            f"An action is the name of the cell to reveal: the letter of its column, then the number of its row, "
            f"from {names[0]} at the upper left to {names[-1]} at the lower right.\n"
            f"Winning earns a reward of 1.{progress} Revealing a mine earns {0.0 - config.mine_penalty:g}."
        )
