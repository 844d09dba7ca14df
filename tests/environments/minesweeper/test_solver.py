"""The solver against the enumeration of every way to lay the mines; and positions whose logic can be followed by hand."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragen.environments.minesweeper import solver
from ragen.environments.minesweeper.rules import Field, lay, neighbours
from ragen.environments.minesweeper.solver import members, safe_cells, set_of


def safe_by_trying_everything(field: Field, shown: set[int]) -> set[int]:
    """Independent: the hidden cells that are a mine in no way to lay all mines under which the shown numbers come out."""
    around = neighbours(field.height, field.width)
    hidden = sorted(set(range(field.num_cells)) - shown)
    maybe: set[int] = set()
    for mines in map(set, combinations(hidden, len(field.mines))):
        if all(len(mines & set(around[cell])) == field.numbers[cell] for cell in shown):
            maybe |= mines
    return set(hidden) - maybe


def found(field: Field, shown: set[int]) -> set[int]:
    numbers = {cell: field.numbers[cell] for cell in shown}
    return set(members(safe_cells(field.height, field.width, numbers, len(field.mines))))


@st.composite
def positions(draw: st.DrawFn) -> tuple[Field, set[int]]:
    """A small field with up to four mines and any of its safe cells shown."""
    height, width = draw(st.sampled_from([(4, 4), (4, 5), (3, 6), (1, 9), (2, 7)]))
    cells = st.integers(0, height * width - 1)
    mines = draw(st.sets(cells, min_size=1, max_size=4))
    return lay(height, width, mines), draw(st.sets(cells)) - mines


@given(positions())
def test_what_it_calls_safe_is_safe_and_it_finds_something_if_there_is_something(position: tuple[Field, set[int]]) -> None:
    field, shown = position
    everything = safe_by_trying_everything(field, shown)
    some = found(field, shown)
    assert some <= everything
    assert bool(some) == bool(everything)


@given(positions())
def test_where_no_single_number_decides_it_finds_all_that_is_safe(position: tuple[Field, set[int]]) -> None:
    field, shown = position
    around = neighbours(field.height, field.width)
    for cell in shown:
        hidden = len(set(around[cell]) - shown)
        assume(not hidden or 0 < field.numbers[cell] < hidden)
    assert found(field, shown) == safe_by_trying_everything(field, shown)


def shown_of(field: Field, picture: str) -> set[int]:
    """The cells that are no # in a picture whose rows are words; its numbers are those of the field."""
    cells = "".join(picture.split())
    assert all(c == "#" or int(c) == field.numbers[i] for i, c in enumerate(cells))
    return {i for i, c in enumerate(cells) if c != "#"}


def test_a_number_whose_mine_is_known_frees_its_other_neighbours() -> None:
    """A2 has one hidden neighbour, A1, so that is its mine; B1 and B2 need no other."""
    field = lay(2, 4, [0])
    assert found(field, shown_of(field, "#1## 11##")) == {2, 6}


def test_the_pattern_one_two_one() -> None:
    """Three cells above 1 2 1: mines at the ends, the middle is safe, though no single number says so."""
    field = lay(2, 5, [1, 3])
    shown = shown_of(field, "##### 11211")
    assert found(field, shown) == {0, 2, 4}


def test_the_number_of_mines_decides_where_the_numbers_do_not() -> None:
    """A 1 beside two hidden cells: if that is the only mine, the cells farther away are safe; with a second one they are not."""
    assert found(lay(1, 6, [0]), {1}) == {3, 4, 5}
    assert found(lay(1, 6, [0, 5]), {1}) == set()


def test_mines_that_have_no_other_place_decide_too() -> None:
    """# 1 # 1 #: one mine is the middle, two are the ends, and no other cell is hidden that could take one."""
    assert found(lay(1, 5, [2]), {1, 3}) == {0, 4}
    assert found(lay(1, 5, [0, 4]), {1, 3}) == {2}


def test_a_guess_is_recognised() -> None:
    """A 1 in the middle of three: left or right, nothing tells."""
    field = lay(1, 3, [0])
    assert found(field, {1}) == set()
    assert solver.solve(field, (1,)) is None


def test_a_solution_is_safe_step_by_step_in_any_order() -> None:
    """Each cell of the order follows from the start and the cells before it, hence also when more is shown."""
    field = lay(4, 5, [0, 4, 7])
    opened = field.opens[15]
    order = solver.solve(field, opened)
    assert order is not None
    shown = set(opened)
    for cell in order:
        assert cell not in field.mines
        if cell not in shown:
            assert cell in safe_by_trying_everything(field, shown)
            shown |= set(field.opens[cell])
    assert len(shown) == field.num_safe


def test_too_many_ways_are_given_up_and_nothing_is_called_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    field = lay(2, 5, [1, 3])
    shown = shown_of(field, "##### 11211")
    monkeypatch.setattr(solver, "_MAX_WAYS", 0)
    assert found(field, shown) == set()


def test_sets_of_cells() -> None:
    assert set_of([0, 2, 5]) == 0b100101
    assert list(members(0b100101)) == [0, 2, 5]
    assert set_of([]) == 0
