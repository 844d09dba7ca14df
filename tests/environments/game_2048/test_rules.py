"""The rules of 2048: how a line slides, how a board moves, where tiles appear, what is drawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.game_2048 import rules
from ragen.environments.game_2048.rules import Board, Line

TILES = st.sampled_from([0, 0, 2, 2, 4, 8])
LINES = st.lists(TILES, min_size=2, max_size=6).map(tuple)
BOARDS = st.integers(2, 5).flatmap(lambda n: st.tuples(*[st.tuples(*[TILES] * n)] * n))


@pytest.mark.parametrize(
    ("line", "to_first", "points"),
    [
        ((2, 2, 2, 2), (4, 4, 0, 0), 8),
        ((4, 2, 2, 0), (4, 4, 0, 0), 4),
        ((4, 2, 0, 2), (4, 4, 0, 0), 4),
        ((2, 2, 4, 0), (4, 4, 0, 0), 4),  # the new 4 does not merge with the old one
        ((2, 2, 2, 0), (4, 2, 0, 0), 4),  # the pair nearest to the end merges
        ((2, 0, 0, 2), (4, 0, 0, 0), 4),
        ((2, 4, 2, 4), (2, 4, 2, 4), 0),
        ((0, 0, 0, 2), (2, 0, 0, 0), 0),
        ((0, 0, 0, 0), (0, 0, 0, 0), 0),
        ((8, 8, 4, 4), (16, 8, 0, 0), 24),
    ],
)
def test_a_line_slides_to_its_first_cell(line: Line, to_first: Line, points: int) -> None:
    assert rules.slide(line, False) == (to_first, points)


def test_towards_the_other_end_the_pair_there_merges() -> None:
    assert rules.slide((2, 2, 2, 0), True) == ((0, 0, 2, 4), 4)
    assert rules.slide((4, 2, 2, 0), True) == ((0, 0, 4, 4), 4)
    assert rules.slide((2, 0, 4, 4), True) == ((0, 0, 2, 8), 8)


def slide_cell_by_cell(line: Line) -> tuple[Line, int]:
    """Independent: tile after tile walks towards the first cell, one cell at a time, and merges where it bumps into its equal."""
    cells, merged, points = list(line), [False] * len(line), 0
    for start in range(1, len(cells)):
        here = start
        while here and cells[here] and not cells[here - 1]:
            cells[here - 1], cells[here] = cells[here], 0
            here -= 1
        if here and cells[here] and cells[here - 1] == cells[here] and not merged[here - 1]:
            cells[here - 1], cells[here] = 2 * cells[here], 0
            merged[here - 1] = True
            points += cells[here - 1]
    return tuple(cells), points


@given(LINES)
def test_sliding_agrees_with_tiles_that_walk_cell_by_cell(line: Line) -> None:
    assert rules.slide(line, False) == slide_cell_by_cell(line)
    turned, points = slide_cell_by_cell(line[::-1])
    assert rules.slide(line, True) == (turned[::-1], points)


@given(BOARDS, st.sampled_from(rules.DIRECTIONS))
def test_a_move_keeps_the_sum_of_the_tiles_and_pays_for_those_it_made(board: Board, direction: str) -> None:
    after, points = rules.move(board, direction)
    before_tiles, after_tiles = ([tile for row in b for tile in row] for b in (board, after))
    assert sum(after_tiles) == sum(before_tiles)
    # A merge of two tiles of t/2 into t turns sum(x * log2(x)) into itself + t: what was gained is the sum of the merged tiles.
    potential = [sum(tile * (tile.bit_length() - 1) for tile in tiles if tile) for tiles in (before_tiles, after_tiles)]
    assert points == potential[1] - potential[0]


@given(BOARDS)
def test_a_move_is_legal_if_it_changes_the_board(board: Board) -> None:
    assert rules.legal_moves(board) == tuple(d for d in rules.DIRECTIONS if rules.move(board, d)[0] != board)


def test_the_four_directions_on_a_board() -> None:
    """Bug-log row 37: what each name does, compared cell by cell."""
    board = ((0, 2, 0), (4, 0, 0), (0, 2, 8))
    assert rules.move(board, "Up") == (((4, 4, 8), (0, 0, 0), (0, 0, 0)), 4)
    assert rules.move(board, "Down") == (((0, 0, 0), (0, 0, 0), (4, 4, 8)), 4)
    assert rules.move(board, "Left") == (((2, 0, 0), (4, 0, 0), (2, 8, 0)), 0)
    assert rules.move(board, "Right") == (((0, 0, 2), (0, 0, 4), (0, 2, 8)), 0)


def test_legal_moves_of_hand_made_boards() -> None:
    assert rules.legal_moves(((2, 4), (4, 2))) == ()
    assert rules.legal_moves(((2, 4), (2, 8))) == ("Up", "Down")
    assert rules.legal_moves(((2, 2), (4, 8))) == ("Right", "Left")
    assert rules.legal_moves(((2, 0), (0, 0))) == ("Right", "Down")
    assert rules.legal_moves(((0, 0), (0, 2))) == ("Up", "Left")


def test_a_new_tile_takes_an_empty_cell_and_leaves_the_others() -> None:
    board = ((2, 0), (0, 0))  # three empty cells, a third of [0, 1) each
    assert rules.add_tile(board, 0.0, 0.0, two_prob=0.9) == ((2, 2), (0, 0))
    assert rules.add_tile(board, 0.34, 0.89, two_prob=0.9) == ((2, 0), (2, 0))
    assert rules.add_tile(board, 0.99, 0.9, two_prob=0.9) == ((2, 0), (0, 4))


def test_the_largest_tile() -> None:
    assert rules.max_tile(((2, 0), (64, 8))) == 64
    assert rules.max_tile(((0, 0), (0, 0))) == 0


def test_a_board_is_drawn_in_straight_columns() -> None:
    assert rules.show(((2, 0, 16), (0, 128, 4)), 4) == "   2    .   16\n   .  128    4"
