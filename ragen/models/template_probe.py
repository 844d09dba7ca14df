"""How a chat template lays out a chat: found out by rendering a few chats with contents that can be told apart.

Nothing here knows a template by name. What cannot be established is a `problem`, in words that complete "the chat template ...".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from ragen.errors import ModelError, boundary
from ragen.models.marked_text import Marker, join, take_apart

Message = dict[str, str]
Render = Callable[[Sequence[dict[str, Any]], bool], str]  # messages, add_generation_prompt -> text

FOLD = "\n\n"
"""Between system and user text where a template knows no system role."""

# Contents of the probe chats. The white space shows what a template trims; the signs in the middle show whether it escapes.
_SYSTEM, _USER, _NEXT = (f'\n\t {role}-7f3a "&<é>"\n\\ {{7f3a}} \t\n' for role in ("system", "user", "next"))
_ROLES = {_SYSTEM: "system", _USER: "user", _NEXT: "the next"}
_REPLY = "reply-7f3a"
_THOUGHTFUL = ("<think>", "thought-7f3a", "</think>", "<answer>", _REPLY, "</answer>")  # white space in between may differ
_OPEN_THOUGHT = re.compile(r"<think>\s*$")  # of a generation prompt: the reply goes on from there
_CLOSED_THOUGHT = re.compile(r"<think>\s*</think>\s*$")  # the same: there is no thought
_THOUGHT = re.compile(r"think|thought|reason|analysis", re.IGNORECASE)  # in what a template writes before a reply
_SHOWN = 60  # characters of a template's text in a message for people

Trim = Callable[[str], str]
TRIMS: dict[str, Trim] = {
    "kept": str,
    "written as a JSON string": lambda text: json.dumps(text, ensure_ascii=False),
    "dropped behind": str.rstrip,
    "dropped in front": str.lstrip,
    "line ends dropped": lambda text: text.strip("\n"),
    "dropped": str.strip,
}
"""What a template does to the white space of a content; its name in the report."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The form in which a template takes messages."""

    folded: bool  # the system text at the top of the first user message
    parts: bool  # contents as lists of parts, as templates of models that see pictures want them

    def fit(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """`messages`, of any template, in this form. A folded system message must be followed by another message."""
        fitted = [dict(message) for message in messages]
        if self.folded and len(fitted) > 1 and fitted[0]["role"] == "system":
            system, first, *rest = fitted
            fitted = [first | {"content": system["content"] + FOLD + first["content"]}, *rest]
        if self.parts:
            return [message | {"content": [{"type": "text", "text": message["content"]}]} for message in fitted]
        return fitted


SHAPES = [Shape(folded=folded, parts=parts) for parts in (False, True) for folded in (False, True)]


@dataclass(frozen=True, kw_only=True)
class Turns:
    """How a chat goes on behind a reply, with messages of one role. A problem: why turns cannot be appended; "" if they can."""

    close: str = ""  # between a reply and the next text
    behind: str = ""  # behind that text, with the generation prompt
    trim: str = "kept"  # key of `TRIMS`
    problem: str  # with replies that hold no thought
    problem_with_thoughts: str  # with replies that hold a <think> block


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a template writes around the contents."""

    shape: Shape
    start: tuple[str, str, str]  # before the system text, between it and the user text, behind it (with the generation prompt)
    trims: tuple[str, str]  # of system and user text, keys of `TRIMS`
    header: str  # what a generation prompt lacks of what stands before every reply; part of `start` and `behind`
    close: str  # what ends an assistant turn in the middle of a chat
    last_close: str  # the same at its end
    user: Turns
    tool: Turns
    prompt_problem: str  # why not even whole prompts of several turns can be rendered


def probe(render: Render, name: str, words: Sequence[str] = ()) -> Layout:
    """Find a template's layout: an own system role before a folded one, contents as text before contents as parts.

    `words` are those it looks for in messages. Raises ModelError, with the template's own message, if not even a single user
    message can be rendered in any shape.
    """
    layouts: list[Layout] = []
    failures: list[ModelError] = []
    for shape in SHAPES:
        try:
            with boundary(ModelError, f"{name}: chat template"):
                layout = _layout(_shaped(render, shape), shape, words)
        except ModelError as error:
            failures.append(error)
            continue
        if not layout.user.problem or not layout.user.problem_with_thoughts:
            return layout
        layouts.append(layout)
    if not layouts:
        raise failures[1]  # of a plain user message, which every template should take
    return layouts[0]


def _shaped(render: Render, shape: Shape) -> Render:
    return lambda messages, add_generation_prompt: render(shape.fit(messages), add_generation_prompt)


def _layout(render: Render, shape: Shape, words: Sequence[str]) -> Layout:
    chat = [message("system", _SYSTEM), message("user", _USER)]
    (before, between, behind), (system_trim, user_trim) = _cut(render(chat, True), _SYSTEM, _USER)
    header, user = _turns(render, chat, "user", None)
    _, tool = _turns(render, chat, "tool", header)
    last_close = _close(render, chat, [])
    return Layout(
        shape=shape,
        start=(before, between, behind + header),
        trims=(system_trim, user_trim),
        header=header,
        close=user.close or _close(render, chat, [message("user", _NEXT)]) or last_close,
        last_close=last_close,
        user=user,
        tool=tool,
        prompt_problem=_probe_prompts(render, words),
    )


def _cut(text: str, *contents: str) -> tuple[list[str], list[str]]:
    """`text` without the contents, and what was done to each. Raises ValueError unless each is there once, in this order."""
    trims: list[str] = []
    pieces: list[str] = []
    for content in contents:
        trim = next((name for name, trim in TRIMS.items() if text.count(trim(content)) == 1), None)
        if trim is None:
            raise ValueError(f"does not show {' and '.join(_ROLES[c] for c in contents)} text once, in this order and unchanged")
        before, _, text = text.partition(TRIMS[trim](content))
        pieces.append(before)
        trims.append(trim)
    return [*pieces, text], trims


def _turns(render: Render, chat: list[Message], role: str, header: str | None) -> tuple[str, Turns]:
    """(header, turns) of later messages of `role`. `header`: the one that replies must have; None if it is to be found."""
    found: list[tuple[str, str]] = []  # header and suffix, of replies without and with thoughts
    problems: list[str] = []
    for reply in ((_REPLY,), _THOUGHTFUL):
        try:
            header, suffix = _probe_append(render, chat, reply, role, header)
            _cut(suffix, _NEXT)
        except (ModelError, ValueError) as error:
            problems.append(_as_problem(error))
            continue
        same = not found or found[0] == (header, suffix)
        problems.append("" if same else "ends replies with thoughts differently")
        found.append((header, suffix))
    if not found:
        return header or "", Turns(problem=problems[0], problem_with_thoughts=problems[1])
    header, suffix = found[0]
    (close, behind), (trim,) = _cut(suffix, _NEXT)
    return header, Turns(close=close, behind=behind + header, trim=trim, problem=problems[0], problem_with_thoughts=problems[1])


def _as_problem(error: Exception) -> str:
    return f"refuses a second turn ({error.__cause__ or error})" if isinstance(error, ModelError) else str(error)


def _probe_append(render: Render, chat: list[Message], reply: Sequence[str], role: str, header: str | None) -> tuple[str, str]:
    """(header, suffix): what the template writes before every reply of later prompts, and from there on for a turn of `role`.

    Each later prompt must start with the one before it, then the reply; turns of one role must add the same text wherever they
    stand. White space before a reply is let through: the model samples it. Raises ValueError with the problem otherwise.
    """
    first = render(chat, True)
    content, sampled = _said(first, reply)
    suffixes: set[str] = set()
    for pair in [("user", "user")] if role == "user" else [(role, role), ("user", role), (role, "user")]:
        turns = [[message("assistant", content), message(next_role, _NEXT)] for next_role in pair]
        second, third = render([*chat, *turns[0]], True), render([*chat, *turns[0], *turns[1]], True)
        for shorter, longer, next_role in ((first, second, pair[0]), (second, third, pair[1])):
            gap, suffix = _added(shorter, longer, sampled, thoughtful=len(reply) > 1)
            header = gap if header is None else header
            if next_role == role:
                suffixes.add(suffix)
            if gap != header or len(suffixes) > 1:
                raise ValueError("writes later turns differently from earlier ones")
    assert header is not None
    return header, suffixes.pop()


def _said(prompt: str, reply: Sequence[str]) -> tuple[str, re.Pattern[str]]:
    """The content of an assistant message whose `reply` was sampled behind `prompt`, and what of it was sampled.

    A thought that the generation prompt opens, or says not to be there, belongs to the content but is not sampled.
    """
    opened, closed = _OPEN_THOUGHT.search(prompt), _CLOSED_THOUGHT.search(prompt)
    if opened and reply[0] == "<think>":
        reply = reply[1:]
        content = opened[0] + "".join(reply)
    else:
        content = (closed[0] if closed and len(reply) == 1 else "") + "".join(reply)
    return content, re.compile(r"\s*".join(map(re.escape, reply)))


def _added(shorter: str, longer: str, reply: re.Pattern[str], *, thoughtful: bool) -> tuple[str, str]:
    """(what a later prompt writes before the reply that the earlier one lacks, if more than white space; what follows)."""
    if not longer.startswith(shorter):
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(shorter, longer, strict=False)))
        tag = shorter.rfind("<", 0, kept)
        kept = kept if tag < 0 or ">" in shorter[tag:kept] else tag  # two tags may begin alike
        raise ValueError(f"rewrites earlier turns (takes {shown(shorter[kept:])} back)")
    rest = longer[len(shorter) :]
    found = reply.search(rest)
    if found is None:
        raise ValueError("rewrites earlier turns" + (" (drops their thoughts)" if thoughtful else ""))
    gap = rest[: found.start()]
    if _THOUGHT.search(gap):
        raise ValueError(f"rewrites earlier turns (puts {shown(gap)} before their replies)")
    return gap if gap.strip() else "", rest[found.end() :]


def _close(render: Render, chat: list[Message], following: list[Message]) -> str:
    """What stands behind a reply, up to the text of the message that follows it, if one does."""
    try:
        behind = render([*chat, message("assistant", _REPLY), *following], False).rpartition(_REPLY)[2]
    except ModelError:
        return ""
    return behind.partition(_NEXT.strip())[0]


def _probe_prompts(render: Render, words: Sequence[str]) -> str:
    """Why prompts of several turns cannot be rendered whole: the template refuses them, loses a user text, or cuts into one."""
    mark = Marker(words=words).mark
    users = [f"{_USER}{i}-7f3a" for i in range(3)]
    for reply in (_REPLY, "".join(_THOUGHTFUL)):
        chat = [message("system", _SYSTEM)]
        for user in users:
            chat += [message("user", user), message("assistant", reply)]
        try:
            text = join(*take_apart(render([message(m["role"], mark(m["content"])) for m in chat[:-1]], True)))
        except (ModelError, ValueError) as error:
            return _as_problem(error)
        if not all(user.strip() in text for user in users):
            return "does not show every user text"
    return ""


def message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def shown(text: str) -> str:
    """`text` quoted for a person, its middle left out if it is long."""
    half = _SHOWN // 2
    return repr(text if len(text) <= _SHOWN else f"{text[:half]} ... {text[-half:]}")
