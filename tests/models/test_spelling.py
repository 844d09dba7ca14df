"""What one id spells. Expected texts are what the tokenizer was given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.models.spelling import speller
from tests.support.models import tiny_tokenizer
from tests.support.tokenizers import END, Kind, make_tokenizer

KINDS: list[Kind] = ["plain", "merge", "metaspace"]


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text("ab Right<>/\n", min_size=1, max_size=12))
def test_the_ids_of_a_text_spell_it_in_order(kind: Kind, text: str) -> None:
    """Behind another word, since some tokenizers put a space before the first one."""
    tokenizer = make_tokenizer(kind)
    ids = tokenizer(f"{END}{text}", add_special_tokens=False)["input_ids"]
    assert "".join(map(speller(tokenizer), ids)) == f"{END}{text}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_a_character_that_is_spread_over_ids_are_told_apart(kind: Kind) -> None:
    """U+221A is e2 88 9a in UTF-8; these vocabularies hold none of it but single bytes."""
    tokenizer = make_tokenizer(kind)
    ids = tokenizer(f"{END}√", add_special_tokens=False)["input_ids"]
    assert list(map(speller(tokenizer), ids[-3:])) == ["\\xe2", "\\x88", "\\x9a"]


def test_text_before_the_first_byte_of_a_character_stays_text() -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer(" √", add_special_tokens=False)["input_ids"]
    assert "".join(map(speller(tokenizer), ids)) == " \\xe2\\x88\\x9a"
