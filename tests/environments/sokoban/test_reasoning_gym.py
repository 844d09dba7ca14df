"""Rules and solutions against reasoning-gym's Sokoban, written by others: its game plays our solutions, we solve its puzzles.

Its symbols: + wall, - floor, X target, $ box on target, @ box, * player, % player on target.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from ragen.environments.sokoban.generate import RoomSpec, generate
from ragen.environments.sokoban.rules import ACTIONS, play
from ragen.environments.sokoban.solver import shortest_solution
from tests.support.sokoban import draw, redraw

reasoning_gym = importlib.import_module("reasoning_gym")
game_module = importlib.import_module("reasoning_gym.games.contrib.sokoban.src.game")

TO_THEIRS = str.maketrans("#_O√XPS", "+-X$@*%")
TO_OURS = str.maketrans("+-X$@*%", "#_O√XPS")


def spec(num_boxes: int, search_depth: int) -> RoomSpec:
    return RoomSpec(
        height=6,
        width=7,
        num_boxes=num_boxes,
        search_depth=search_depth,
        min_solution_length=1,
        max_solution_length=None,
    )


@pytest.mark.parametrize("num_boxes", [1, 2, 3])
def test_its_game_goes_where_ours_goes(num_boxes: int) -> None:
    for seed in range(40):
        puzzle = generate(spec(num_boxes, 20), np.random.default_rng(seed))
        assert puzzle is not None
        room, state = puzzle.room, puzzle.start
        rows = [list(row.translate(TO_THEIRS)) for row in redraw(room, state).rows]
        game = game_module.Game(height=room.height, width=room.width)
        game.load_puzzle_matrix(np.array(rows))
        for action in np.random.default_rng(seed).integers(4, size=30).tolist():
            game.player.update(key=ACTIONS[action][0])
            state = play(room, state, room.steps[action])
            theirs = ["".join(row).translate(TO_OURS) for row in game.get_matrix().tolist()]
            assert theirs == list(redraw(room, state).rows)


@pytest.mark.parametrize("num_boxes", [1, 2, 3])
def test_its_scorer_accepts_our_solutions(num_boxes: int) -> None:
    dataset = reasoning_gym.create_dataset("sokoban", size=1, seed=1)
    for seed in range(40):
        puzzle = generate(spec(num_boxes, 20), np.random.default_rng(seed))
        assert puzzle is not None
        drawn = "\n".join(redraw(puzzle.room, puzzle.start).rows).translate(TO_THEIRS)
        for solution in (shortest_solution(puzzle.room, puzzle.start), puzzle.proof):
            assert solution is not None
            answer = "".join(ACTIONS[action][0] for action in solution)
            assert dataset.score_answer(answer, {"metadata": {"gamestr": drawn}}) == 1.0
            assert dataset.score_answer(answer[:-1], {"metadata": {"gamestr": drawn}}) == 0.0


def test_we_solve_its_puzzles_in_no_more_moves_than_it_does() -> None:
    dataset = reasoning_gym.create_dataset(
        "sokoban", size=40, seed=7, min_w=6, max_w=8, min_h=6, max_h=8, min_boxes=1, max_boxes=3
    )
    num_shorter = 0
    for entry in dataset:
        rows = entry["metadata"]["gamestr"].replace(" ", "").strip().splitlines()
        solution = shortest_solution(*draw(*(row.translate(TO_OURS) for row in rows)))
        assert solution is not None
        assert len(solution) <= len(entry["answer"])
        num_shorter += len(solution) < len(entry["answer"])
        assert dataset.score_answer("".join(ACTIONS[action][0] for action in solution), entry) == 1.0
    assert num_shorter > 0  # its A* does not look for the fewest moves
