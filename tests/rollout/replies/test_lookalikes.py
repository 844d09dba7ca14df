"""Characters that only look like others are recognised, position by position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.rollout.replies.lookalikes import INVISIBLE, looks_like, skeleton


@pytest.mark.parametrize(
    ("written", "drawn"),
    [
        ("\uff1c\uff54\uff48\uff49\uff4e\uff4b\uff1e", "<think>"),  # full width
        ("\u0430n\u0455w\u0435r", "answer"),  # Cyrillic
        ("\u03b1nsw\u03b5r", "answ\u03b5r"),  # Greek; an epsilon is not drawn like an e
        ("th\u0131nk", "think"),  # without its dot
        ("\u2039answer\u203a", "<answer>"),
        ("th\u00ednk", "think"),
        ("\u041dELP", "hELP"),  # a Cyrillic En
        ("a\u200bn\u00ads\u2060w", f"a{INVISIBLE}n{INVISIBLE}s{INVISIBLE}w"),
        ("i\u0301", f"i{INVISIBLE}"),
        ("a\x00b", f"a{INVISIBLE}b"),
        ("plain <text>\n\tof ASCII", "plain <text>\n\tof ASCII"),
        ("\u6f22\u5b57 \ufb01", "\u6f22\u5b57 \ufb01"),
    ],
)
def test_a_text_is_seen_as_it_is_drawn(written: str, drawn: str) -> None:
    assert skeleton(written) == drawn


@given(st.text())
def test_positions_stay_and_seeing_twice_changes_nothing(text: str) -> None:
    once = skeleton(text)
    assert len(once) == len(text)
    assert skeleton(once) == once


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("\u0423p", "yp", True),
        ("Le\ufb01", "Lefi", True),
        ("L\u200beft ", "left", True),
        ("Left", "Right", False),
        ("\u4e0a", "\u4e0b", False),
        ("", "Up", False),
    ],
)
def test_two_names_look_alike_or_not(one: str, other: str, alike: bool) -> None:
    assert looks_like(one, other) is alike
