"""Sudoku's rules on boards worked by hand, and what no sequence of moves can do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.sudoku.rules import Board, Move, Puzzle, Result, Scores, candidates, conflicts, peers, play

SCORES = Scores(correct=1.0, invalid=-0.1, completion=10.0)

# . . | 3 4     1 2 | 3 4
# 3 4 | 1 2     3 4 | 1 2
# ----+----     ----+----
# . 1 | 4 3     2 1 | 4 3
# 4 3 | 2 1     4 3 | 2 1
PUZZLE = Puzzle(
    size=4,
    givens=(0, 0, 3, 4, 3, 4, 1, 2, 0, 1, 4, 3, 4, 3, 2, 1),
    solution=(1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1),
)
START = Board(cells=PUZZLE.givens)


def move(board: Board, row: int, column: int, digit: int, *, show_conflicts: bool = True) -> Result:
    return play(PUZZLE, board, Move(row=row, column=column, digit=digit), SCORES, show_conflicts=show_conflicts)


def told(result: Result) -> tuple[float, bool, str]:
    return result.reward, result.effective, result.feedback


def test_the_right_digit_pays_one() -> None:
    result = move(START, 1, 1, 1)
    assert told(result) == (1.0, True, "Placed 1 at row 1 col 1.")
    assert result.board.cells == (1, *PUZZLE.givens[1:])


def test_the_last_digit_pays_the_bonus_beside_its_own_point() -> None:
    board = move(move(START, 1, 1, 1).board, 3, 1, 2).board
    assert not board.solved
    result = move(board, 1, 2, 2)
    assert told(result) == (11.0, True, "Placed 2 at row 1 col 2. The Sudoku is solved.")
    assert result.board.solved
    assert result.board.cells == PUZZLE.solution


def test_a_legal_digit_that_is_not_the_solutions_pays_nothing() -> None:
    result = move(START, 1, 1, 2)  # no 2 in row 1, column 1 or the box, and yet wrong
    assert told(result) == (0.0, True, "Placed 2 at row 1 col 1.")
    assert told(move(result.board, 1, 1, 1)) == (1.0, True, "Placed 1 at row 1 col 1.")  # overwriting mends it


def test_a_cell_pays_once_however_often_its_digit_returns() -> None:
    board = move(START, 1, 1, 1).board
    for digit, reward in ((2, 0.0), (1, 0.0), (0, 0.0), (1, 0.0)):
        result = move(board, 1, 1, digit)
        assert (result.reward, result.effective) == (reward, True)
        board = result.board


@pytest.mark.parametrize(
    ("row", "column", "digit", "reason"),
    [
        (1, 1, 3, "3 is already in row 1 and col 1 and the same box"),
        (1, 2, 1, "1 is already in col 2"),
        (3, 1, 1, "1 is already in row 3 and the same box"),
        (3, 1, 4, "4 is already in row 3 and col 1 and the same box"),
    ],
)
def test_a_digit_that_breaks_a_rule_is_refused_and_the_units_are_named(row: int, column: int, digit: int, reason: str) -> None:
    result = move(START, row, column, digit)
    assert told(result) == (-0.1, False, f"Cannot place {digit} at row {row} col {column}: {reason}.")
    assert result.board == START
    silent = move(START, row, column, digit, show_conflicts=False)
    assert silent.feedback == f"Cannot place {digit} at row {row} col {column}: it breaks a rule."


@pytest.mark.parametrize("digit", [0, 1, 3])
def test_a_given_cell_cannot_be_changed_cleared_or_even_confirmed(digit: int) -> None:
    result = move(START, 1, 3, digit)
    assert told(result) == (-0.1, False, "The 3 at row 1 col 3 is given and cannot be changed.")
    assert result.board == START


def test_a_move_that_changes_nothing_is_neither_paid_nor_fined() -> None:
    board = move(START, 1, 1, 2).board
    assert told(move(board, 1, 1, 2)) == (0.0, False, "Nothing changed: row 1 col 1 already holds 2.")
    assert told(move(board, 1, 2, 0)) == (0.0, False, "Nothing changed: row 1 col 2 is already empty.")


def test_clearing_empties_a_cell_of_ones_own() -> None:
    board = move(START, 1, 1, 2).board
    result = move(board, 1, 1, 0)
    assert told(result) == (0.0, True, "Cleared row 1 col 1.")
    assert result.board.cells == PUZZLE.givens


def test_an_own_wrong_digit_stands_in_the_way_of_a_right_one() -> None:
    board = move(START, 1, 1, 2).board
    assert told(move(board, 3, 1, 2)) == (-0.1, False, "Cannot place 2 at row 3 col 1: 2 is already in col 1.")


def test_the_digits_possible_in_a_cell() -> None:
    assert candidates(PUZZLE.givens, 0) == (1, 2)
    assert candidates(PUZZLE.givens, 1) == (2,)
    assert candidates(PUZZLE.givens, 8) == (2,)
    assert conflicts(PUZZLE.givens, 0, 1) == ()


def test_the_units_of_a_nine_by_nine_cell() -> None:
    row, column, box = peers(9)[4 * 9 + 7]  # row 5, column 8: in the box of rows 4 to 6 and columns 7 to 9
    assert row == (36, 37, 38, 39, 40, 41, 42, 44)
    assert column == (7, 16, 25, 34, 52, 61, 70, 79)
    assert box == (33, 34, 35, 42, 44, 51, 52, 53)


MOVES = st.lists(st.builds(Move, row=st.integers(1, 4), column=st.integers(1, 4), digit=st.integers(0, 4)), max_size=60)
# The grid of PUZZLE with ten cells empty, so that many orders and many mistakes are possible.
WIDE = Puzzle(size=4, givens=(0, 0, 3, 0, 3, 0, 0, 0, 0, 1, 0, 0, 4, 0, 2, 0), solution=PUZZLE.solution)


@given(MOVES)
def test_no_sequence_of_moves_earns_more_than_its_blanks_and_the_bonus(moves: list[Move]) -> None:
    """The published rules pay for overwriting one cell again and again; here each of the blanks pays once, the bonus once."""
    board, earned = Board(cells=WIDE.givens), 0.0
    for each in moves:
        result = play(WIDE, board, each, SCORES, show_conflicts=True)
        board = result.board
        earned += max(result.reward, 0.0)
        if board.solved:
            break
    assert earned <= WIDE.num_blanks + 10
    assert earned == len(board.paid) + 10 * board.solved


@given(MOVES)
def test_whatever_is_played_the_board_keeps_its_givens_and_breaks_no_rule(moves: list[Move]) -> None:
    board = Board(cells=WIDE.givens)
    for each in moves:
        board = play(WIDE, board, each, SCORES, show_conflicts=True).board
        assert all(digit in (0, held) for digit, held in zip(WIDE.givens, board.cells, strict=True) if digit)
        for start in range(4):
            rows = board.cells[4 * start : 4 * start + 4]
            columns = board.cells[start::4]
            corner = 8 * (start // 2) + 2 * (start % 2)
            box = (*board.cells[corner : corner + 2], *board.cells[corner + 4 : corner + 6])
            for unit in (rows, columns, box):
                filled = [digit for digit in unit if digit]
                assert len(filled) == len(set(filled))
