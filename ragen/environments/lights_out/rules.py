"""The rules of Lights Out as pure functions.

A board of size x size lights, and a set of presses, is one integer: bit row * size + column stands for that button. Pressing a
button flips its light and those to its left, right, above and below. Presses commute and two of the same undo each other, so the
lights are linear in the presses over GF(2), the field of two elements, whose addition is exclusive or.
"""

from __future__ import annotations

from functools import lru_cache

ON, OFF = "1", "0"


@lru_cache(maxsize=16)
def flips(size: int) -> tuple[int, ...]:
    """For each button the lights that it flips."""
    masks = []
    for row in range(size):
        for column in range(size):
            places = ((row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
            masks.append(sum(1 << (r * size + c) for r, c in places if 0 <= r < size and 0 <= c < size))
    return tuple(masks)


def press(lights: int, button: int, size: int) -> int:
    """The lights after pressing one button."""
    return lights ^ flips(size)[button]


def press_all(presses: int, size: int) -> int:
    """The lights after pressing a set of buttons on the dark board."""
    lights = 0
    for button, flipped in enumerate(flips(size)):
        if presses >> button & 1:
            lights ^= flipped
    return lights


def button_name(button: int, size: int) -> str:
    """The action that presses it, "row,column" counted from 1 at the top left."""
    return f"{button // size + 1},{button % size + 1}"


def show(lights: int, size: int) -> str:
    """One line a row."""
    bits = f"{lights:0{size * size}b}"[::-1].replace("1", ON).replace("0", OFF)
    return "\n".join(bits[i : i + size] for i in range(0, size * size, size))
