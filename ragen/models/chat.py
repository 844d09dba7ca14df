"""Chat rendering: messages -> token ids, with sampled ids never encoded again and contents never trusted.

The model's own chat template is rendered a few times at start-up (template_probe.py). Where it only ever appends, prompts grow by
what it writes between a reply and the next one: `start`, then `append_user` or `append_tool`. In between lie the sampled ids,
exactly as sampled. Where it rewrites earlier turns, `prompt` renders the whole chat for every reply.

An observation that spells "<|im_end|>" is encoded as these ten characters, not as the control id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from jinja2 import TemplateError

from ragen.errors import ConfigError, ModelError, boundary, near_match
from ragen.models.config import ModelConfig
from ragen.models.marked_text import Marker, take_apart
from ragen.models.plain_encoding import PlainEncoder, ids_of
from ragen.models.template_findings import Finding, aligned, find
from ragen.models.template_probe import TRIMS, Layout, Message, Turns, message, probe
from ragen.models.template_source import TemplateSource, read_source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

THOUGHT_TAGS = ("<think>", "</think>")
"""Words of the reply, never a turn's boundary, even where they are added tokens."""

_RARE = "zyzzyva-7f3a \U0010fffd"  # a word and a character that no vocabulary holds whole

Tool = Mapping[str, Any]  # a function's JSON schema, as transformers takes it


