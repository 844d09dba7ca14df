"""Chat rendering that only ever appends: template text -> token ids, with sampled ids never encoded again.

The model's own chat template is rendered a few times at start-up with marked contents. What it writes around them is kept as
text, and every prompt is put together from it: `start` for the first one, `append_user` for what goes between a sampled reply and
the next one. In between lie the sampled ids, exactly as sampled.

Content is never trusted: an observation that spells "<|im_end|>" is encoded as these ten characters, not as the control id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest
from typing import TYPE_CHECKING

from ragen.errors import ModelError, boundary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, str]
Render = Callable[[Sequence[Message], bool], str]  # messages, add_generation_prompt -> text

# Contents of the probe chats: not found again means that the template rewrites what it is given.
_SYSTEM = 'system-7f3a "&<é>"\n\\ {7f3a}'
_USER = 'user-7f3a "&<é>"\n\\ {7f3a}'
_NEXT_USER = 'next-7f3a "&<é>"\n\\ {7f3a}'
_REPLY = "reply-7f3a"
_THOUGHT_TAGS = ("<think>", "</think>")  # words of the reply, never a turn's boundary, even where they are added tokens
_THOUGHTFUL_REPLY = f"<think>thought-7f3a</think><answer>{_REPLY}</answer>"
_FOLD = "\n\n"  # between system and user text where a template knows no system role


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a template writes around the contents. `problem` says why turns cannot simply be appended; empty if they can."""

    start: tuple[str, str, str]  # before the system text, between it and the user text, behind it (with the generation prompt)
    append: tuple[str, str]  # between a reply and the next user text, behind it; ("", "") if a second turn cannot be rendered
    close: str  # what ends an assistant turn
    folded: bool  # the system text stands at the top of the first user turn
    strips: bool  # white space around a content is taken off
    problem: str
    problem_with_thoughts: str  # the same for replies that hold a <think> block


