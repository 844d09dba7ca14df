"""What the probe found, in words: one `Finding` a topic, each with what follows from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from ragen.errors import ModelError
from ragen.models.template_probe import Layout, Shape, message, probe, shown
from ragen.models.template_source import DAY, TemplateSource

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RenderWith = Callable[..., str]  # messages, add_generation_prompt, **template options -> text

_OPEN_THOUGHT = re.compile(r"<think>\s*$")
_CLOSED_THOUGHT = re.compile(r"</think>\s*$")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is so with a template. `consequence` may be empty."""

    topic: str
    what: str
    consequence: str = ""


def find(
    render: RenderWith,
    tokenizer: PreTrainedTokenizerBase,
    layout: Layout,
    source: TemplateSource,
    options: Mapping[str, Any],
    stop_ids: Sequence[int],
    bos: str,
) -> tuple[Finding, ...]:
    """Everything worth knowing about a template, in the order of a prompt."""
    return (
        _system(layout),
        *_default_system(render, layout),
        *_own_words(layout, tokenizer),
        _turns(render, layout, source),
        _generation_prompt(layout),
        *_options(render, layout, source, options),
        _tools(layout, source),
        _consecutive_users(render, layout.shape),
        _white_space(layout),
        Finding(topic="BOS", what=bos),
        _stops(tokenizer, stop_ids),
        *_pad(tokenizer),
    )


def aligned(title: str, findings: Sequence[Finding]) -> str:
    """The findings under each other, topics in a column."""
    width = max(len(finding.topic) for finding in findings) + 1
    lines = [title]
    for finding in findings:
        consequence = f" ({finding.consequence})" if finding.consequence else ""
        lines.append(f"  {finding.topic + ':':<{width}} {finding.what}{consequence}")
    return "\n".join(lines)


def _system(layout: Layout) -> Finding:
    what = "folded into the first user turn (no usable system role)" if layout.shape.folded else "own role"
    return Finding(topic="system text", what=what + (", contents as lists of parts" if layout.shape.parts else ""))


def _default_system(render: RenderWith, layout: Layout) -> Iterator[Finding]:
    """What stands before a lone user message beyond what stands before any user message."""
    content = "user-7f3a"
    try:
        text = render(layout.shape.fit([message("user", content)]), True)
    except ModelError as error:
        yield Finding(topic="no system text", what=f"refused ({error})", consequence="one is always given")
        return
    before = text.partition(content)[0]
    own = set(_words(before)) - set(_words(layout.start[0] + layout.start[1]))
    if len(own) > 1:
        what = f"the template writes its own, {shown(before)}"
        yield Finding(topic="no system text", what=what, consequence="never seen: one is always given")


def _own_words(layout: Layout, tokenizer: PreTrainedTokenizerBase) -> Iterator[Finding]:
    """Texts of the template's own around the system text, such as a date."""
    text = layout.start[0] + layout.start[1]
    for token in sorted((token.content for token in tokenizer.added_tokens_decoder.values()), key=len, reverse=True):
        text = text.replace(token, " ")
    if len(_words(text)) > 4:
        yield Finding(topic="preamble", what=f"the template adds {shown(text.strip())}", consequence="part of every prompt")


def _turns(render: RenderWith, layout: Layout, source: TemplateSource) -> Finding:
    user = layout.user
    if not user.problem_with_thoughts:
        what = f"by appending, but only with thoughts, else it {user.problem}" if user.problem else "yes, by appending"
        return Finding(topic="several turns", what=what, consequence="one training sample per trajectory")
    what = f"{'no,' if user.problem else 'only without thoughts, else'} it {user.problem_with_thoughts}"
    consequence = "one training sample per turn" if not layout.prompt_problem else f"one turn only: it {layout.prompt_problem}"
    remedy = _remedy(render, source)
    return Finding(
        topic="several turns", what=what, consequence=consequence + (f"; by appending with {remedy}" if remedy else "")
    )


def _remedy(render: RenderWith, source: TemplateSource) -> str:
    """An option with which the template does append, with thoughts."""
    for name, value in product(source.options, (True, False)):
        try:
            layout = probe(partial(render, **{name: value}), "", source.words)
        except ModelError:
            continue
        if not layout.user.problem_with_thoughts:
            return f"template_options={{{name}: {str(value).lower()}}}"
    return ""


def _generation_prompt(layout: Layout) -> Finding:
    prompt = layout.start[-1]
    if _OPEN_THOUGHT.search(prompt):
        consequence = "opens a think block, which the reply then does not hold"
    elif _CLOSED_THOUGHT.search(prompt):
        consequence = "says that there was no thought"
    elif layout.header:
        consequence = f"completed by {shown(layout.header)}, which the template writes before every reply"
    else:
        consequence = ""
    return Finding(topic="reply begins", what=f"behind {shown(prompt)}", consequence=consequence)


def _options(render: RenderWith, layout: Layout, source: TemplateSource, options: Mapping[str, Any]) -> Iterator[Finding]:
    switch = source.think_switch
    if switch is not None:
        chat = layout.shape.fit([message("system", "s"), message("user", "u")])
        on, off, now = (render(chat, True, **more) for more in ({switch: True}, {switch: False}, {}))
        state = "without effect on a prompt" if on == off else "on" if now == on else "off" if now == off else "in between"
        yield Finding(topic="think switch", what=f"{switch}, now {state}")
    others = [name for name in source.options if name != switch]
    if others:
        given = ", ".join(f"{name}={options[name]!r}" if name in options else name for name in others)
        yield Finding(topic="options", what=given)
    if source.writes_day:
        yield Finding(topic="date", what=f"written; always {DAY}", consequence="a resumed run keeps its prompts")


def _tools(layout: Layout, source: TemplateSource) -> Finding:
    offered = "list of tools accepted" if source.takes_tools else "list of tools not supported by this template"
    plain, thoughtful = layout.tool.problem, layout.tool.problem_with_thoughts
    if plain and thoughtful:
        return Finding(topic="tools", what=f"{offered}; role tool not supported: it {thoughtful}")
    limit = ", only with thoughts" if plain else ", only without thoughts" if thoughtful else ""
    return Finding(topic="tools", what=f"{offered}; role tool appended{limit}")


def _consecutive_users(render: RenderWith, shape: Shape) -> Finding:
    chat = shape.fit([message("system", "s"), message("user", "first-7f3a"), message("user", "second-7f3a")])
    try:
        text = render(chat, True)
    except ModelError:
        return Finding(topic="two user messages in a row", what="refused")
    both = "first-7f3a" in text and "second-7f3a" in text
    return Finding(topic="two user messages in a row", what="accepted" if both else "one of them is lost")


def _white_space(layout: Layout) -> Finding:
    system, user, later = (*layout.trims, layout.user.trim)
    same = system == user and (user == later or bool(layout.user.problem))
    return Finding(topic="white space around messages", what=user if same else f"system {system}, user {user}, later {later}")


def _stops(tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int]) -> Finding:
    tokens = tokenizer.convert_ids_to_tokens(list(stop_ids))
    return Finding(topic="stops", what=", ".join(f"{token} ({i})" for token, i in zip(tokens, stop_ids, strict=True)) or "none")


def _pad(tokenizer: PreTrainedTokenizerBase) -> Iterator[Finding]:
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id == tokenizer.eos_token_id:
        yield Finding(topic="pad", what="is the eos token", consequence="harmless: masks go by position, never by id")


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]{2,}", text)
