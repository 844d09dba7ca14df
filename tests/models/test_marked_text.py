"""Marks: what a template does to a message is done to the marks, too, and controls in it are out of the template's reach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.models.marked_text import Marker, join, take_apart

TEXTS = st.lists(st.sampled_from([*"ab \n", "</think>", "<|end|>", "\ufdd0", "\ufdd2"]), max_size=10).map("".join)
MARKER = Marker(words=["</think>", "<|end|>x"], controls=["<|end|>"])


def test_what_came_from_a_message_is_told_from_what_did_not():
    rendered = f"<|user|>{MARKER.mark('hello')}<|end|>{MARKER.mark('you')}."
    assert take_apart(rendered) == (["<|user|>", "<|end|>", "."], ["hello", "you"])


def test_white_space_at_the_ends_can_be_trimmed():
    assert MARKER.mark(" \nhello\t").strip() == MARKER.mark("hello")
    assert MARKER.mark("") == ""
    assert MARKER.mark(" \n") == " \n"


def test_words_that_a_template_looks_for_stay_in_its_sight():
    marked = MARKER.mark("deep</think>answer")
    assert "</think>" in marked
    assert take_apart(marked.split("</think>")[-1]) == (["", ""], ["answer"])
    assert take_apart(marked.split("</think>")[0]) == (["", ""], ["deep"])


def test_controls_are_out_of_its_sight_even_as_part_of_a_word():
    assert "<|end|>" not in MARKER.mark("a<|end|>x")
    assert join(*take_apart(MARKER.mark("a<|end|>x"))) == "a<|end|>x"


def test_a_control_that_a_word_cuts_in_two_does_not_become_the_templates():
    own, given_ = take_apart(Marker(words=["<"], controls=["<|end|>"]).mark("<|end|>"))
    assert own == ["<", ""]
    assert given_ == ["|end|>"]


@given(content=TEXTS)
def test_nothing_is_lost_and_no_character_is_taken_for_the_templates(content: str):
    own, given_ = take_apart(MARKER.mark(content))
    assert join(own, given_) == content.replace("\ufdd0", "\ufffd").replace("\ufdd2", "\ufffd")
    assert all(piece.strip() in ("", "</think>") for piece in own for piece in piece.split("</think>"))


@pytest.mark.parametrize("cut", [slice(2), slice(2, None)])
def test_a_message_that_was_cut_in_the_middle_is_refused(cut: slice):
    with pytest.raises(ValueError, match="cuts a message in the middle"):
        take_apart(MARKER.mark("hello")[cut])
