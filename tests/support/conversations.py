"""Whole conversations with a chat template, and whether their ids are those that the template itself would give.

The oracle is `apply_chat_template` on the whole conversation, cut at the replies: what stands between two of them, encoded by
itself, must be what was appended there. Nothing of the package's own slicing is used for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any

from transformers import PreTrainedTokenizerFast

from ragen.models.chat import ChatTemplate
from ragen.models.template_source import DAY
from tests.support.tokenizers import chunks

_OPEN_THOUGHT = re.compile(r"<think>\s*$")

Messages = list[dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A first prompt, then as many replies as later texts."""

    system: str
    user: str
    texts: tuple[str, ...]  # what follows a reply
    role: str = "user"  # of the texts
    thoughts: bool = False  # of the replies
    closed: bool = True  # the replies end with the id that ends a turn

    def reply(self, turn: int) -> tuple[str, ...]:
        """The parts of a reply; a template may put white space between them."""
        answer = f"answer-{turn}-7f3a"
        return ("<think>", f"thought-{turn}-7f3a", "</think>", "<answer>", answer, "</answer>") if self.thoughts else (answer,)


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a builder made of a conversation."""

    ids: list[int]
    mask: list[bool]
    prompts: list[list[int]]
    sampled: list[list[int]]


Builder = Callable[[ChatTemplate, PreTrainedTokenizerFast, Conversation], Built]


def build(chat: ChatTemplate, tokenizer: PreTrainedTokenizerFast, conversation: Conversation) -> Built:
    """Append turn by turn. Replies are sampled one id per byte: encoding their text would give other ids."""
    prompts = [chat.start(conversation.system, conversation.user)]
    sampled: list[list[int]] = []
    ids, mask = list(prompts[0]), [False] * len(prompts[0])
    opened = chat.opens_with("<think>")
    append = chat.append_tool if conversation.role == "tool" else chat.append_user
    for turn, text in enumerate(conversation.texts):
        reply = "".join(conversation.reply(turn))
        emitted = chunks(tokenizer, reply.removeprefix("<think>") if opened else reply)
        if conversation.closed and chat.end_of_turn_id is not None:
            emitted.append(chat.end_of_turn_id)
        new = append(text, last_id=emitted[-1])
        ids += emitted + new
        mask += [True] * len(emitted) + [False] * len(new)
        sampled.append(emitted)
        prompts.append(list(ids))
    return Built(ids=ids, mask=mask, prompts=prompts, sampled=sampled)


def assert_exact(
    chat: ChatTemplate, tokenizer: PreTrainedTokenizerFast, conversation: Conversation, built: Built, **options: Any
) -> None:
    """I1 to I3, and between the sampled spans the ids of the template's own rendering."""
    emitted = [i for ids in built.sampled for i in ids]
    assert len(built.ids) == len(built.mask)
    assert [i for i, trained in zip(built.ids, built.mask, strict=True) if trained] == emitted  # I1, I2
    for (before, after), ids in zip(pairwise(built.prompts), built.sampled, strict=True):  # I3
        assert after[: len(before) + len(ids)] == before + ids
    assert built.prompts[-1] == built.ids
    bounds = [0, *(len(prompt) for prompt in built.prompts)]
    between = [built.ids[0 : bounds[1]]]
    for turn, ids in enumerate(built.sampled):
        between.append(built.ids[bounds[turn + 1] + len(ids) : bounds[turn + 2]])
    expected = [encode(tokenizer, piece) for piece in pieces(chat, tokenizer, conversation, **options)]
    expected[0] = with_bos(tokenizer, expected[0])
    for turn, ids in enumerate(built.sampled, 1):
        if ids[-1] == chat.end_of_turn_id:
            expected[turn] = expected[turn][expected[turn].index(ids[-1]) + 1 :]
    assert between == expected


def pieces(chat: ChatTemplate, tokenizer: PreTrainedTokenizerFast, conversation: Conversation, **options: Any) -> list[str]:
    """What the template writes up to the first reply, between replies, and behind the last one.

    What it writes before every reply but not in a generation prompt is added to the last piece; white space is not: that is the
    model's to sample.
    """
    messages = [{"role": "system", "content": conversation.system}, {"role": "user", "content": conversation.user}]
    prompts = [rendered(chat, tokenizer, messages, **options)]
    opened = _OPEN_THOUGHT.search(prompts[0])
    sampled = [conversation.reply(turn)[1 if opened else 0 :] for turn in range(len(conversation.texts))]
    for turn, text in enumerate(conversation.texts):
        content = (opened[0] if opened else "") + "".join(sampled[turn])
        messages += [{"role": "assistant", "content": content}, {"role": conversation.role, "content": text}]
        prompts.append(rendered(chat, tokenizer, messages, **options))
    found = []
    header = ""
    for turn, (prompt, later) in enumerate(pairwise(prompts)):
        start = _find(sampled[turn - 1], prompt).end() if turn else 0
        written, generated = later[start : _find(sampled[turn], later).start()], prompt[start:]
        header = "" if written.rstrip() == generated.rstrip() else written.removeprefix(generated)
        found.append(generated + header)
    return [*found, prompts[-1][_find(sampled[-1], prompts[-1]).end() :] + header]


def _find(reply: Sequence[str], text: str) -> re.Match[str]:
    match = re.search(r"\s*".join(map(re.escape, reply)), text)
    assert match is not None, f"the template does not show {''.join(reply)!r}"
    return match


def rendered(chat: ChatTemplate, tokenizer: PreTrainedTokenizerFast, messages: Messages, **options: Any) -> str:
    """The template's text for `messages` and a generation prompt. Where the probe found that it takes no system role, the system
    text is part of the user's; where it found that contents are parts, they are; today is the day that ChatTemplate sets."""
    given: list[Any] = [dict(message) for message in messages]
    if chat.layout.shape.folded and given[0]["role"] == "system":
        given = [{"role": "user", "content": f"{given[0]['content']}\n\n{given[1]['content']}"}, *given[2:]]
    if chat.layout.shape.parts:
        given = [message | {"content": [{"type": "text", "text": message["content"]}]} for message in given]
    text = str(tokenizer.apply_chat_template(given, tokenize=False, add_generation_prompt=True, **options))
    for format_ in ("%d %b %Y", "%Y-%m-%d"):
        text = text.replace(date.today().strftime(format_), DAY.strftime(format_))
    return text


def with_bos(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> list[int]:
    """`ids` of a prompt, behind exactly one BOS if the tokenizer puts one before raw strings."""
    bos = tokenizer.bos_token_id
    wanted = encode(tokenizer, "a", automatic=True)[0] == bos
    return [bos, *ids] if wanted and ids[:1] != [bos] else ids


def encode(tokenizer: PreTrainedTokenizerFast, text: str, *, automatic: bool = False) -> list[int]:
    return list(tokenizer(text, add_special_tokens=automatic)["input_ids"])
