"""MiniGrid's codes as text: what the agent sees, in words, or the whole map, drawn. Pure functions on integer codes.

A cell is a triple (kind, colour, state) of MiniGrid's own numbers, a `Cell`. The partial view is an array [column, row, 3] in
which the agent stands in the middle of the last row and looks up; the whole map is [x, y, 3] with north up. Headings, also
MiniGrid's: 0 east, 1 south, 2 west, 3 north.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

Cell = tuple[int, int, int]
Codes = np.typing.NDArray[np.uint8]

UNSEEN, EMPTY, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA = range(10)
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOOR_STATES = ("open", "closed", "locked")
OPEN = 0
HEADINGS = ("east", "south", "west", "north")
VECTORS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (dx, dy) of each heading; y grows southwards

_NAMES = {KEY: "key", BALL: "ball", BOX: "box", GOAL: "green goal", LAVA: "lava", WALL: "wall"}
_LETTERS = {KEY: "K", BALL: "B", BOX: "X"}
_DOOR_LETTERS = ("O", "D", "L")
_COLOUR_LETTERS = "rgbpye"
_AGENT = (">>", "vv", "<<", "^^")


def name_of(cell: Cell) -> str:
    """For example "red ball", "locked blue door", "green goal"."""
    kind, colour, state = cell
    if kind == DOOR:
        return f"{DOOR_STATES[state]} {COLOURS[colour]} door"
    return f"{COLOURS[colour]} {_NAMES[kind]}" if kind in _LETTERS else _NAMES[kind]


def with_article(cell: Cell) -> str:
    name = name_of(cell)
    return name if cell[0] == LAVA else f"an {name}" if name.startswith("open") else f"a {name}"


def is_free(cell: Cell) -> bool:
    """Whether one can step there and live: floor, an open door, the goal."""
    return cell[0] in (EMPTY, FLOOR, GOAL) or (cell[0] == DOOR and cell[2] == OPEN)


def describe_view(view: Codes, heading: int | None) -> str:
    """The partial view in words: how far it goes ahead, left and right, then the objects in sight, nearest first.

    With a heading, directions are those of the compass; with None they are ahead, left and right.
    """
    size = len(view)
    middle, last = size // 2, size - 1
    cells = _cells(view)
    ahead, right, left = ("ahead", "right", "left") if heading is None else _turned(heading)
    rays = (
        (ahead, [cells[middle][row] for row in range(last - 1, -1, -1)]),
        (left, [cells[column][last] for column in range(middle - 1, -1, -1)]),
        (right, [cells[column][last] for column in range(middle + 1, size)]),
    )
    lines = [f"{word.capitalize()}: {_ray(ray)}" for word, ray in rays]
    seen = []
    for column in range(size):
        for row in range(size):
            cell = cells[column][row]
            if cell[0] >= DOOR and (column, row) != (middle, last):
                forward, sideways = last - row, column - middle
                place = _place(forward, sideways, ahead, right, left)
                seen.append((forward + abs(sideways), forward, sideways, f"{name_of(cell)} ({place})"))
    lines.append("In sight: " + ("; ".join(entry[-1] for entry in sorted(seen)) or "no objects") + ".")
    return "\n".join(lines)


def _turned(heading: int) -> tuple[str, str, str]:
    return HEADINGS[heading], HEADINGS[(heading + 1) % 4], HEADINGS[(heading + 3) % 4]


def _ray(ray: Sequence[Cell]) -> str:
    """What lies in one direction, cell by cell, up to the first that one cannot step on or see."""
    num_free = next((i for i, cell in enumerate(ray) if not is_free(cell)), len(ray))
    hidden = num_free == len(ray) or ray[num_free][0] == UNSEEN
    end = "out of sight" if hidden else with_article(ray[num_free])
    return f"{num_free} free, then {end}." if num_free else f"{end}."


def _place(forward: int, sideways: int, ahead: str, right: str, left: str) -> str:
    parts = [f"{forward} {ahead}"] if forward else []
    if sideways:
        parts.append(f"{abs(sideways)} {right if sideways > 0 else left}")
    return ", ".join(parts)


def draw(grid: Codes, agent: tuple[int, int], heading: int) -> str:
    """The whole map, two characters a cell, cells separated by spaces, rows from north to south."""
    rows = [[symbol(cell) for cell in row] for row in zip(*_cells(grid), strict=True)]
    rows[agent[1]][agent[0]] = _AGENT[heading]
    return "\n".join(" ".join(row) for row in rows)


def symbol(cell: Cell) -> str:
    """Two characters: what it is and its colour."""
    kind, colour, state = cell
    if kind == DOOR:
        return _DOOR_LETTERS[state] + _COLOUR_LETTERS[colour]
    if kind in _LETTERS:
        return _LETTERS[kind] + _COLOUR_LETTERS[colour]
    return {WALL: "##", GOAL: "GG", LAVA: "~~"}.get(kind, "..")


def legend(cells: Iterable[Cell]) -> str:
    """The meaning of every symbol that the map shows or may come to show: a door may open or close, a locked one be unlocked."""
    kinds: set[Cell] = set()
    for kind, colour, state in cells:
        if kind == DOOR:
            kinds.update((DOOR, colour, possible) for possible in ((0, 1, 2) if state == 2 else (0, 1)))
        elif kind >= KEY:
            kinds.add((kind, colour, 0))
    entries = [f"{symbol(cell)} {name_of(cell)}" for cell in sorted(kinds)]
    return ", ".join(["## wall", ".. free", ">> vv << ^^ you, facing east, south, west, north", *entries])


def cells_of(codes: Codes) -> list[Cell]:
    """All cells of a map, column by column."""
    return [cell for column in _cells(codes) for cell in column]


def _cells(codes: Codes) -> list[list[Cell]]:
    return [[(kind, colour, state) for kind, colour, state in column] for column in codes.tolist()]
