"""MiniGrid's codes in words and as a map. Expected texts are worked by hand from small views and maps."""

from __future__ import annotations

import numpy as np
import pytest

from ragen.environments.adapters.minigrid_text import Cell, Codes, describe_view, draw, legend, name_of, symbol

UNSEEN, FREE, WALL = (0, 0, 0), (1, 0, 0), (2, 5, 0)
OPEN, CLOSED, LOCKED = (4, 2, 0), (4, 2, 1), (4, 2, 2)
RED_BALL, GREY_KEY, PURPLE_BOX, GOAL, LAVA, FLOOR = (6, 0, 0), (5, 5, 0), (7, 3, 0), (8, 1, 0), (9, 0, 0), (3, 2, 0)


def codes(*rows: tuple[Cell, ...]) -> Codes:
    """Rows as one sees them, turned into MiniGrid's [column, row, 3]."""
    return np.array(rows, dtype=np.uint8).transpose(1, 0, 2)


# The agent stands in the middle of the last row and looks up.
VIEW = codes(
    (UNSEEN, WALL, WALL, WALL, UNSEEN),
    (UNSEEN, FREE, FREE, RED_BALL, UNSEEN),
    (GREY_KEY, FREE, OPEN, FREE, UNSEEN),
    (WALL, FREE, FREE, LAVA, GOAL),
    (WALL, FREE, FREE, FREE, UNSEEN),
)


def test_a_view_in_words_from_where_the_agent_looks() -> None:
    assert describe_view(VIEW, None).splitlines() == [
        "Ahead: 3 free, then a wall.",
        "Left: 1 free, then a wall.",
        "Right: 1 free, then out of sight.",
        "In sight: lava (1 ahead, 1 right); open blue door (2 ahead); green goal (1 ahead, 2 right); "
        "grey key (2 ahead, 2 left); red ball (3 ahead, 1 right).",
    ]


@pytest.mark.parametrize(
    ("heading", "ahead", "left", "right"),
    [(0, "East", "North", "South"), (1, "South", "East", "West"), (2, "West", "South", "North"), (3, "North", "West", "East")],
)
def test_the_same_view_by_the_compass(heading: int, ahead: str, left: str, right: str) -> None:
    lines = describe_view(VIEW, heading).splitlines()
    assert lines[:3] == [
        f"{ahead}: 3 free, then a wall.",
        f"{left}: 1 free, then a wall.",
        f"{right}: 1 free, then out of sight.",
    ]
    assert f"lava (1 {ahead.lower()}, 1 {right.lower()})" in lines[3]
    assert f"grey key (2 {ahead.lower()}, 2 {left.lower()})" in lines[3]


def test_what_stands_next_to_the_agent_and_what_it_carries() -> None:
    view = codes((UNSEEN, UNSEEN, UNSEEN), (WALL, CLOSED, WALL), (PURPLE_BOX, RED_BALL, OPEN))  # the ball is in its hands
    assert describe_view(view, None).splitlines() == [
        "Ahead: a closed blue door.",
        "Left: a purple box.",
        "Right: 1 free, then out of sight.",
        "In sight: purple box (1 left); open blue door (1 right); closed blue door (1 ahead).",
    ]
    bare = codes((WALL, WALL, WALL), (LAVA, LAVA, FREE), (FREE, FREE, FREE))
    assert describe_view(bare, None).splitlines()[0] == "Ahead: lava."
    empty = codes((WALL, WALL, WALL), (WALL, FLOOR, WALL), (WALL, FREE, WALL))
    assert describe_view(empty, None).splitlines()[-1] == "In sight: no objects."


def test_a_map_is_drawn_with_north_up_and_the_agent_on_top() -> None:
    grid = codes((WALL, WALL, WALL, WALL), (WALL, RED_BALL, LOCKED, GOAL), (LAVA, FREE, GREY_KEY, FLOOR))
    assert draw(grid, (1, 2), 2).splitlines() == ["## ## ## ##", "## Br Lb GG", "~~ << Ke .."]
    assert [draw(grid, (3, 2), heading).split()[-1] for heading in range(4)] == [">>", "vv", "<<", "^^"]


def test_the_legend_names_what_is_there_and_what_it_may_become() -> None:
    always = "## wall, .. free, >> vv << ^^ you, facing east, south, west, north"
    assert legend([WALL, FREE, FLOOR]) == always
    assert legend([CLOSED, RED_BALL, RED_BALL]) == f"{always}, Ob open blue door, Db closed blue door, Br red ball"
    assert legend([GOAL, LOCKED]) == (f"{always}, Ob open blue door, Db closed blue door, Lb locked blue door, GG green goal")


def test_no_two_things_share_a_symbol_or_a_name() -> None:
    doors = [(4, colour, state) for colour in range(6) for state in range(3)]
    things = [(kind, colour, 0) for kind in (5, 6, 7) for colour in range(6)]
    cells = [*doors, *things, GOAL, LAVA, WALL]
    assert len({symbol(cell) for cell in cells}) == len({name_of(cell) for cell in cells}) == len(cells)
    assert ".." not in {symbol(cell) for cell in cells}
