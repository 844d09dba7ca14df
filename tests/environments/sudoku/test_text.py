"""Sudoku in words: every spelling of a move, and boards drawn by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.sudoku.rules import Move, Puzzle
from ragen.environments.sudoku.text import MoveError, candidate_list, detailed_board, read_move, simple_board, write_move

PUZZLE = Puzzle(
    size=4,
    givens=(0, 0, 3, 4, 3, 4, 1, 2, 0, 1, 4, 3, 4, 3, 2, 1),
    solution=(1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1),
)
CELLS = (2, *PUZZLE.givens[1:])


@pytest.mark.parametrize(
    "text",
    [
        "place 3 at row 1 col 2",
        "Place 3 at Row 1, Column 2.",
        "  PLACE  3\nat row 1 col 2 ",
        "3 at row 1 col 2",
        "place 3 at (1,2)",
        "place 3 at ( 1 , 2 )",
        "place 3 at 1,2",
        "3 at 1, 2",
        "(1,2,3)",
        "( 1, 2, 3 )",
        "1,2,3",
        "1 , 2 , 3",
        "place 03 at row 1 col 02",
    ],
)
def test_placements_in_every_spelling(text: str) -> None:
    assert read_move(text, 4) == Move(row=1, column=2, digit=3)


@pytest.mark.parametrize("text", ["clear row 1 col 2", "Clear (1, 2)", "clear 1,2", "CLEAR ROW 1, COLUMN 2."])
def test_clearing_in_every_spelling(text: str) -> None:
    assert read_move(text, 4) == Move(row=1, column=2, digit=0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "1 2 3",
        "1,2",
        "place 3 at (1,2",
        "place 3 at row 1",
        "place at row 1 col 2",
        "place three at row 1 col 2",
        "place -3 at row 1 col 2",
        "place ٣ at row 1 col 2",
        "1,2,3,4",
        "row 1 col 2",
        "place 3 at row 1 col 2 please",
        "place 3 at row 1 col 2 place 4 at row 1 col 1",
        "place 1111 at row 1 col 2",
        "9**9**9",
        "\0",
        "\ud800",
        "1," * 500_000,
        "place 3 at row 1 col 2" + " " * 1_000_000,
    ],
)
def test_anything_else_is_answered_with_an_example(text: str) -> None:
    with pytest.raises(MoveError, match=r"^This is not a move\. Write a move like: place 3 at row 1 col 2$"):
        read_move(text, 4)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("place 5 at row 1 col 2", "digit 5"),
        ("place 0 at row 1 col 2", "digit 0"),
        ("3 at 0,2", "row 0"),
        ("1,5,3", "column 5"),
        ("clear 5,1", "row 5"),
    ],
)
def test_numbers_out_of_range_are_named(text: str, what: str) -> None:
    with pytest.raises(MoveError, match=rf"^There is no {what}: rows, columns and digits go from 1 to 4\.$"):
        read_move(text, 4)


def test_nine_by_nine_goes_to_nine() -> None:
    assert read_move("9,9,9", 9) == Move(row=9, column=9, digit=9)


@given(st.text(max_size=120) | st.text(alphabet="placeratow ol()123,.", max_size=120))
def test_any_text_is_a_move_on_the_board_or_refused(text: str) -> None:
    try:
        move = read_move(text, 4)
    except MoveError:
        return
    assert 1 <= move.row <= 4
    assert 1 <= move.column <= 4
    assert 0 <= move.digit <= 4


@given(st.builds(Move, row=st.integers(1, 9), column=st.integers(1, 9), digit=st.integers(0, 9)))
def test_what_is_written_is_read_back(move: Move) -> None:
    assert read_move(write_move(move), 9) == move


def test_the_detailed_board_marks_given_digits_boxes_rows_and_columns() -> None:
    assert detailed_board(PUZZLE, CELLS) == (
        "col    1  2   3  4\n"
        "row 1  2  . |[3][4]\n"
        "row 2 [3][4]|[1][2]\n"
        "      ------+------\n"
        "row 3  . [1]|[4][3]\n"
        "row 4 [4][3]|[2][1]"
    )


def test_the_simple_board_has_digits_and_dots() -> None:
    assert simple_board(PUZZLE, CELLS) == "2 . 3 4\n3 4 1 2\n. 1 4 3\n4 3 2 1"


def test_nine_by_nine_boards() -> None:
    line = (1, 2, 3, 4, 5, 6, 7, 8, 9)
    puzzle = Puzzle(size=9, givens=(*line, *(0,) * 72), solution=(0,) * 81)
    lines = detailed_board(puzzle, puzzle.givens).splitlines()
    assert lines[0] == "col    1  2  3   4  5  6   7  8  9"
    assert lines[1] == "row 1 [1][2][3]|[4][5][6]|[7][8][9]"
    assert lines[4] == "      ---------+---------+---------"
    assert lines[5] == "row 4  .  .  . | .  .  . | .  .  ."
    assert len(lines) == 12
    assert simple_board(puzzle, puzzle.givens).splitlines()[:2] == ["1 2 3 4 5 6 7 8 9", ". . . . . . . . ."]


def test_candidates_are_listed_for_every_empty_cell_where_those_are_few() -> None:
    assert candidate_list(PUZZLE, PUZZLE.givens) == (
        "Candidates of the empty cells:\nrow 1 col 1: 1 2\nrow 1 col 2: 2\nrow 3 col 1: 2"
    )
    assert candidate_list(PUZZLE, CELLS).splitlines()[1:] == ["row 1 col 2: none", "row 3 col 1: none"]


def test_of_many_empty_cells_those_with_the_fewest_candidates_are_listed() -> None:
    empty = Puzzle(size=4, givens=(1, 2, 3, *(0,) * 13), solution=(0,) * 16)
    lines = candidate_list(empty, empty.givens).splitlines()
    assert lines[0] == "Candidates of the 10 empty cells with the fewest:"
    assert lines[1] == "row 1 col 4: 4"
    assert len(lines) == 11
