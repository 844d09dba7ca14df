"""The solver: shortest solutions worked by hand, and against the plain search of tests/support/sokoban.py."""

from __future__ import annotations

import numpy as np
import pytest

from ragen.environments.sokoban.generate import RoomSpec, generate
from ragen.environments.sokoban.rules import ACTIONS, Room, State, is_solved, play
from ragen.environments.sokoban.solver import SearchLimitError, is_solved_within, shortest_solution
from tests.support.sokoban import bits, draw, redraw


def names(actions: tuple[int, ...] | None) -> str | None:
    """U, D, L, R for the actions of a solution."""
    return None if actions is None else "".join(ACTIONS[action][0] for action in actions)


@pytest.mark.parametrize(
    ("rows", "solution"),
    [
        (("######", "#PX_O#", "######"), "RR"),
        (("######", "#O_XP#", "######"), "LL"),
        (("#####", "#O__#", "#_X_#", "#__P#", "#####"), "LURUL"),
        (("#######", "#_____#", "#OX_P_#", "#_____#", "#######"), "LL"),
        (("#######", "#_____#", "#OXX_P#", "#__O__#", "#######"), "LULDL"),
        (("######", "#XP_O#", "######"), None),
        (("######", "#P_√_#", "######"), ""),
    ],
)
def test_solutions_of_drawn_rooms(rows: tuple[str, ...], solution: str | None) -> None:
    room, start = draw(*rows)
    assert names(shortest_solution(room, start)) == solution


@pytest.mark.parametrize(("height", "width", "num_boxes", "search_depth"), [(6, 6, 1, 300), (6, 7, 2, 20), (5, 6, 3, 20)])
def test_every_answer_is_that_of_a_plain_search(height: int, width: int, num_boxes: int, search_depth: int) -> None:
    """From generated starts and from positions scattered over what can be reached, lost ones among them."""
    spec = RoomSpec(
        height=height,
        width=width,
        num_boxes=num_boxes,
        search_depth=search_depth,
        min_solution_length=1,
        max_solution_length=None,
    )
    num_lost = 0
    for seed in range(30):
        puzzle = generate(spec, np.random.default_rng(seed))
        assert puzzle is not None
        room = puzzle.room
        positions = list(redraw(room, puzzle.start).reachable())
        for state in (puzzle.start, *(bits(room, position) for position in positions[:: 1 + len(positions) // 4])):
            expected = redraw(room, state).fewest_moves()
            solution = shortest_solution(room, state)
            num_lost += solution is None
            assert (None if solution is None else len(solution)) == expected
            if solution is not None:
                assert is_solved(room, _end(room, state, solution).boxes)
                assert is_solved_within(room, state, len(solution))
                assert not solution or not is_solved_within(room, state, len(solution) - 1)
    assert num_lost > 10


def test_a_search_that_grows_too_large_gives_up_with_an_error() -> None:
    room, start = draw("########", "#______#", "#PX___O#", "#______#", "########")
    with pytest.raises(SearchLimitError, match="3 arrangements"):
        shortest_solution(room, start, max_entries=3)


def _end(room: Room, state: State, solution: tuple[int, ...]) -> State:
    for action in solution:
        state = play(room, state, room.steps[action])
    return state
