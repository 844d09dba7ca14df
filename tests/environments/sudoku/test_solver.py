"""The solver against facts from elsewhere: the number of 4x4 grids, a puzzle in print, reasoning-gym's puzzles."""

from __future__ import annotations

import importlib

import pytest

from ragen.environments.sudoku.solver import solutions


def digits(text: str) -> tuple[int, ...]:
    return tuple(int(character) for character in text)


def test_there_are_288_four_by_four_grids() -> None:
    grids = solutions((0,) * 16, limit=1000)
    assert len(grids) == 288
    assert len(set(grids)) == 288


def test_a_well_known_puzzle_has_its_well_known_solution() -> None:
    puzzle = digits("530070000600195000098000060800060003400803001700020006060000280000419005000080079")
    solution = digits("534678912672195348198342567859761423426853791713924856961537284287419635345286179")
    assert solutions(puzzle, limit=2) == [solution]


def test_a_second_solution_is_found_where_there_is_one() -> None:
    # 1 and 2 may be swapped in the four empty corners of a rectangle.
    both = solutions((0, 0, 3, 4, 3, 4, 1, 2, 0, 0, 4, 3, 4, 3, 2, 1), limit=5)
    assert {grid[:2] for grid in both} == {(1, 2), (2, 1)}
    assert len(both) == 2


def test_cells_that_break_a_rule_or_leave_no_candidate_have_no_solution() -> None:
    assert solutions((1, 1, *(0,) * 14), limit=1) == []
    assert solutions((1, 2, 3, 0, *(0,) * 3, 4, *(0,) * 8), limit=1) == []


def test_the_order_of_digits_decides_which_grid_comes_first() -> None:
    ascending = solutions((0,) * 16, limit=1)[0]
    descending = solutions((0,) * 16, limit=1, digit_order=[(4, 3, 2, 1)] * 16)[0]
    assert ascending[:4] == (1, 2, 3, 4)
    assert descending[:4] == (4, 3, 2, 1)


@pytest.mark.parametrize("name", ["sudoku", "mini_sudoku"])
def test_reasoning_gyms_puzzles_have_reasoning_gyms_solutions(name: str) -> None:
    """Independent implementation: the generators of reasoning-gym, 9x9 and 4x4."""
    reasoning_gym = importlib.import_module("reasoning_gym")
    for entry in reasoning_gym.create_dataset(name, size=5, seed=1):
        puzzle = tuple(digit for row in entry["metadata"]["puzzle"] for digit in row)
        solution = tuple(digit for row in entry["metadata"]["solution"] for digit in row)
        assert solutions(puzzle, limit=2) == [solution]
