"""Sudoku in words: how a move is read and written, how a board looks."""

from __future__ import annotations

import re
from collections.abc import Callable

from ragen.environments.sudoku.rules import Cells, Move, Puzzle, candidates

MAX_CHARACTERS = 100
MAX_LISTED = 10  # cells whose candidates are listed

_SPELLINGS = (
    r"(?:place )?N at row R ?,? col(?:umn)? C",
    r"(?:place )?N at R ?, ?C",
    r"(?:place )?N at \( ?R ?, ?C ?\)",
    r"R ?, ?C ?, ?N",
    r"\( ?R ?, ?C ?, ?N ?\)",
    r"clear row R ?,? col(?:umn)? C",
    r"clear R ?, ?C",
    r"clear \( ?R ?, ?C ?\)",
)
_GROUPS = {"R": "(?P<row>[0-9]{1,3})", "C": "(?P<column>[0-9]{1,3})", "N": "(?P<digit>[0-9]{1,3})"}
_PATTERNS = tuple(re.compile(re.sub("[RCN]", lambda letter: _GROUPS[letter[0]], spelling)) for spelling in _SPELLINGS)

_GIVEN = tuple(f"[{digit}]" for digit in range(10))
_OWN = (" . ", *(f" {digit} " for digit in range(1, 10)))


class MoveError(ValueError):
    """The text is no move on this board. The message says why, in one line."""


def read_move(text: str, size: int) -> Move:
    """The move that `text` spells. Case, white space and a full stop at the end do not matter. Raises MoveError."""
    plain = " ".join(text.lower().split()).removesuffix(".") if len(text) <= MAX_CHARACTERS else ""
    match = next((match for pattern in _PATTERNS if (match := pattern.fullmatch(plain))), None)
    if match is None:
        raise MoveError("This is not a move. Write a move like: place 3 at row 1 col 2")
    numbers = {name: int(number) for name, number in match.groupdict().items()}
    for name, number in numbers.items():
        if not 1 <= number <= size:
            raise MoveError(f"There is no {name} {number}: rows, columns and digits go from 1 to {size}.")
    return Move(row=numbers["row"], column=numbers["column"], digit=numbers.get("digit", 0))


def write_move(move: Move) -> str:
    """The spelling that the instruction teaches."""
    place = f"row {move.row} col {move.column}"
    return f"place {move.digit} at {place}" if move.digit else f"clear {place}"


def simple_board(puzzle: Puzzle, cells: Cells) -> str:
    """Rows of digits, a dot where a cell is empty."""
    size = puzzle.size
    return "\n".join(" ".join(map(str, cells[start : start + size])) for start in range(0, size * size, size)).replace("0", ".")


def detailed_board(puzzle: Puzzle, cells: Cells) -> str:
    """Numbered rows and columns, lines between the boxes, given digits in brackets."""
    size, side = puzzle.size, int(puzzle.size**0.5)
    pieces = [_GIVEN[digit] if given else _OWN[digit] for given, digit in zip(puzzle.givens, cells, strict=True)]
    boxes = ["".join(pieces[start : start + side]) for start in range(0, size * size, side)]
    numbers = ["".join(_OWN[start + 1 : start + side + 1]) for start in range(0, size, side)]
    lines = ["col   " + " ".join(numbers)]
    for row in range(size):
        if row and row % side == 0:
            lines.append("      " + "+".join(["---" * side] * side))
        lines.append(f"row {row + 1} " + "|".join(boxes[row * side : (row + 1) * side]))
    return "\n".join(line.rstrip() for line in lines)


BOARDS: dict[str, Callable[[Puzzle, Cells], str]] = {"simple": simple_board, "detailed": detailed_board}


def candidate_list(puzzle: Puzzle, cells: Cells) -> str:
    """One line for each empty cell with the digits that break no rule there: those with the fewest, up to MAX_LISTED."""
    found = [(cell, candidates(cells, cell)) for cell, digit in enumerate(cells) if not digit]
    shown = sorted(found, key=lambda pair: len(pair[1]))[:MAX_LISTED]
    which = "empty cells" if len(found) == len(shown) else f"{MAX_LISTED} empty cells with the fewest"
    lines = [
        f"row {cell // puzzle.size + 1} col {cell % puzzle.size + 1}: {' '.join(map(str, digits)) or 'none'}"
        for cell, digits in sorted(shown)
    ]
    return "\n".join([f"Candidates of the {which}:", *lines])
