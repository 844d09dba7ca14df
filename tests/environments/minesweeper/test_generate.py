"""Fields drawn at random: what is promised of them, and the error when there is none."""

from __future__ import annotations

import numpy as np
import pytest

from ragen.environments.minesweeper import generate
from ragen.environments.minesweeper.generate import closed_field, opened_field
from ragen.environments.minesweeper.solver import members, safe_cells
from ragen.errors import EnvironmentFailure


@pytest.mark.parametrize(("height", "width", "num_mines"), [(4, 4, 1), (4, 4, 3), (5, 5, 4), (5, 7, 7), (9, 9, 10), (16, 16, 51)])
def test_a_field_that_needs_no_guess_is_solved_by_logic_from_what_is_open(height: int, width: int, num_mines: int) -> None:
    """Bug-log row 34: every seed gives a field. The solver alone, from what shows, never steps on a mine and never gets stuck."""
    for seed in range(3 if height == 16 else 40):
        field, opened, order = opened_field(height, width, num_mines, np.random.default_rng(seed), no_guess=True)
        assert order is not None
        assert len(field.mines) == num_mines
        shown = set(opened)
        assert 0 < len(shown) < field.num_safe
        while len(shown) < field.num_safe:
            safe = set(members(safe_cells(height, width, {cell: field.numbers[cell] for cell in shown}, num_mines)))
            assert safe
            assert not safe & field.mines
            shown.update(*(field.opens[cell] for cell in safe))


def test_the_start_is_an_open_area_also_where_guessing_may_be_needed() -> None:
    for seed in range(100):
        field, opened, order = opened_field(5, 5, 8, np.random.default_rng(seed), no_guess=False)
        assert order is None
        assert len(field.mines) == 8
        assert any(field.numbers[cell] == 0 for cell in opened)
        assert len(opened) < field.num_safe


def test_the_most_mines_that_are_allowed_leave_a_game() -> None:
    for height, width in ((4, 4), (5, 5), (16, 16)):
        field, opened, _ = opened_field(height, width, height * width - 9, np.random.default_rng(0), no_guess=False)
        assert 0 < len(opened) < field.num_safe


def test_mines_of_a_closed_field_lie_anywhere() -> None:
    mines = [closed_field(4, 4, 5, np.random.default_rng(seed)).mines for seed in range(100)]
    assert {len(m) for m in mines} == {5}
    assert set[int]().union(*mines) == set(range(16))


def test_equal_generators_give_equal_fields() -> None:
    """Bug-log row 39."""
    first, second = (opened_field(5, 5, 4, np.random.default_rng(7), no_guess=True) for _ in range(2))
    assert first == second
    assert first != opened_field(5, 5, 4, np.random.default_rng(8), no_guess=True)


def test_a_search_without_end_is_ended_by_an_error_that_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "solve", lambda field, opened: None)
    monkeypatch.setattr(generate, "MAX_ATTEMPTS", 3)
    with pytest.raises(EnvironmentFailure, match=r"3 fields of 5x5 with 4 mines, and none to start from; change num_mines"):
        opened_field(5, 5, 4, np.random.default_rng(0), no_guess=True)
