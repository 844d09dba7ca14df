"""Text spaces: what counts as an action, what counts as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.spaces import AnyText, NamedActions, resolve

NAMES = ("Left", "Right", "Straße")


@pytest.mark.parametrize("written", ["Left", "left", "LEFT", "  Left\n"])
def test_case_and_outer_white_space_do_not_matter(written: str) -> None:
    assert resolve(written, NAMES) == "Left"


def test_case_folding_reaches_beyond_ascii() -> None:
    assert resolve("STRASSE", NAMES) == "Straße"


@pytest.mark.parametrize("written", ["", " ", "Lef", "Left.", "Left Right", "Le ft", "<Left>", "Léft"])
def test_anything_else_is_unknown(written: str) -> None:
    assert resolve(written, NAMES) is None


@given(st.text())
def test_without_names_any_text_is_an_action_and_stays_as_written(written: str) -> None:
    assert resolve(written, None) == written
    assert AnyText().contains(written)


def test_any_text_contains_nothing_but_text() -> None:
    assert not AnyText().contains(3)
    assert not AnyText().contains(None)
    assert not AnyText().contains(b"bytes")


@given(st.integers(0, 2**63))
def test_samples_lie_in_their_space_and_follow_the_seed(seed: int) -> None:
    for space, twin in ((AnyText(seed), AnyText(seed)), (NamedActions(NAMES, seed), NamedActions(NAMES, seed))):
        samples = [space.sample() for _ in range(5)]
        assert all(sample in space for sample in samples)
        assert samples == [twin.sample() for _ in range(5)]


@pytest.mark.parametrize("names", [(), ("",), (" Left",), ("Left", "LEFT")])
def test_names_that_could_not_be_told_apart_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="action names must"):
        NamedActions(names)


def test_spaces_compare_by_what_they_contain() -> None:
    assert AnyText() == AnyText()
    assert NamedActions(NAMES) == NamedActions(NAMES)
    assert NamedActions(("Left", "Right")) != NamedActions(("Right", "Left"))
    assert AnyText() != NamedActions(NAMES)
