"""The rules of Minesweeper: neighbours, numbers, areas that open together, names, the picture."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.minesweeper import rules

# * . . .      The field that most tests below use, with its numbers:   * 1 0 0
# . . . .                                                               1 1 1 1
# . . . *                                                               0 0 1 *
# . . . .                                                               0 0 1 1
FIELD = rules.lay(4, 4, [0, 11])


def test_a_cell_has_three_five_or_eight_neighbours() -> None:
    around = rules.neighbours(3, 4)
    assert around[0] == (1, 4, 5)
    assert around[2] == (1, 3, 5, 6, 7)
    assert around[5] == (0, 1, 2, 4, 6, 8, 9, 10)
    assert around[11] == (6, 7, 10)


def test_numbers_count_the_mines_around() -> None:
    safe = [number for cell, number in enumerate(FIELD.numbers) if cell not in FIELD.mines]
    assert safe == [1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1]
    assert (FIELD.num_cells, FIELD.num_safe) == (16, 14)


def test_a_number_opens_itself_and_a_zero_its_area_with_the_border() -> None:
    assert FIELD.opens[1] == (1,)
    assert FIELD.opens[2] == FIELD.opens[3] == (1, 2, 3, 5, 6, 7)
    assert FIELD.opens[8] == FIELD.opens[13] == (4, 5, 6, 8, 9, 10, 12, 13, 14)


@given(st.integers(4, 7), st.integers(4, 7), st.sets(st.integers(0, 15), min_size=1, max_size=9))
def test_areas_agree_with_opening_cell_by_cell(height: int, width: int, mines: set[int]) -> None:
    """Independent: repeat "a shown 0 shows its neighbours" until nothing changes."""
    field = rules.lay(height, width, mines)
    around = rules.neighbours(height, width)
    for start in set(range(field.num_cells)) - mines:
        shown, before = {start}, set[int]()
        while shown != before:
            before = set(shown)
            shown |= {n for cell in before if not mines & set(around[cell]) for n in around[cell]}
        assert set(field.opens[start]) == shown
        assert not shown & mines


def test_cells_are_named_by_column_and_row() -> None:
    names = rules.cell_names(16, 4)
    assert names[:5] == ("A1", "B1", "C1", "D1", "A2")
    assert names[-1] == "D16"
    assert len(set(names)) == 64


@pytest.mark.parametrize(
    ("height", "picture"),
    [
        (2, "  A B C\n1 # # #\n2 # # 7"),
        (10, "   A B C\n" + "".join(f" {y} # # #\n" for y in range(1, 10)) + "10 # # 7"),
    ],
)
def test_the_picture_has_the_names_at_its_edges(height: int, picture: str) -> None:
    pieces, places = rules.blank(height, 3)
    assert len(places) == 3 * height
    pieces[places[-1]] = "7"
    assert "".join(pieces) == picture
