"""Sudoku's rules as pure functions: what a placement does to a board and what it is worth.

A grid is a tuple of size * size digits, row by row, with 0 for an empty cell. A cell is an index into it.

Source: the Sudoku of the RAGEN code base, with its rewards.
Differs from the published: solutions are unique; a cell pays once, whatever is placed there later; a legal placement that
is not the solution's pays nothing (published: 0.5), since it has to be undone; cells can be cleared; sizes 4 and 9, not 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

Cells: TypeAlias = tuple[int, ...]


class Move(NamedTuple):
    """A digit for a cell, or 0 to clear it. Row and column count from 1, from the top left."""

    row: int
    column: int
    digit: int


@dataclass(frozen=True, kw_only=True)
class Puzzle:
    size: int  # 4 or 9
    givens: Cells  # 0 where the agent has to place a digit
    solution: Cells  # the only one

    @property
    def num_blanks(self) -> int:
        return self.givens.count(0)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Points: `correct` for the first right digit in a cell, `invalid` for a move refused, `completion` for a solved board."""

    correct: float
    invalid: float
    completion: float


@dataclass(frozen=True, kw_only=True)
class Board:
    """What stands on the board, and the cells that have paid already."""

    cells: Cells
    paid: frozenset[int] = frozenset()

    @property
    def solved(self) -> bool:
        """A full board is right: what breaks a rule is never placed, and there is one solution."""
        return 0 not in self.cells


@dataclass(frozen=True, kw_only=True)
class Result:
    """A move's outcome: the board after it, points, whether the board changed, and one line about it."""

    board: Board
    reward: float
    effective: bool
    feedback: str


def play(puzzle: Puzzle, board: Board, move: Move, scores: Scores, *, show_conflicts: bool) -> Result:
    """Place or clear a digit. A move into a given cell, or one that breaks a rule, is refused and changes nothing."""
    cell = cell_of(puzzle.size, move)
    place = f"row {move.row} col {move.column}"
    held = board.cells[cell]
    if puzzle.givens[cell]:
        return _refused(board, scores, f"The {held} at {place} is given and cannot be changed.")
    if held == move.digit:
        state = f"already holds {held}" if held else "is already empty"
        return Result(board=board, reward=0.0, effective=False, feedback=f"Nothing changed: {place} {state}.")
    if move.digit and (units := conflicts(board.cells, cell, move.digit)):
        where = f"{move.digit} is already in {' and '.join(units)}" if show_conflicts else "it breaks a rule"
        return _refused(board, scores, f"Cannot place {move.digit} at {place}: {where}.")
    cells = (*board.cells[:cell], move.digit, *board.cells[cell + 1 :])
    if not move.digit:
        after = Board(cells=cells, paid=board.paid)
        return Result(board=after, reward=0.0, effective=True, feedback=f"Cleared {place}.")
    pays = move.digit == puzzle.solution[cell] and cell not in board.paid
    after = Board(cells=cells, paid=board.paid | {cell} if pays else board.paid)
    reward = scores.correct * pays + scores.completion * after.solved
    feedback = f"Placed {move.digit} at {place}." + (" The Sudoku is solved." if after.solved else "")
    return Result(board=after, reward=reward, effective=True, feedback=feedback)


def conflicts(cells: Cells, cell: int, digit: int) -> tuple[str, ...]:
    """The units of `cell` that hold `digit` elsewhere, such as ("row 1", "the same box")."""
    size = int(len(cells) ** 0.5)
    names = (f"row {cell // size + 1}", f"col {cell % size + 1}", "the same box")
    return tuple(name for name, unit in zip(names, peers(size)[cell], strict=True) if any(cells[i] == digit for i in unit))


def candidates(cells: Cells, cell: int) -> tuple[int, ...]:
    """The digits that break no rule in `cell`, whatever it holds now, ascending."""
    size = int(len(cells) ** 0.5)
    taken = {cells[other] for unit in peers(size)[cell] for other in unit}
    return tuple(digit for digit in range(1, size + 1) if digit not in taken)


def cell_of(size: int, move: Move) -> int:
    return (move.row - 1) * size + move.column - 1


@cache
def box_of(size: int) -> tuple[int, ...]:
    """The box of every cell, boxes numbered row by row."""
    side = int(size**0.5)
    return tuple(row // side * side + column // side for row in range(size) for column in range(size))


@cache
def peers(size: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For every cell the other cells of its row, of its column and of its box."""
    cells = range(size * size)
    units_of = [(cell // size, cell % size, box_of(size)[cell]) for cell in cells]
    return tuple(
        tuple(tuple(other for other in cells if other != cell and units_of[other][k] == units_of[cell][k]) for k in range(3))
        for cell in cells
    )


def _refused(board: Board, scores: Scores, feedback: str) -> Result:
    return Result(board=board, reward=scores.invalid, effective=False, feedback=feedback)
