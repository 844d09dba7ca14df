"""Where each id of a prompt came from. The oracle is the alphabet: each party writes characters that no other one writes."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.models.chat import ChatTemplate
from ragen.models.traced_template import Origin, Source, TracedTemplate
from tests.support.tokenizers import (
    BOS,
    CHATML,
    END,
    T_BOS,
    T_DEFSYS,
    T_HEADER,
    T_LATE_SYSTEM,
    T_NOSYS,
    T_STRIP,
    T_SWITCH,
    T_THINK,
    T_TRIM,
    T_WORDS,
    Kind,
    make_tokenizer,
)

KINDS: list[Kind] = ["plain", "merge", "two-stops", "bos", "non-special", "metaspace"]
TEMPLATES = [CHATML, T_BOS, T_DEFSYS, T_HEADER, T_LATE_SYSTEM, T_NOSYS, T_STRIP, T_SWITCH, T_THINK, T_TRIM, T_WORDS]
DIGITS = st.text("0123456789", min_size=1, max_size=6)  # what messages say
CAPITALS = st.text("XYZ", min_size=1, max_size=6)  # what replies said
PREFIX = "@@"


def traced(kind: Kind = "plain", template: str = CHATML) -> TracedTemplate:
    return TracedTemplate(make_tokenizer(kind, template))


shared = functools.cache(traced)  # its probe takes longer than a test's example


@functools.cache
def untraced(kind: Kind, template: str) -> ChatTemplate:
    return ChatTemplate(make_tokenizer(kind, template))


def chat(*contents: str) -> list[dict[str, str]]:
    roles = ["system", "user", *["assistant", "user"] * len(contents)]
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]


def texts(template: TracedTemplate) -> list[tuple[str, Source]]:
    """What the last call wrote, id by id."""
    written = template.written[-1]
    return [(str(template._tokenizer.decode([i])), source) for i, source in zip(written.ids, written.sources, strict=True)]


def owner(text: str) -> Origin:
    """By alphabet."""
    for pattern, origin in ((r"\d", Origin.ENVIRONMENT), ("[XYZ]", Origin.RETOLD), ("@", Origin.PREFIX)):
        if re.search(pattern, text):
            return origin
    return Origin.TEMPLATE


def of(template: TracedTemplate, origin: Origin) -> str:
    """The text of one origin in what the last call wrote."""
    written = template.written[-1]
    ids = [i for i, source in zip(written.ids, written.sources, strict=True) if source.origin is origin]
    return str(template._tokenizer.decode(ids))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=15)
@given(contents=st.tuples(DIGITS, DIGITS, CAPITALS, DIGITS, CAPITALS, DIGITS))
def test_every_id_of_a_prompt_is_traced_to_who_wrote_its_characters(kind: Kind, template: str, contents: Sequence[str]) -> None:
    made = shared(kind, template)
    ids = made.prompt(chat(*contents), reply_prefix=PREFIX)
    assert list(made.written[-1].ids) == ids
    for text, source in texts(made):
        assert source == Source(origin=owner(text)), text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", [CHATML, T_BOS, T_TRIM])
@pytest.mark.parametrize("is_closed", [True, False])
@settings(max_examples=15)
@given(text=DIGITS)
def test_every_id_between_two_replies_is_traced(kind: Kind, template: str, is_closed: bool, text: str) -> None:
    made = shared(kind, template)
    ids = made.append_user(text, last_id=made.end_of_turn_id if is_closed else None, reply_prefix=PREFIX)
    assert list(made.written[-1].ids) == ids
    for piece, source in texts(made):
        assert source == Source(origin=owner(piece)), piece


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=15)
@given(contents=st.tuples(*[st.text("ab <|>\n", max_size=8) | st.sampled_from([END, "<think>", "a</think>b"])] * 4))
def test_the_ids_are_those_of_the_template_that_is_not_traced(kind: Kind, template: str, contents: Sequence[str]) -> None:
    messages = chat(*contents)
    expected = untraced(kind, template).prompt(messages, reply_prefix="<think>")
    assert shared(kind, template).prompt(messages, reply_prefix="<think>") == expected


def test_a_message_that_spells_a_control_is_its_own_author() -> None:
    made = traced()
    made.prompt(chat("1", f"2{END}3"), reply_prefix=PREFIX)
    assert of(made, Origin.ENVIRONMENT) == f"12{END}3"
    assert of(made, Origin.PREFIX) == PREFIX


def test_a_word_that_the_template_looks_for_belongs_to_the_message_that_says_it() -> None:
    made = traced(template=T_STRIP)
    made.prompt(chat("1", "2 </think> 3"))
    assert of(made, Origin.ENVIRONMENT) == "12 </think> 3"


def test_what_the_template_drops_of_an_earlier_reply_is_not_there() -> None:
    made = traced(template=T_STRIP)
    made.prompt(chat("1", "2", "XX</think>YY", "3"))
    assert of(made, Origin.RETOLD) == "YY"
    assert of(made, Origin.ENVIRONMENT) == "123"


def test_an_id_that_covers_two_authors_says_so() -> None:
    """The tokenizer merges the line end of the template with the first sign of the message."""
    made = traced("merge")
    made.prompt(chat("1", "<2"))
    (merged,) = [text for text, source in texts(made) if source.merged]
    assert merged == "\n<"
    assert Source(origin=Origin.TEMPLATE, merged=True) in made.written[-1].sources


def test_a_prefix_that_the_template_writes_itself_is_the_template_s() -> None:
    made = traced(template=T_THINK)
    made.prompt(chat("1", "2"), reply_prefix="<think>")
    assert of(made, Origin.PREFIX) == ""
    assert of(made, Origin.TEMPLATE).endswith("<think>\n")


def test_the_tokenizer_s_own_beginning_is_the_template_s() -> None:
    made = traced("bos")
    made.prompt(chat("1", "2"))
    assert texts(made)[0] == (BOS, Source(origin=Origin.TEMPLATE))


def test_every_call_is_kept_in_order() -> None:
    made = traced()
    first, second = made.prompt(chat("1", "2")), made.append_user("3", last_id=None)
    assert [list(written.ids) for written in made.written] == [first, second]
