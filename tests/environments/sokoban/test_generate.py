"""Rooms: solvable, never solved at the start, as long as asked, the same for a seed, made by the published procedure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.sokoban.generate import Puzzle, RoomSpec, generate
from ragen.environments.sokoban.rules import cells, is_solved, play
from tests.support.sokoban import redraw

SMALL = RoomSpec(height=6, width=6, num_boxes=1, search_depth=300, min_solution_length=1, max_solution_length=None)


def make(spec: RoomSpec, seed: int) -> Puzzle:
    puzzle = generate(spec, np.random.default_rng(seed))
    assert puzzle is not None
    return puzzle


@given(
    height=st.integers(5, 9),
    width=st.integers(5, 9),
    num_boxes=st.integers(1, 2),
    search_depth=st.integers(8, 40),
    seed=st.integers(0, 2**32),
)
def test_a_room_is_walled_in_and_its_proof_solves_it(
    height: int, width: int, num_boxes: int, search_depth: int, seed: int
) -> None:
    puzzle = make(replace(SMALL, height=height, width=width, num_boxes=num_boxes, search_depth=search_depth), seed)
    drawing = redraw(puzzle.room, puzzle.start)
    assert (len(drawing.rows), {len(row) for row in drawing.rows}) == (height, {width})
    assert set(drawing.rows[0] + drawing.rows[-1]) == {"#"}
    assert {row[0] + row[-1] for row in drawing.rows} == {"##"}
    assert len(drawing.find("X")) == len(drawing.find("OS")) == num_boxes
    assert len(drawing.find("PS")) == 1
    assert not drawing.find("√")
    position = drawing.position
    for action in puzzle.proof:
        position = drawing.after(position, ("Up", "Down", "Left", "Right")[action])
    assert drawing.is_solved(position)


def test_the_smallest_room_with_two_boxes_comes_about_for_each_of_five_hundred_seeds() -> None:
    """Bug-log row 34: retries are bounded, end in a room, and depend on the seed alone."""
    spec = replace(SMALL, height=5, width=5, num_boxes=2)
    rooms = [make(spec, seed) for seed in range(500)]
    assert rooms == [make(spec, seed) for seed in range(500)]
    assert len({(puzzle.room.floor, puzzle.room.targets, puzzle.start) for puzzle in rooms}) > 200
    for puzzle in rooms[::10]:
        assert redraw(puzzle.room, puzzle.start).fewest_moves() is not None


@pytest.mark.parametrize(("fewest", "most"), [(1, 1), (2, 2), (4, 6), (9, None), (1, 3), (12, 14)])
def test_the_length_of_the_shortest_solution_is_within_the_bounds(fewest: int, most: int | None) -> None:
    """Measured by the plain search of tests/support/sokoban.py. Both bounds are met: neither is off by one."""
    spec = replace(SMALL, num_boxes=1 if fewest < 12 else 2, min_solution_length=fewest, max_solution_length=most)
    lengths = set()
    for seed in range(60):
        puzzle = make(spec, seed)
        lengths.add(redraw(puzzle.room, puzzle.start).fewest_moves())
    assert min(lengths) == fewest
    assert max(lengths) == most or (most is None and max(lengths) > fewest)


def test_a_range_that_no_room_meets_ends_after_the_tries_allowed() -> None:
    assert generate(replace(SMALL, min_solution_length=80), np.random.default_rng(0), max_tries=50) is None


def test_two_boxes_that_change_places_are_no_puzzle() -> None:
    """A reverse play may bring each box onto the other's target; such a state scores nothing however far the boxes went."""
    spec = replace(SMALL, num_boxes=2)
    for seed in range(200):
        puzzle = make(spec, seed)
        assert not puzzle.start.boxes & puzzle.room.targets


def test_one_box_goes_as_far_from_its_target_as_compulsory_pulls_take_it() -> None:
    """The score of the reverse play, recomputed: the pulled box changes once, so that displacement alone decides."""
    for seed in range(150):
        puzzle = make(SMALL, seed)
        room = puzzle.room
        (target,), (box,) = cells(room.targets), cells(puzzle.start.boxes)
        farthest = max(_distance(target, cell, room.width) for _, cell in _pulled(puzzle, target))
        assert _distance(target, box, room.width) == farthest


def _distance(a: int, b: int, width: int) -> int:
    (y, x), (v, u) = divmod(a, width), divmod(b, width)
    return abs(y - v) + abs(x - u)


def _pulled(puzzle: Puzzle, target: int) -> set[tuple[int, int]]:
    """(player, box) of every state that playing backwards reaches from the solved one in which the proof ends."""
    room, state = puzzle.room, puzzle.start
    for action in puzzle.proof:
        state = play(room, state, room.steps[action])
    assert is_solved(room, state.boxes)
    reached = {(state.player, target)}
    queue = list(reached)
    while queue:
        player, box = queue.pop()
        for step in (-room.width, room.width, -1, 1):
            if room.floor >> player + step & 1 and player + step != box:
                following = (player + step, player if player - step == box else box)
                if following not in reached:
                    reached.add(following)
                    queue.append(following)
    return reached


def test_the_players_last_walk_is_short_and_leaves_the_boxes_alone() -> None:
    """Seen from the proofs at search depth 3: at most three moves of the walk, then at most three of the reverse play."""
    lengths = [len(make(replace(SMALL, width=10, search_depth=3), seed).proof) for seed in range(1500)]
    assert set(lengths) == {1, 2, 3, 4, 5, 6}
