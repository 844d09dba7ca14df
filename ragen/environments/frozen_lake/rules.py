"""The frozen lake's rules as pure functions: where a move leads, how a lake is drawn, how a written map is read.

Cells are numbered row by row: the cell in row r and column c of a lake with w columns is r * w + c.
Source: FrozenLake-v1 of Gymnasium, with its order of directions and its slips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ragen.errors import ConfigError

ACTIONS = ("Left", "Down", "Right", "Up")  # in circular order: a slip goes to a neighbour in this list
_MAX_DRAWS = 1000
_MAP_SYMBOLS = "SFHG"  # start, frozen, hole, goal


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A lake of height x width cells. What is neither start, goal nor hole is ice."""

    height: int
    width: int
    start: int
    goal: int
    holes: frozenset[int]

    @property
    def num_cells(self) -> int:
        return self.height * self.width


@lru_cache(maxsize=64)
def neighbours(height: int, width: int) -> tuple[tuple[int, int, int, int], ...]:
    """For each cell the cells to its left, below, to its right and above; at the edge the cell itself."""
    return tuple(
        (
            row * width + max(column - 1, 0),
            min(row + 1, height - 1) * width + column,
            row * width + min(column + 1, width - 1),
            max(row - 1, 0) * width + column,
        )
        for row in range(height)
        for column in range(width)
    )


def slip(direction: int, chance: float, success_rate: float) -> int:
    """The direction in which a move of `direction` goes, for a `chance` drawn uniformly from [0, 1).

    The intended one with probability `success_rate`, otherwise one of the two perpendicular to it, each as likely.
    """
    if chance < success_rate:
        return direction
    return (direction + (1 if chance < (1.0 + success_rate) / 2 else 3)) % 4


def distance(a: int, b: int, width: int) -> int:
    """Moves from cell `a` to cell `b` if there were no holes."""
    return abs(a // width - b // width) + abs(a % width - b % width)


def is_reachable(lake: Lake) -> bool:
    """True if a walk over ice leads from the start to the goal."""
    seen, frontier = {lake.start}, [lake.start]
    around = neighbours(lake.height, lake.width)
    while frontier:
        for cell in around[frontier.pop()]:
            if cell not in seen and cell not in lake.holes:
                seen.add(cell)
                frontier.append(cell)
    return lake.goal in seen


def draw_lake(size: int, frozen_prob: float, min_distance: int, random: np.random.Generator) -> Lake:
    """Draw a square lake whose goal can be reached and lies at least `min_distance` from the start, 1 to 2 * (size - 1).

    Each cell is ice with probability `frozen_prob`, start and goal are two cells, all equally likely; a lake that does not fit
    is drawn again as a whole. Where a thousand draws do not fit (little ice, or a rare distance), the last resort does.
    """
    num_cells = size * size
    for _ in range(_MAX_DRAWS):
        *cells, first, second = random.random(num_cells + 2).tolist()
        start = int(first * num_cells)
        goal = int(second * (num_cells - 1))
        goal += goal >= start
        if distance(start, goal, size) < min_distance:
            continue
        lake = Lake(height=size, width=size, start=start, goal=goal, holes=_holes(cells, frozen_prob, {start, goal}))
        if is_reachable(lake):
            return lake
    return _last_resort(size, frozen_prob, min_distance, random)


def _holes(cells: Sequence[float], frozen_prob: float, ice: set[int]) -> frozenset[int]:
    return frozenset([cell for cell, chance in enumerate(cells) if chance >= frozen_prob and cell not in ice])


def _last_resort(size: int, frozen_prob: float, min_distance: int, random: np.random.Generator) -> Lake:
    """A lake that fits by construction: far enough apart, and the way along the start's column, then the goal's row, is ice."""
    cells = range(size * size)
    pairs = [(a, b) for a in cells for b in cells if distance(a, b, size) >= min_distance]
    start, goal = pairs[int(random.integers(len(pairs)))]
    rows = sorted((start // size, goal // size))
    columns = sorted((start % size, goal % size))
    way = {row * size + start % size for row in range(rows[0], rows[1] + 1)}
    way |= {goal // size * size + column for column in range(columns[0], columns[1] + 1)}
    holes = _holes(random.random(size * size).tolist(), frozen_prob, way)
    return Lake(height=size, width=size, start=start, goal=goal, holes=holes)


def read_map(rows: Sequence[str]) -> Lake:
    """The lake written as rows of S (start), F (frozen), H (hole) and G (goal).

    Raises ConfigError, beginning with "map=", unless all rows are equally long, there is one start and one goal, and a walk
    over ice leads from one to the other.
    """
    where = f"map={list(rows)}"
    text = "".join(rows)
    if not text or len({len(row) for row in rows}) > 1:
        raise ConfigError(f"{where}: must be rows of equal length, such as [SFF,FHF,FFG]")
    if unknown := sorted(set(text) - set(_MAP_SYMBOLS)):
        raise ConfigError(f"{where}: must hold S (start), F (frozen), H (hole) and G (goal) only, not {unknown[0]!r}")
    for symbol, meaning in (("S", "start"), ("G", "goal")):
        if (found := text.count(symbol)) != 1:
            raise ConfigError(f"{where}: must have exactly one {meaning} {symbol}, not {found}")
    holes = frozenset(cell for cell, symbol in enumerate(text) if symbol == "H")
    lake = Lake(height=len(rows), width=len(rows[0]), start=text.index("S"), goal=text.index("G"), holes=holes)
    if not is_reachable(lake):
        raise ConfigError(f"{where}: must let the goal be reached from the start without crossing a hole")
    return lake