class ChatTemplate:
    """Ids of prompts for one tokenizer. Probes the template when built; raises ModelError, one line, if it cannot be used.

    `extra_stop_ids` are the eos ids of the model's generation settings. White space around system and user texts is dropped where
    the template drops it. BOS: a prompt starts with the one the template writes; where it writes none, with the one that the
    tokenizer puts before raw strings, if it does (this is the only place that decides about BOS).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, extra_stop_ids: Iterable[int] = ()) -> None:
        self.name = tokenizer.name_or_path or "tokenizer"
        if not tokenizer.chat_template:
            raise ModelError(f"{self.name}: no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)")
        self._tokenizer = tokenizer
        self.layout = probe(self._render, self.name)
        self._control = _control_ids(tokenizer, self.layout)
        raw = self._ids("a", add_special_tokens=True)
        self._bos_id = tokenizer.bos_token_id if raw[:1] == [tokenizer.bos_token_id] else None
        self.end_of_turn_id = next((i for i in self._ids(self.layout.close) if i in self._control), None)
        stops = [self.end_of_turn_id, tokenizer.eos_token_id, *extra_stop_ids]
        self.stop_ids: tuple[int, ...] = tuple(sorted({i for i in stops if i is not None}))
        self._control |= set(self.stop_ids)

    def start(self, system: str, user: str, *, reply_prefix: str = "") -> list[int]:
        """Ids of a new chat up to the first reply: both messages, the generation prompt, and `reply_prefix` unless it ends so."""
        before, between, behind = self.layout.start
        ids = self._encode([before, between, behind + self._missing(reply_prefix)], [system, user])
        return [self._bos_id, *ids] if self._bos_id is not None and ids[:1] != [self._bos_id] else ids

    def append_user(self, text: str, *, last_id: int | None, reply_prefix: str = "") -> list[int]:
        """Ids between a sampled reply and the next one: end of the assistant turn, user turn, generation prompt, `reply_prefix`.

        `last_id` is the reply's last id (None: nothing was sampled). If it already ends the turn, only what the template writes
        behind that is given, such as a newline. Only for append-only templates (`require_append_only`).
        """
        assert not self.layout.problem, self.layout.problem
        close, behind = self.layout.append
        ids = self._encode([close, behind + self._missing(reply_prefix)], [text])
        return ids[ids.index(last_id) + 1 :] if last_id is not None and last_id == self.end_of_turn_id else ids

    def opens_with(self, text: str) -> bool:
        """True if the template's own generation prompt ends with `text`: then the model never samples it."""
        return self.layout.start[-1].rstrip().endswith(text)

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text: nothing automatic around it, and no control id whatever it spells."""
        ids = self._ids(text)
        return ids if self._control.isdisjoint(ids) else self._plain_ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids without a stop id at the end. Decoded as a whole: a character may be spread over several ids."""
        kept = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        return str(self._tokenizer.decode(list(kept), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def require_append_only(self, *, thoughts: bool = True) -> None:
        """Raise ModelError if a chat of several turns cannot be built by appending. `thoughts`: replies hold <think> blocks."""
        problem = self.layout.problem_with_thoughts if thoughts else self.layout.problem
        if problem:
            way_out = "" if self.layout.problem else ", rollout.context.think=false"
            raise ModelError(
                f"{self.name}: the chat template {problem}; several turns would need one training sample per turn, which is not"
                f" offered yet: use environments with max_turns=1{way_out} or another model"
            )

    def report(self) -> str:
        """What the probe found, a few lines for a person."""
        layout = self.layout
        tokens = self._tokenizer.convert_ids_to_tokens(list(self.stop_ids))
        adds_bos = self._bos_id is not None and not self._writes_bos()
        lines = [
            f"chat template of {self.name}",
            f"  system text: {'folded into the first user turn (no usable system role)' if layout.folded else 'own role'}",
            f"  several turns: {_append_report(layout)}",
            f"  white space around messages: {'dropped' if layout.strips else 'kept'}",
            f"  BOS: {'the one of the tokenizer, put in front' if adds_bos else 'as the template writes it'}",
            f"  stops: {', '.join(f'{token} ({i})' for token, i in zip(tokens, self.stop_ids, strict=True)) or 'none'}",
        ]
        return "\n".join(lines)

    def _render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        with boundary(ModelError, f"{self.name}: chat template"):
            return str(
                self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=add_generation_prompt)
            )

    def _missing(self, reply_prefix: str) -> str:
        return "" if reply_prefix and self.opens_with(reply_prefix) else reply_prefix

    def _writes_bos(self) -> bool:
        return self._ids(self.layout.start[0] + "a")[:1] == [self._bos_id]

    def _encode(self, trusted: Sequence[str], contents: Sequence[str]) -> list[int]:
        """Ids of trusted[0] + contents[0] + trusted[1] + ... as one string, so that merges are those of the rendered chat.

        If a content spells control ids, the pieces are encoded one by one instead, and the contents without control ids.
        """
        if self.layout.strips:
            contents = [content.strip() for content in contents]
        pieces = zip_longest(trusted, contents, fillvalue="")
        whole = self._ids("".join(chain.from_iterable(pieces)))
        own = [self._ids(piece) for piece in trusted]
        if [i for i in whole if i in self._control] == [i for i in chain(*own) if i in self._control]:
            return whole
        plain = [self.encode_text(content) for content in contents]
        return list(chain.from_iterable(chain(*pair) for pair in zip_longest(own, plain, fillvalue=())))

    def _plain_ids(self, text: str) -> list[int]:
        """Ids of `text` without control ids. The tokenizer overlooks special tokens when asked to; where that is not enough (a
        marker that is not flagged as special, a text that normalises to one), halving takes the marker apart."""
        ids = self._ids(text, split_special_tokens=True)
        if self._control.isdisjoint(ids):
            return ids
        if len(text) == 1:  # a character that exists only as a control id cannot be written
            return []
        half = len(text) // 2
        return self._plain_ids(text[:half]) + self._plain_ids(text[half:])

    def _ids(self, text: str, *, add_special_tokens: bool = False, split_special_tokens: bool = False) -> list[int]:
        text = text.encode(errors="replace").decode()  # a lone surrogate is no text, and tokenizers refuse it
        # verbose=False: the room in the window is the context manager's affair, not a warning's.
        encoded = self._tokenizer(
            text, add_special_tokens=add_special_tokens, split_special_tokens=split_special_tokens, verbose=False
        )
        return list(encoded["input_ids"])


def probe(render: Render, name: str) -> Layout:
    """Find out how a template lays out a chat; prefers an own system role, folds the system text into the user's otherwise.

    Raises ModelError, with the template's own message, if not even a single user message can be rendered.
    """
    layouts: list[Layout] = []
    for folded in (False, True):
        try:
            with boundary(ModelError, f"{name}: chat template"):
                layout = _layout(render, folded=folded)
        except ModelError as error:
            failure = error
            continue
        if not layout.problem:
            return layout
        layouts.append(layout)
    if not layouts:
        raise failure
    return layouts[0]


def _layout(render: Render, *, folded: bool) -> Layout:
    def opening(system: str, user: str) -> list[Message]:
        if folded:
            return [_message("user", system + _FOLD + user)]
        return [_message("system", system), _message("user", user)]

    chat = opening(_SYSTEM, _USER)
    text = render(chat, True)
    padded = render(opening(f" \n{_SYSTEM}", f"{_USER}\n "), True)
    append, problem = _probe_append(render, chat, _REPLY)
    _, problem_with_thoughts = _probe_append(render, chat, _THOUGHTFUL_REPLY)
    answered = "" if append else render([*chat, _message("assistant", _REPLY)], False)
    return Layout(
        start=_three(text),
        append=append or ("", ""),
        close=append[0] if append else answered.rpartition(_REPLY)[2],
        folded=folded,
        strips=f" \n{_SYSTEM}" not in padded or f"{_USER}\n " not in padded,
        problem=problem,
        problem_with_thoughts=problem or problem_with_thoughts,
    )


def _three(text: str) -> tuple[str, str, str]:
    if text.count(_SYSTEM) != 1 or text.count(_USER) != 1 or text.index(_SYSTEM) > text.index(_USER):
        raise ValueError("does not show system and user text once each, in this order and unchanged")
    before, rest = text.split(_SYSTEM)
    between, behind = rest.split(_USER)
    return before, between, behind


def _probe_append(render: Render, chat: list[Message], reply: str) -> tuple[tuple[str, str] | None, str]:
    """What stands between a reply and the next generation prompt, split at the user text; or None and what is wrong.

    Turn 2 must start with turn 1 and the reply, turn 3 with turn 2 and the reply, and both must add the same text. White space
    before a reply is let through: the model samples it.
    """
    turn = [_message("assistant", reply), _message("user", _NEXT_USER)]
    try:
        texts = [render(chat, True), render([*chat, *turn], True), render([*chat, *turn, *turn], True)]
    except ModelError as error:
        return None, f"refuses a second turn ({error})"
    added = []
    for shorter, longer in pairwise(texts):
        gap, found, suffix = longer.removeprefix(shorter).partition(reply)
        if not longer.startswith(shorter) or not found or gap.strip():
            return None, "rewrites earlier turns" + (" (drops their thoughts)" if reply == _THOUGHTFUL_REPLY else "")
        added.append(suffix)
    if added[0] != added[1] or added[0].count(_NEXT_USER) != 1:
        return None, "writes later turns differently from earlier ones"
    close, behind = added[0].split(_NEXT_USER)
    return (close, behind), ""


def _append_report(layout: Layout) -> str:
    if layout.problem:
        return f"no, it {layout.problem}"
    if layout.problem_with_thoughts:
        return f"only without thoughts, else it {layout.problem_with_thoughts}"
    return "yes, by appending"


def _control_ids(tokenizer: PreTrainedTokenizerBase, layout: Layout) -> set[int]:
    """Special tokens, and added tokens that the template writes around contents. Not the unknown id: plain text may need it."""
    written = " ".join((*layout.start, *layout.append, layout.close))
    control = set(tokenizer.all_special_ids)
    for index, token in tokenizer.added_tokens_decoder.items():
        if token.special or (token.content in written and not token.content.isspace()):
            control.add(index)
        if token.content in _THOUGHT_TAGS:
            control.discard(index)
    return control - {tokenizer.unk_token_id}


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
