"""What the agent reads, letter by letter."""

from __future__ import annotations

import pytest

from ragen.environments.sokoban.view import FORMATS, Symbols, build_view, instruction
from tests.support.sokoban import draw

USUAL = Symbols(*"#_O√XPS")
OTHER = Symbols(*"W.GCBA@")

ROOM = ("######", "#_OX_#", "#√#P##", "#__O_#", "#X#__#", "######")


def test_a_grid_has_a_row_per_line_and_a_symbol_per_cell() -> None:
    room, state = draw(*ROOM)
    assert build_view(room, "grid", USUAL).text(state) == "\n".join(ROOM)


def test_every_symbol_of_another_vocabulary_takes_its_place() -> None:
    room, state = draw(*ROOM)
    assert build_view(room, "grid", OTHER).text(state) == "WWWWWW\nW.GB.W\nWCWAWW\nW..G.W\nWBW..W\nWWWWWW"
    room, state = draw("######", "#SX__#", "######")
    assert build_view(room, "grid", OTHER).text(state) == "WWWWWW\nW@B..W\nWWWWWW"


def test_coordinates_name_everything_but_floor_and_border() -> None:
    room, state = draw(*ROOM)
    assert build_view(room, "coord", USUAL).text(state) == (
        "Board: 6 rows, 6 columns\n"
        "Walls: (2, 2), (2, 4), (4, 2)\n"
        "Targets: (1, 2), (3, 3)\n"
        "Boxes: (1, 3), (4, 1)\n"
        "Boxes on target: (2, 1)\n"
        "Player: (2, 3)"
    )


def test_coordinates_leave_out_what_there_is_none_of() -> None:
    room, state = draw("#####", "#S__#", "#_X_#", "#___#", "#####")
    assert build_view(room, "coord", USUAL).text(state) == ("Board: 5 rows, 5 columns\nBoxes: (2, 2)\nPlayer on target: (1, 1)")


def test_coordinates_and_grid_stand_under_their_headings_and_walls_are_not_said_twice() -> None:
    room, state = draw("#######", "#P#X_O#", "#######")
    assert build_view(room, "grid_coord", USUAL).text(state) == (
        "Coordinates:\nBoard: 3 rows, 7 columns\nTargets: (1, 5)\nBoxes: (1, 3)\nPlayer: (1, 1)\n"
        "Grid Map:\n#######\n#P#X_O#\n#######"
    )


@pytest.mark.parametrize("symbols", [USUAL, OTHER])
def test_the_legend_explains_the_symbols_in_use_and_no_others(symbols: Symbols) -> None:
    (legend,) = [line for line in instruction(6, 6, 1, "grid", symbols).splitlines() if line.startswith("Symbols: ")]
    explained = [entry.split(" ", 1) for entry in legend.removeprefix("Symbols: ").removesuffix(".").split(", ")]
    assert dict(explained) == {
        symbols.wall: "wall",
        symbols.floor: "floor",
        symbols.target: "target",
        symbols.box: "box",
        symbols.box_on_target: "box on a target",
        symbols.player: "you",
        symbols.player_on_target: "you on a target",
    }


def test_the_instruction_gives_the_true_range_of_coordinates() -> None:
    text = instruction(7, 9, 2, "coord", USUAL)
    assert "7 rows and 9 columns, 2 boxes and 2 targets" in text
    assert "from (0, 0) at the top left to (6, 8) at the bottom right" in text
    assert "Rows 0 and 6 and columns 0 and 8 are wall; Walls lists the other walls." in text
    assert "Symbols" not in text
    assert "Walls are shown in the grid map only." in instruction(7, 9, 2, "grid_coord", USUAL)
    assert "(0, 0)" not in instruction(7, 9, 2, "grid", USUAL)


@pytest.mark.parametrize("observation_format", FORMATS)
def test_the_instruction_says_goal_actions_rewards_and_success(observation_format: str) -> None:
    one, two = (instruction(6, 6, num_boxes, observation_format, USUAL) for num_boxes in (1, 2))
    for text in (one, two):
        assert "Actions: Up, Down, Left, Right." in text
        assert "you cannot pull" in text
        assert "-0.1 for each action" in text
        assert "That is success" in text
    assert "+11 when the box comes onto the target" in one
    assert "+1 when a box comes onto a target, -1 when a box leaves a target, +10 when all boxes are on targets" in two
    assert "1 box and 1 target" in one
