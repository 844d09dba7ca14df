"""Texts of environments as a terminal can take them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.printable import printable


def test_control_characters_and_half_surrogates_become_escapes() -> None:
    assert printable("a\x1b[2J\x00\r\x9b\ud800z") == r"a\x1b[2J\x00\r\x9b\ud800z"


def test_what_a_board_is_made_of_stays() -> None:
    board = "#_√\n\tP 漢字 🤖 é"
    assert printable(board) == board


@given(st.text(st.characters()))
def test_whatever_comes_out_can_be_encoded_and_moves_no_cursor(text: str) -> None:
    printed = printable(text)
    printed.encode("utf-8")
    assert not set(printed) & ({*map(chr, range(32)), "\x7f"} - {"\n", "\t"})
    assert printable(printed) == printed
