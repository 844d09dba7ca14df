"""docs/context.md says what is so: every text it shows is the one that the code makes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields

import pytest

from ragen.rollout.context_config import ContextConfig
from ragen.rollout.replies import ReplyConfig
from tests.support.context_page import MODULE, PAGE, corridor_blocks, define_own, on_the_page, smollm2_blocks


@pytest.fixture(autouse=True)
def own_module() -> Iterator[None]:
    define_own()
    yield
    del sys.modules[MODULE]


def test_the_options_of_the_page_are_those_of_the_code_with_their_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    replies = {field.name for field in fields(ReplyConfig)}
    own = [field for field in fields(ContextConfig) if field.name not in replies]
    defaults = {f.name: f.default if isinstance(f.default, str) else json.dumps(f.default) for f in own}
    assert dict(rows) == defaults
    assert len(rows) == len(defaults)


def test_every_text_is_the_one_that_the_code_makes() -> None:
    texts, page = corridor_blocks(), on_the_page()
    assert {name: page.get(name) for name in texts} == texts


def test_every_block_of_the_page_is_made_by_the_code() -> None:
    assert [name for name in on_the_page() if name not in corridor_blocks() and not name.startswith("Sokoban, ")] == []


@pytest.mark.real_model
def test_sokoban_with_smollm2_is_as_the_page_shows_it_in_every_mode() -> None:
    """Only its tokenizer and template are needed."""
    texts = smollm2_blocks()
    assert {name: text for name, text in on_the_page().items() if name.startswith("Sokoban, ")} == texts
