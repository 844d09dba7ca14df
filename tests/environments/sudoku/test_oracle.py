"""The oracle: it fills the easiest cell, mends what is wrong, and solves from wherever it is put."""

from __future__ import annotations

import numpy as np
import pytest

from ragen.environments.sudoku.generate import draw_puzzle
from ragen.environments.sudoku.oracle import best_move
from ragen.environments.sudoku.rules import Board, Move, Puzzle, Scores, candidates, cell_of, play

SCORES = Scores(correct=1.0, invalid=-0.1, completion=10.0)
PUZZLE = Puzzle(
    size=4,
    givens=(0, 0, 3, 4, 3, 4, 1, 2, 0, 1, 4, 3, 4, 3, 2, 1),
    solution=(1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1),
)


def test_a_cell_with_one_candidate_comes_before_one_with_two() -> None:
    assert best_move(PUZZLE, PUZZLE.givens) == Move(row=1, column=2, digit=2)  # row 1 col 1 could be 1 or 2


def test_a_wrong_digit_is_overwritten_before_anything_else() -> None:
    assert best_move(PUZZLE, (2, *PUZZLE.givens[1:])) == Move(row=1, column=1, digit=1)


def test_wrong_digits_in_each_others_way_are_cleared() -> None:
    # 3 4 | . 1    row 3 col 4 must be 2 and row 4 col 3 must be 4: placed the other way round,
    # . 2 | 3 .    neither can be overwritten, since each right digit already stands in the box.
    # ----+----
    # . . | 1 4
    # . 1 | 2 3
    puzzle = Puzzle(
        size=4,
        givens=(3, 4, 0, 1, 0, 2, 3, 0, 0, 0, 1, 0, 0, 1, 0, 3),
        solution=(3, 4, 2, 1, 1, 2, 3, 4, 4, 3, 1, 2, 2, 1, 4, 3),
    )
    stuck = (3, 4, 0, 1, 0, 2, 3, 0, 0, 0, 1, 4, 0, 1, 2, 3)
    assert best_move(puzzle, stuck) == Move(row=3, column=4, digit=0)


def test_there_is_nothing_to_do_on_a_solved_board() -> None:
    assert best_move(PUZZLE, PUZZLE.solution) is None


@pytest.mark.parametrize(("size", "num_blanks", "num_puzzles"), [(4, 9, 100), (4, 12, 100), (9, 48, 5)])
def test_after_any_mistakes_the_board_is_solved_without_a_fine(size: int, num_blanks: int, num_puzzles: int) -> None:
    random = np.random.default_rng(0)
    for _ in range(num_puzzles):
        puzzle = draw_puzzle(size, num_blanks, random, max_grids=100)
        assert puzzle is not None
        cells = list(puzzle.givens)
        for cell in random.permutation(size * size).tolist():  # any legal digits, right or wrong, in half the cells
            if not cells[cell] and (legal := candidates(tuple(cells), cell)) and random.random() < 0.5:
                cells[cell] = legal[int(random.integers(len(legal)))]
        board, num_moves = Board(cells=tuple(cells)), 0
        while (move := best_move(puzzle, board.cells)) is not None:
            result = play(puzzle, board, move, SCORES, show_conflicts=True)
            assert result.effective, (puzzle, board, move)
            assert move.digit in (0, puzzle.solution[cell_of(size, move)])
            board, num_moves = result.board, num_moves + 1
        assert board.solved
        assert num_moves <= 2 * num_blanks  # each cell is cleared at most once and then filled for good
