"""Sokoban's rules on drawn positions: # wall, _ floor, O target, √ box on target, X box, P player, S player on target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.sokoban.generate import RoomSpec, generate
from ragen.environments.sokoban.rules import ACTIONS, best_return, is_deadlocked, is_solved, play, reward
from tests.support.sokoban import bits, draw, redraw

STEP = {name: number for number, name in enumerate(ACTIONS)}


def one_move(name: str, *rows: str) -> tuple[str, float]:
    """The row in the middle after the action, and what it paid."""
    room, before = draw(*rows)
    after = play(room, before, room.steps[STEP[name]])
    return redraw(room, after).rows[1], reward(room, before.boxes, after.boxes)


@pytest.mark.parametrize(
    ("before", "after", "paid"),
    [
        ("#P__XO#", "#_P_XO#", -0.1),  # a walk
        ("#_P#XO#", "#_P#XO#", -0.1),  # against a wall
        ("#PX_XOO#", "#_PXXOO#", -0.1),  # a push over floor
        ("#PXOXO#", "#_P√XO#", 0.9),  # a push onto a target
        ("#P√_XO#", "#_SXXO#", -1.1),  # a push off a target, the player on it afterwards
        ("#P√OXO#", "#_S√XO#", -0.1),  # from target to target
        ("#S√_XOO#", "#OSXXOO#", -1.1),  # from one target to another under the player
        ("#PXO#", "#_P√#", 10.9),  # the last box
        ("#PXO√#", "#_P√√#", 10.9),  # the last of two
        ("#PX#OO#", "#PX#OO#", -0.1),  # a box against a wall
        ("#PXX_OO#", "#PXX_OO#", -0.1),  # two boxes in a row
        ("#PX√_O#", "#PX√_O#", -0.1),  # a box on a target blocks as well
        ("#S__X#", "#OP_X#", -0.1),  # a walk off a target
        ("#PO_X#", "#_S_X#", -0.1),  # and onto one
    ],
)
def test_moves_to_the_right(before: str, after: str, paid: float) -> None:
    wall = "#" * len(before)
    assert one_move("Right", wall, before, wall) == (after, paid)


def test_a_box_is_not_pulled() -> None:
    assert one_move("Left", "#######", "#__PXO#", "#######") == ("#_P_XO#", -0.1)


def test_each_name_moves_in_its_direction() -> None:
    """Bug-log row 37: what an action does is looked up under its name, and no number stands between."""
    room, start = draw("#####", "#_X_#", "#XPO#", "#_O_#", "#####")
    drawn = {name: redraw(room, play(room, start, room.steps[STEP[name]])).rows for name in ACTIONS}
    assert drawn == {
        "Up": ("#####", "#_X_#", "#XPO#", "#_O_#", "#####"),  # blocked: the wall is behind the box
        "Down": ("#####", "#_X_#", "#X_O#", "#_S_#", "#####"),
        "Left": ("#####", "#_X_#", "#XPO#", "#_O_#", "#####"),
        "Right": ("#####", "#_X_#", "#X_S#", "#_O_#", "#####"),
    }


def test_the_rewards_of_a_solution_add_up_to_the_best_return_whatever_the_way() -> None:
    """Worked by hand: ten moves, of which the first pushes a box off its target and the sixth brings it back."""
    room, start = draw("#######", "#_P√__#", "#_____#", "#___XO#", "#######")
    state, paid = start, []
    for name in ("Right", "Down", "Right", "Right", "Up", "Left", "Down", "Left", "Down", "Right"):
        after = play(room, state, room.steps[STEP[name]])
        paid.append(reward(room, state.boxes, after.boxes))
        state = after
    assert paid == [-1.1, -0.1, -0.1, -0.1, -0.1, 0.9, -0.1, -0.1, -0.1, 10.9]
    assert best_return(room, start, 10) == 10.0  # one box off its target at the start: 1 + 10 - 10 * 0.1
    assert sum(paid) == pytest.approx(10.0)


def test_a_room_is_solved_when_no_box_is_off_its_target() -> None:
    room, state = draw("######", "#P√√_#", "######")
    assert is_solved(room, state.boxes)
    room, state = draw("######", "#P√XO#", "######")
    assert not is_solved(room, state.boxes)


def test_dead_cells_are_those_from_which_a_lone_box_reaches_no_target() -> None:
    room, _ = draw("#######", "#_____#", "#__O__#", "#P____#", "#######")
    dead = {divmod(cell, 7) for cell in range(35) if room.dead >> cell & 1}
    # Along a wall a box can only slide; no target lies beside one. Pushed in the middle row it arrives.
    assert dead == {(1, c) for c in range(1, 6)} | {(3, c) for c in range(1, 6)} | {(2, 1), (2, 5)}


LOST = {
    "a corner": ("#####", "#X__#", "#_PO#", "#####"),
    "a wall without targets": ("######", "#__X_#", "#____#", "#P_O_#", "######"),
    "four boxes in a block": ("########", "#______#", "#_XX___#", "#_XXOO_#", "#_P_OO_#", "########"),
    "three boxes and a wall": ("#######", "#_OOO_#", "#__X#_#", "#__XXP#", "#_____#", "#######"),
    "two boxes side by side at a wall": ("#######", "#_XXOO#", "#_____#", "#_P___#", "#######"),
    "a box kept by one on its target": ("#######", "#_X√O_#", "#_P___#", "#_____#", "#######"),
}
OPEN = {
    "a corner with a target": ("#####", "#√P_#", "#_XO#", "#___#", "#####"),
    "two boxes side by side in the open": ("#######", "#_____#", "#_XX__#", "#P__OO#", "#_____#", "#######"),
    "four boxes in a block, all on targets": ("#######", "#_____#", "#_√√_P#", "#_√√_X#", "#____O#", "#######"),
    "a wall with a target": ("######", "#O_X_#", "#__P_#", "######"),
    "one box behind the other": ("#######", "#__OO_#", "#__XX_#", "#_____#", "#_P___#", "#######"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_deadlock_is_seen(name: str) -> None:
    room, state = draw(*LOST[name])
    assert is_deadlocked(room, state.boxes)
    assert redraw(room, state).fewest_moves() is None


@pytest.mark.parametrize("name", OPEN)
def test_what_can_be_solved_is_no_deadlock(name: str) -> None:
    room, state = draw(*OPEN[name])
    assert not is_deadlocked(room, state.boxes)
    assert redraw(room, state).fewest_moves() is not None


SPECS = {
    "one box": RoomSpec(height=6, width=6, num_boxes=1, search_depth=300, min_solution_length=1, max_solution_length=None),
    "two boxes": RoomSpec(height=6, width=6, num_boxes=2, search_depth=30, min_solution_length=1, max_solution_length=None),
    "three boxes": RoomSpec(height=5, width=6, num_boxes=3, search_depth=30, min_solution_length=1, max_solution_length=None),
}


@pytest.mark.parametrize("kind", SPECS)
def test_a_deadlock_is_never_seen_where_an_exhaustive_search_finds_a_solution(kind: str) -> None:
    """The search of tests/support/sokoban.py, which knows nothing of deadlocks, over every position that can be reached."""
    num_positions = num_lost = num_seen = 0
    for seed in range(80):
        puzzle = generate(SPECS[kind], np.random.default_rng(seed))
        assert puzzle is not None
        drawing = redraw(puzzle.room, puzzle.start)
        solvable = drawing.solvable()
        for position in drawing.reachable():
            deadlocked = is_deadlocked(puzzle.room, bits(puzzle.room, position).boxes)
            assert not (deadlocked and position in solvable)
            num_positions += 1
            num_lost += position not in solvable
            num_seen += deadlocked
    assert num_positions > 3000
    assert num_seen > num_lost / 2  # what the two patterns miss are boxes that the player cannot get behind


@given(seed=st.integers(0, 300), kind=st.sampled_from(sorted(SPECS)), names=st.lists(st.sampled_from(ACTIONS), max_size=40))
def test_play_follows_the_rules_as_a_person_says_them(seed: int, kind: str, names: list[str]) -> None:
    """Against the second implementation in tests/support/sokoban.py; a deadlock, once there, never goes away."""
    puzzle = generate(SPECS[kind], np.random.default_rng(seed))
    assert puzzle is not None
    room, state = puzzle.room, puzzle.start
    drawing = redraw(room, state)
    position = drawing.position
    lost = False
    for name in names:
        state, position = play(room, state, room.steps[STEP[name]]), drawing.after(position, name)
        assert state == bits(room, position)
        assert is_deadlocked(room, state.boxes) >= lost
        lost = is_deadlocked(room, state.boxes)
