"""Puzzles: as many blanks as asked for, and one solution, by a solver that shares nothing with ours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ragen.environments.sudoku.generate import MAX_BLANKS, dig, draw_grid, draw_puzzle


def exact_covers(columns: dict[object, set[object]], rows: dict[object, list[object]]) -> Iterator[None]:
    """One None for each exact cover: Knuth's Algorithm X on dictionaries of sets."""
    if not columns:
        yield None
        return
    column = min(columns, key=lambda key: len(columns[key]))
    for row in list(columns[column]):
        removed = []
        for covered in rows[row]:
            for other in columns[covered]:
                for also in rows[other]:
                    if also != covered:
                        columns[also].remove(other)
            removed.append(columns.pop(covered))
        yield from exact_covers(columns, rows)
        for covered in reversed(rows[row]):
            columns[covered] = removed.pop()
            for other in columns[covered]:
                for also in rows[other]:
                    if also != covered:
                        columns[also].add(other)


def num_solutions(size: int, cells: tuple[int, ...]) -> int:
    """Sudoku as an exact cover of: each cell has a digit; each row, column and box has each digit."""
    side = int(size**0.5)
    rows: dict[object, list[object]] = {}
    for cell, held in enumerate(cells):
        row, column = divmod(cell, size)
        box = row // side * side + column // side
        for digit in [held] if held else range(1, size + 1):
            rows[cell, digit] = [("cell", cell), ("row", row, digit), ("column", column, digit), ("box", box, digit)]
    columns: dict[object, set[object]] = {key: set() for keys in rows.values() for key in keys}
    for row_key, keys in rows.items():
        for key in keys:
            columns[key].add(row_key)
    return sum(1 for _ in exact_covers(columns, rows))


def test_the_independent_solver_counts() -> None:
    assert num_solutions(4, (0,) * 16) == 288
    assert num_solutions(4, (0, 0, 3, 4, 3, 4, 1, 2, 0, 0, 4, 3, 4, 3, 2, 1)) == 2


@pytest.mark.parametrize(
    ("size", "num_blanks", "num_puzzles"), [(4, 6, 60), (4, 9, 60), (4, 12, 60), (9, 32, 4), (9, 48, 4), (9, 54, 4)]
)
def test_a_puzzle_has_its_blanks_and_exactly_one_solution(size: int, num_blanks: int, num_puzzles: int) -> None:
    random = np.random.default_rng(0)
    for _ in range(num_puzzles):
        puzzle = draw_puzzle(size, num_blanks, random, max_grids=100)
        assert puzzle is not None
        assert puzzle.num_blanks == puzzle.givens.count(0) == num_blanks
        assert all(digit in (0, right) for digit, right in zip(puzzle.givens, puzzle.solution, strict=True))
        assert num_solutions(size, puzzle.givens) == 1
        assert num_solutions(size, puzzle.solution) == 1  # so the solution itself breaks no rule


def test_every_four_by_four_grid_can_come() -> None:
    random = np.random.default_rng(0)
    assert len({draw_grid(4, random) for _ in range(5000)}) == 288


def test_blanks_are_spread_over_the_board() -> None:
    random = np.random.default_rng(0)
    times_blank = np.zeros(16)
    for _ in range(400):
        puzzle = draw_puzzle(4, 6, random, max_grids=100)
        assert puzzle is not None
        times_blank += np.array(puzzle.givens) == 0
    # 6 of 16 cells, so 150 times each, with a standard deviation of at most sqrt(400 * 0.375 * 0.625) = 9.7.
    assert abs(times_blank - 150).max() < 5 * 9.7


def test_emptying_stops_before_a_second_solution() -> None:
    grid = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
    # The corners of a rectangle with 1 and 2: the fourth must stay, whatever comes first.
    assert dig(grid, 3, [0, 1, 8, 9]) == (0, 0, 3, 4, 3, 4, 1, 2, 0, 1, 4, 3, 4, 3, 2, 1)
    assert dig(grid, 4, [0, 1, 8, 9]) is None
    assert dig(grid, 4, [0, 1, 8, 9, 15]) == (0, 0, 3, 4, 3, 4, 1, 2, 0, 1, 4, 3, 4, 3, 2, 0)


def test_a_grid_that_cannot_be_emptied_so_far_gives_way_to_another() -> None:
    assert draw_puzzle(4, 13, np.random.default_rng(0), max_grids=20) is None  # no puzzle of three givens is unique
    assert MAX_BLANKS[4] == 12