class ChatTemplate:
    """Ids of prompts for one tokenizer. Probes the template when built; raises ModelError, one line, if it cannot be used.

    `extra_stop_ids` are the eos ids of the model's generation settings. `template_options` sets variables of the template,
    `thinking` its think switch (None: as the template has it). `tools` are offered to the model in the form that the template has
    for them. ConfigError names an option that the template does not have; one without effect is refused, too.

    White space around texts is dropped where the template drops it. BOS: a prompt starts with the one the template writes; where
    it writes none, with the one that the tokenizer puts before raw strings, if it does (the only place that decides about BOS).
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        extra_stop_ids: Iterable[int] = (),
        template_options: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        tools: Sequence[Tool] | None = None,
    ) -> None:
        self.name = tokenizer.name_or_path or "tokenizer"
        if not tokenizer.chat_template:
            raise ModelError(f"{self.name}: no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)")
        self._tokenizer = tokenizer
        self._tools = [dict(tool) for tool in tools] if tools else None
        self.source = _read(tokenizer, self._tools, self.name)
        self.options = _options(self.source, template_options or {}, thinking, self.name)
        self.layout = probe(self._render, self.name, self.source.words)
        control = _control_ids(tokenizer, self.layout)
        self.end_of_turn_id = next((i for i in ids_of(tokenizer, self.layout.close) if i in control), None)
        last_end_id = next((i for i in ids_of(tokenizer, self.layout.last_close) if i in control), None)
        stops = [self.end_of_turn_id, last_end_id, tokenizer.eos_token_id, *extra_stop_ids]
        self.stop_ids: tuple[int, ...] = tuple(sorted({i for i in stops if i is not None}))
        self._encoder = PlainEncoder(tokenizer, control | set(self.stop_ids))
        self.control_ids = self._encoder.control  # never part of a text; what the template writes, and what ends a reply
        self._marker = Marker(words=self.source.words, controls=self._encoder.markers)
        raw = ids_of(tokenizer, "a", automatic=True)
        self._bos_id = tokenizer.bos_token_id if raw[:1] == [tokenizer.bos_token_id] else None
        self._check_tools()
        self.findings: tuple[Finding, ...] = find(
            self._render, tokenizer, self.layout, self.source, self.options, self.stop_ids, self._bos()
        )

    @classmethod
    def configured(cls, tokenizer: PreTrainedTokenizerBase, config: ModelConfig) -> Self:
        """The template with the options that a run sets."""
        return cls(tokenizer, template_options=config.template_options, thinking=config.thinking)

    def with_tools(self, tools: Sequence[Tool]) -> ChatTemplate:
        """The same template with `tools` on offer. Raises ModelError if it has no place for them, or if they spell controls."""
        return ChatTemplate(self._tokenizer, extra_stop_ids=self.stop_ids, template_options=self.options, tools=tools)

    def start(self, system: str, user: str, *, reply_prefix: str = "") -> list[int]:
        """Ids of a new chat up to the first reply: both messages, the generation prompt, and `reply_prefix` unless it ends so."""
        return self.prompt([message("system", system), message("user", user)], reply_prefix=reply_prefix)

    def append_user(self, text: str, *, last_id: int | None, reply_prefix: str = "") -> list[int]:
        """Ids between a sampled reply and the next one: end of the assistant turn, user turn, generation prompt, `reply_prefix`.

        `last_id` is the reply's last id (None: nothing was sampled). If it already ends the turn, only what the template writes
        behind that is given, such as a newline. Only for append-only templates (`require_append_only`).
        """
        return self._append(self.layout.user, text, last_id, reply_prefix)

    def append_tool(self, text: str, *, last_id: int | None, reply_prefix: str = "") -> list[int]:
        """As `append_user`, with `text` as the result of a tool. Only where `appends(role="tool")`."""
        return self._append(self.layout.tool, text, last_id, reply_prefix)

    def prompt(self, messages: Sequence[Message], *, reply_prefix: str = "") -> list[int]:
        """Ids of a whole chat and of the generation prompt: the template's own rendering of `messages`, whatever it drops.

        `messages` are {"role", "content"}, from the system message (or the first user message) to the one to be answered; other
        texts that a template may know, such as "reasoning_content", may stand beside the content. None is trusted, earlier
        replies included: a control that one spells is plain text, and the template cannot act on it. Raises ModelError, with the
        template's own message, if it refuses the chat.
        """
        assert messages, "no messages"
        assert messages[-1]["role"] != "assistant", "the last message is a reply; what is to be answered?"
        mark = self._marker.mark
        marked = [{key: text if key == "role" else mark(text) for key, text in message.items()} for message in messages]
        rendered = self._render(self.layout.shape.fit(marked), True)
        with boundary(ModelError, f"{self.name}: chat template"):
            own, given = take_apart(rendered)
        own[-1] += self.layout.header
        return self._with_bos(self._encode(own, given, self._missing(reply_prefix, own[-1])))

    def opens_with(self, text: str) -> bool:
        """True if the template's own generation prompt ends with `text`: then the model never samples it."""
        return self.layout.start[-1].rstrip().endswith(text)

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text: nothing automatic around it, and no control id whatever it spells."""
        return self._encoder.text(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids without a stop id at the end. Decoded as a whole: a character may be spread over several ids."""
        kept = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        return str(self._tokenizer.decode(list(kept), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def appends(self, thoughts: bool = True, *, role: Literal["user", "tool"] = "user") -> bool:
        """True if a chat of several turns can be built by appending. `thoughts`: replies hold <think> blocks."""
        turns = self.layout.user if role == "user" else self.layout.tool
        return not (turns.problem_with_thoughts if thoughts else turns.problem)

    def require_append_only(self, *, thoughts: bool = True) -> None:
        """Raise ModelError unless `appends(thoughts)`."""
        turns = self.layout.user
        problem = turns.problem_with_thoughts if thoughts else turns.problem
        if problem:
            way_out = "" if turns.problem else ", rollout.context.think=false"
            raise ModelError(
                f"{self.name}: the chat template {problem}; several turns need one training sample per turn: use environments"
                f" with max_turns=1{way_out} or another model"
            )

    def require_prompts(self) -> None:
        """Raise ModelError if not even whole prompts of several turns can be rendered, for one training sample per turn."""
        if self.layout.prompt_problem:
            raise ModelError(
                f"{self.name}: the chat template {self.layout.prompt_problem}: use environments with max_turns=1 or another model"
            )

    def report(self) -> str:
        """What the probe found, some lines for a person."""
        return aligned(f"chat template of {self.name}", self.findings)

    def _append(self, turns: Turns, text: str, last_id: int | None, reply_prefix: str) -> list[int]:
        assert not turns.problem or not turns.problem_with_thoughts, turns.problem
        given = [TRIMS[turns.trim](text)]
        ids = self._encode([turns.close, turns.behind], given, self._missing(reply_prefix, turns.behind))
        return ids[ids.index(last_id) + 1 :] if last_id is not None and last_id == self.end_of_turn_id else ids

    def _encode(self, own: Sequence[str], given: Sequence[str], prefix: str) -> list[int]:
        """Ids of the template's own texts, the given ones between them and the reply's prefix: the only place that makes them."""
        return self._encoder.alternating([*own[:-1], own[-1] + prefix], given)

    def _render(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool, **options: Any) -> str:
        tools: list[Any] | None = self._tools
        with boundary(ModelError, f"{self.name}: chat template"):
            return str(
                self._tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    tools=tools,
                    chat_template=self.source.text,
                    add_generation_prompt=add_generation_prompt,
                    tokenize=False,
                    **(self.options | options),
                )
            )

    def _missing(self, reply_prefix: str, behind: str) -> str:
        return "" if reply_prefix and behind.rstrip().endswith(reply_prefix) else reply_prefix

    def _with_bos(self, ids: list[int]) -> list[int]:
        return [self._bos_id, *ids] if self._bos_id is not None and ids[:1] != [self._bos_id] else ids

    def _bos(self) -> str:
        bos_id = self._tokenizer.bos_token_id
        if bos_id is not None and ids_of(self._tokenizer, self.layout.start[0] + "a")[:1] == [bos_id]:
            return "as the template writes it"
        return "none" if self._bos_id is None else "the one of the tokenizer, put in front"

    def _check_tools(self) -> None:
        if self._tools is None:
            return
        if not self.source.takes_tools:
            raise ModelError(f"{self.name}: tools: not supported by this template; describe them in the instruction instead")
        for tool in self._tools:
            text = json.dumps(tool, ensure_ascii=False)
            if not self._encoder.control.isdisjoint(ids_of(self._tokenizer, text)):
                raise ModelError(f"{self.name}: tools: the description of a tool spells a control token: {text[:200]}")


def _read(tokenizer: PreTrainedTokenizerBase, tools: list[dict[str, Any]] | None, name: str) -> TemplateSource:
    with boundary(ModelError, f"{name}: chat template"):
        text = tokenizer.get_chat_template(tools=tools)
        try:
            return read_source(text)
        except TemplateError as error:
            raise ModelError(f"{name}: chat template: cannot be read: {error}") from error


def _options(source: TemplateSource, options: Mapping[str, Any], thinking: bool | None, name: str) -> dict[str, Any]:
    known = ", ".join(source.options) or "none"
    for key in options:
        if key not in source.options:
            raise ConfigError(
                f"model.template_options.{key}={options[key]!r}: the chat template of {name} has no such option (it has: {known})"
                f"{near_match(key, source.options)}"
            )
    if thinking is None:
        return dict(options)
    if source.think_switch is None:
        raise ConfigError(f"model.thinking={thinking}: the chat template of {name} has no think switch (its options: {known})")
    return {**options, source.think_switch: thinking}


def _control_ids(tokenizer: PreTrainedTokenizerBase, layout: Layout) -> set[int]:
    """Special tokens, and added tokens that the template writes around contents. Not the unknown id where plain text needs it."""
    turns = (layout.user, layout.tool)
    written = " ".join((*layout.start, layout.close, layout.last_close, *(turn.close + " " + turn.behind for turn in turns)))
    control = set(tokenizer.all_special_ids)
    for index, token in tokenizer.added_tokens_decoder.items():
        if token.special or (token.content in written and not token.content.isspace()):
            control.add(index)
        if token.content in THOUGHT_TAGS:
            control.discard(index)
    needs_unknown = tokenizer.unk_token_id in ids_of(tokenizer, _RARE, plain=True)
    return control - {tokenizer.unk_token_id} if needs_unknown else control
