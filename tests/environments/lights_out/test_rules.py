"""The rules of Lights Out on boards worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.lights_out.rules import button_name, press, press_all, show


@pytest.mark.parametrize(
    ("button", "board"),
    [
        (0, "110\n100\n000"),  # a corner flips three
        (1, "111\n010\n000"),  # an edge four
        (4, "010\n111\n010"),  # the middle five
        (5, "001\n011\n001"),  # the right edge does not reach round to the left
    ],
)
def test_a_press_flips_its_own_light_and_those_beside_it(button: int, board: str) -> None:
    assert show(press(0, button, 3), 3) == board


@given(size=st.integers(2, 8), lights=st.integers(0), data=st.data())
def test_presses_commute_and_undo_themselves(size: int, lights: int, data: st.DataObject) -> None:
    lights %= 1 << size * size
    a, b = data.draw(st.tuples(*[st.integers(0, size * size - 1)] * 2))
    assert press(press(lights, a, size), b, size) == press(press(lights, b, size), a, size)
    assert press(press(lights, a, size), a, size) == lights


def test_a_set_of_presses_is_its_buttons_one_after_the_other() -> None:
    assert press_all(0b100000011, 3) == press(press(press(0, 0, 3), 1, 3), 8, 3)
    assert press_all(0, 3) == 0


def test_buttons_are_named_by_row_and_column_from_one() -> None:
    assert [button_name(button, 3) for button in (0, 2, 3, 8)] == ["1,1", "1,3", "2,1", "3,3"]
