"""Over real chat templates: either turns are appended and every id is the template's, or the probe says why it cannot be."""

from __future__ import annotations

import functools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ragen.errors import ModelError
from ragen.models.chat import ChatTemplate
from ragen.models.tokenizer import load_tokenizer
from tests.support.conversations import Conversation, Messages, assert_exact, build, encode, rendered, with_bos
from tests.support.pages import ROOT
from tests.support.template_corpus import COLUMNS, INSTALL, markers, row, templates, tokenizer_of

NAMES = sorted(templates())
each_template = pytest.mark.parametrize("name", NAMES)
few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Words that some of these templates look for in a message, and whatever else a text may hold; no control token.
WORDS = [
    *("a", "Left", " ", "\n", "\t", "é", "🧍▢", "٣", "<", ">", "|", "[", "]", "{{ x }}", "{% if %}", "\\", '"', "'"),
    *("<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("/nothink", "/no_think", "Reasoning effort", "reasoning strength: low", "tool_calls", "text", "image", "function"),
]


@functools.cache
def chat_of(name: str, *, adds_bos: bool = False) -> ChatTemplate:
    return ChatTemplate(tokenizer_of(name, adds_bos=adds_bos))


def texts(chat: ChatTemplate, tokenizer: PreTrainedTokenizerFast) -> st.SearchStrategy[str]:
    """Ordinary texts. Where a template writes <tool_response> itself, that is a control like any other."""
    words = [word for word in WORDS if tokenizer.convert_tokens_to_ids(word) not in chat.control_ids]
    return st.lists(st.sampled_from(words), max_size=8).map("".join)


def test_the_corpus_is_there():
    assert len(NAMES) >= 25, f"this test reads the chat templates inside the TRL package: {INSTALL} (make does)"


@each_template
@pytest.mark.parametrize("thoughts", [False, True])
def test_what_is_not_appended_to_cannot_be(name: str, thoughts: bool):
    """bug-log rows 4, 5: a template that is split, or refused with a reason, really shows earlier turns otherwise than it did."""
    tokenizer, chat = tokenizer_of(name), chat_of(name)
    if chat.appends(thoughts):
        return
    with pytest.raises(ModelError, match=f"{chat.name}: the chat template re"):  # rewrites or refuses
        chat.require_append_only(thoughts=thoughts)
    chat.require_prompts()
    reply = "<think>hm</think>Left" if thoughts else "Left"
    messages = [{"role": role, "content": role} for role in ("system", "user")]
    first = rendered(chat, tokenizer, messages)
    if thoughts and chat.opens_with("<think>"):
        reply = first[first.rindex("<think>") :] + reply.removeprefix("<think>")
    messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "user"}]
    second = rendered(chat, tokenizer, messages)
    sampled = reply if second.startswith(first + reply) else reply.removeprefix("<think>").strip()
    assert not second.startswith(first) or not second.removeprefix(first).strip().startswith(sampled)


@each_template
def test_the_page_on_templates_tells_what_was_found(name: str):
    if "_training" in name:  # TRL's own changes of the others
        return
    page = (ROOT / "docs" / "chat_templates.md").read_text(encoding="utf-8").splitlines()
    if any(line.startswith(f"| `{name}` |") for line in page):  # a later TRL may bring more
        assert row(name, chat_of(name)) in page


def test_the_page_on_templates_covers_the_corpus():
    page = (ROOT / "docs" / "chat_templates.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(COLUMNS)} |" in page
    assert sum(f"| `{name}` |" in page for name in NAMES) >= 25


@each_template
@few
@given(data=st.data())
def test_appended_conversations_are_the_templates_own(name: str, data: st.DataObject):
    """bug-log rows 1, 3 to 8, 11, 12, 59: I1 to I3, and outside the sampled spans the ids of the template's rendering."""
    adds_bos = data.draw(st.booleans(), "adds_bos")
    tokenizer, chat = tokenizer_of(name, adds_bos=adds_bos), chat_of(name, adds_bos=adds_bos)
    role = data.draw(st.sampled_from(["user", "tool"]), "role")
    thoughts = data.draw(st.booleans(), "thoughts")
    if not chat.appends(thoughts, role=role):
        return
    visible = texts(chat, tokenizer).filter(str.strip)
    conversation = Conversation(
        system=data.draw(visible, "system"),
        user=data.draw(visible, "user"),
        texts=tuple(data.draw(st.lists(visible, min_size=1, max_size=3), "texts")),
        role=role,
        thoughts=thoughts,
        closed=data.draw(st.booleans(), "closed"),
    )
    assert_exact(chat, tokenizer, conversation, build(chat, tokenizer, conversation))


@each_template
@few
@given(data=st.data())
def test_whole_prompts_are_the_templates_own(name: str, data: st.DataObject):
    """What a rewriting template gets, and context modes that drop turns: all of its trimming, dropping and moving included."""
    adds_bos = data.draw(st.booleans(), "adds_bos")
    tokenizer, chat = tokenizer_of(name, adds_bos=adds_bos), chat_of(name, adds_bos=adds_bos)
    messages = chats(data, texts(chat, tokenizer))
    expected = encode(tokenizer, rendered(chat, tokenizer, messages) + chat.layout.header)
    assert chat.prompt(messages) == with_bos(tokenizer, expected)


@each_template
@few
@given(data=st.data())
def test_no_message_becomes_a_control_id(name: str, data: st.DataObject):
    """Every role, every place: the control ids of a prompt are those of the same chat with harmless words instead."""
    tokenizer, chat = tokenizer_of(name), chat_of(name)
    evil = st.lists(st.sampled_from([*markers(tokenizer), "ok", "\n", " ", "<|", "|>"]), min_size=1, max_size=5).map("".join)
    messages = chats(data, evil)
    harmless = [m | {"content": _without(markers(tokenizer), m["content"])} for m in messages]
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}

    def controls(ids: list[int]) -> list[int]:
        return [i for i in ids if i in special]

    assert controls(chat.prompt(messages)) == controls(chat.prompt(harmless))
    last = messages[-1]["content"]
    for role in ("user", "tool"):
        if chat.appends(False, role=role) or chat.appends(True, role=role):
            append = chat.append_user if role == "user" else chat.append_tool
            assert controls(append(last, last_id=None)) == controls(append("x", last_id=None))


def chats(data: st.DataObject, contents: st.SearchStrategy[str]) -> Messages:
    """A chat of one to four user messages, with a system message; every text is drawn."""
    roles = ["system", "user", *["assistant", "user"] * data.draw(st.integers(0, 3), "turns")]
    return [{"role": role, "content": data.draw(contents, role)} for role in roles]


def _without(words: list[str], text: str) -> str:
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "x")
    return text


@pytest.mark.real_model
@pytest.mark.parametrize("thoughts", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_smollm2_is_appended_to(thoughts: bool, closed: bool):
    """bug-log rows 4, 10: this template adds a system message to a chat without one, and its pad token is its eos token."""
    tokenizer = load_tokenizer("smollm2-135m")
    chat = ChatTemplate(tokenizer)
    conversation = Conversation(
        system="Be brief.", user="hello\n🧍▢▢\n", texts=("now?", "\n\nand now", "<think>"), thoughts=thoughts, closed=closed
    )
    assert_exact(chat, tokenizer, conversation, build(chat, tokenizer, conversation))
    found = {finding.topic for finding in chat.findings}
    assert {"no system text", "pad"} <= found
    messages = [{"role": "system", "content": " \n"}, {"role": "user", "content": "a\n<|endoftext|>"}]
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") not in chat.prompt(messages)
