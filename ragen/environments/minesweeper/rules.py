"""The rules of Minesweeper as pure functions. Cells are numbered row by row from the upper left, 0 to height * width - 1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

HIDDEN, MINE = "#", "*"
Cells = tuple[int, ...]


@lru_cache(64)
def neighbours(height: int, width: int) -> tuple[Cells, ...]:
    """For each cell the 3, 5 or 8 cells around it, in order."""
    return tuple(
        tuple(
            y * width + x
            for y in range(max(0, cell // width - 1), min(height, cell // width + 2))
            for x in range(max(0, cell % width - 1), min(width, cell % width + 2))
            if y * width + x != cell
        )
        for cell in range(height * width)
    )


@lru_cache(64)
def cell_names(height: int, width: int) -> tuple[str, ...]:
    """What the cells are called: the letter of the column, from A at the left, and the number of the row, from 1 at the top."""
    return tuple(f"{chr(ord('A') + x)}{y + 1}" for y in range(height) for x in range(width))


@dataclass(frozen=True, kw_only=True)
class Field:
    """Where the mines lie, and what follows from it."""

    height: int
    width: int
    mines: frozenset[int]
    numbers: Cells  # of every cell: how many of its neighbours are mines; meaningless for a mine
    opens: tuple[Cells, ...]  # of every cell: what revealing it shows; for a 0 its whole area of connected 0s with their border

    @property
    def num_cells(self) -> int:
        return len(self.numbers)

    @property
    def num_safe(self) -> int:
        return self.num_cells - len(self.mines)


def lay(height: int, width: int, mines: Iterable[int]) -> Field:
    """The field with these mines."""
    laid = frozenset(mines)
    around = neighbours(height, width)
    numbers = tuple(sum(cell in laid for cell in cells) for cells in around)
    opens: list[Cells] = [(cell,) for cell in range(height * width)]
    for cell, number in enumerate(numbers):
        if number == 0 and cell not in laid and len(opens[cell]) == 1:
            area = _area(cell, numbers, around)
            for member in area:
                if numbers[member] == 0:
                    opens[member] = area
    return Field(height=height, width=width, mines=laid, numbers=numbers, opens=tuple(opens))


def _area(start: int, numbers: Cells, around: tuple[Cells, ...]) -> Cells:
    """All cells that a chain of 0s joins to the 0 at `start`, the cells at its border included. None of them is a mine."""
    found = {start}
    waiting = [start]
    while waiting:
        for cell in around[waiting.pop()]:
            if cell not in found:
                found.add(cell)
                if numbers[cell] == 0:
                    waiting.append(cell)
    return tuple(sorted(found))


def blank(height: int, width: int) -> tuple[list[str], Cells]:
    """(a picture in which every cell is hidden, as pieces of text to join; for every cell the number of its piece).

    Above the rows stand the letters of the columns, beside them the numbers of the rows.
    """
    margin = len(str(height))
    pieces = [" " * margin + "".join(f" {chr(ord('A') + x)}" for x in range(width))]
    places = []
    for y in range(height):
        pieces.append(f"\n{y + 1:>{margin}}")
        for _ in range(width):
            pieces += [" ", HIDDEN]
            places.append(len(pieces) - 1)
    return pieces, tuple(places)
