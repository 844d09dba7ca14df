"""The next move of somebody who knows the solution and plays the way a person would explain it."""

from __future__ import annotations

from ragen.environments.sudoku.rules import Cells, Move, Puzzle, candidates, conflicts


def best_move(puzzle: Puzzle, cells: Cells) -> Move | None:
    """Mend what is wrong, then fill the empty cell with the fewest candidates. None on a solved board.

    A wrong digit is overwritten where the right one breaks no rule. Where every right one does, because wrong digits are in each
    other's way, one of them is cleared.
    """
    wrong = [cell for cell, digit in enumerate(cells) if digit not in (0, puzzle.solution[cell])]
    mendable = [cell for cell in wrong if not conflicts(cells, cell, puzzle.solution[cell])]
    if mendable:
        return _move(puzzle, mendable[0], puzzle.solution[mendable[0]])
    if wrong:
        return _move(puzzle, wrong[0], 0)
    empty = [cell for cell, digit in enumerate(cells) if not digit]
    if not empty:
        return None
    easiest = min(empty, key=lambda cell: len(candidates(cells, cell)))
    return _move(puzzle, easiest, puzzle.solution[easiest])


def _move(puzzle: Puzzle, cell: int, digit: int) -> Move:
    return Move(row=cell // puzzle.size + 1, column=cell % puzzle.size + 1, digit=digit)
