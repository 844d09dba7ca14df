"""Minesweeper fields drawn at random: with an opened area to start from, and solvable without guessing if that is asked for."""

from __future__ import annotations

import numpy as np

from ragen.environments.minesweeper.rules import Cells, Field, lay, neighbours
from ragen.environments.minesweeper.solver import solve
from ragen.errors import EnvironmentFailure

MAX_ATTEMPTS = 5_000


def closed_field(height: int, width: int, num_mines: int, random: np.random.Generator) -> Field:
    """A field whose mines lie anywhere."""
    return lay(height, width, random.choice(height * width, num_mines, replace=False).tolist())


def opened_field(
    height: int, width: int, num_mines: int, random: np.random.Generator, *, no_guess: bool
) -> tuple[Field, Cells, Cells | None]:
    """(a field, the cells that show at the start, with `no_guess` an order in which the rest can be revealed).

    The start is a cell without mines around it; at least one safe cell stays hidden. With `no_guess` the rest follows by logic.
    Raises EnvironmentFailure if 5 000 fields in a row were none of that kind.
    """
    around = neighbours(height, width)
    for _ in range(MAX_ATTEMPTS):
        start = int(random.integers(height * width))
        away = [cell for cell in range(height * width) if cell != start and cell not in around[start]]
        field = lay(height, width, random.choice(away, num_mines, replace=False).tolist())
        opened = field.opens[start]
        if len(opened) == field.num_safe:
            continue
        if not no_guess:
            return field, opened, None
        if order := solve(field, opened):
            return field, opened, order
    raise EnvironmentFailure(
        f"minesweeper: {MAX_ATTEMPTS} fields of {height}x{width} with {num_mines} mines, and none to start from; change num_mines"
    )
