"""A chat template that remembers where every id came from that it wrote.

Each id is traced while the text is put together: the template's own texts and the messages between them are known before they are
encoded, and the tokenizer says which characters an id covers. Nothing is searched for in a finished prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ragen.models.chat import ChatTemplate
from ragen.models.marked_text import take_apart
from ragen.models.plain_encoding import ids_and_spans
from ragen.models.template_probe import Message, Turns

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Origin(StrEnum):
    """Who wrote the text of a token."""

    TEMPLATE = "template"  # role markers, and whatever else the chat template writes itself
    ENVIRONMENT = "environment"  # messages of system and user: task, observations, rewards, how to answer, notes
    RETOLD = "retold"  # an earlier reply in a prompt that was built anew: encoded again, and never trained there
    PREFIX = "prefix"  # the forced beginning of a reply
    SAMPLED = "sampled"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where one id came from. `merged`: it also covers text of somebody else; then the template's part counts."""

    origin: Origin
    merged: bool = False


@dataclass(frozen=True, kw_only=True)
class Written:
    """The ids that one call of the template gave, with the source of each."""

    ids: tuple[int, ...]
    sources: tuple[Source, ...]


Part = tuple[str, Origin]

_TEMPLATE = Source(origin=Origin.TEMPLATE)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Text of a message between two words that the template looks for. `joint`: the word, and white space, before it."""

    text: str
    origin: Origin
    joint: str | None  # None before the first piece: what stands there is not the message's


class TracedTemplate(ChatTemplate):
    """A ChatTemplate that keeps what it writes in `written`, in the order of the calls.

    What stands at the ends of a message counts as the template's if it may have come from there: white space, and tags that the
    template looks for, such as the think tag of an earlier reply.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, **settings: Any) -> None:
        super().__init__(tokenizer, **settings)
        self.written: list[Written] = []
        self._messages: Sequence[Message] = ()
        self._sources: list[Source] = []

    def prompt(self, messages: Sequence[Message], *, reply_prefix: str = "") -> list[int]:
        self._messages = messages
        return self._remember(super().prompt(messages, reply_prefix=reply_prefix))

    def _append(self, turns: Turns, text: str, last_id: int | None, reply_prefix: str) -> list[int]:
        self._messages = ()
        return self._remember(super()._append(turns, text, last_id, reply_prefix))

    def _encode(self, own: Sequence[str], given: Sequence[str], prefix: str) -> list[int]:
        ids = super()._encode(own, given, prefix)
        pieces = self._parts(own, given, prefix)
        traced = self._by_character([part for piece in pieces for part in piece])
        if [index for index, _ in traced] != ids:  # a message spells a control, so each piece was encoded for itself
            encoded = self._encoder.one_by_one([*own[:-1], own[-1] + prefix], given)
            traced = [each for pair in zip(encoded, pieces, strict=True) for each in self._by_piece(*pair)]
        assert [index for index, _ in traced] == ids
        self._sources = [source for _, source in traced]
        return ids

    def _remember(self, ids: list[int]) -> list[int]:
        """What was encoded stands at the end of `ids`: a BOS may have come before it, an end of turn may have gone."""
        num_added = max(0, len(ids) - len(self._sources))
        sources = [_TEMPLATE] * num_added + self._sources
        self.written.append(Written(ids=tuple(ids), sources=tuple(sources[len(sources) - len(ids) :])))
        return ids

    def _parts(self, own: Sequence[str], given: Sequence[str], prefix: str) -> list[list[Part]]:
        """own[0], given[0], own[1], ..., each as parts with their origin; the last one holds the prefix as well.

        Messages are rendered in their order, so a given text is the next one that says the same. A template may drop some, move
        some, and rewrite some beyond recognition; those count as the environment's.
        """
        pieces = [piece for message in self._messages for piece in self._pieces(message)]
        parts: list[list[Part]] = []
        place = 0
        for before, text in zip(own, given, strict=False):
            here = next((i for i in range(place, len(pieces)) if pieces[i].text == text), None)
            origin = Origin.ENVIRONMENT if here is None else pieces[here].origin
            is_joint = here == place and pieces[place].joint == before
            parts += [[(before, origin if is_joint else Origin.TEMPLATE)], [(text, origin)]]
            place = place if here is None else here + 1
        return [*parts, [(own[-1], Origin.TEMPLATE), (prefix, Origin.PREFIX)]]

    def _pieces(self, message: Message) -> Iterator[_Piece]:
        origin = Origin.RETOLD if message["role"] == "assistant" else Origin.ENVIRONMENT
        own, given = take_apart(self._marker.mark(message["content"]))
        for index, text in enumerate(given):
            yield _Piece(text=text, origin=origin, joint=own[index] if index else None)

    def _by_piece(self, ids: Sequence[int], parts: Sequence[Part]) -> list[tuple[int, Source]]:
        traced = self._by_character(parts)
        if [index for index, _ in traced] == list(ids):
            return traced
        return [(index, Source(origin=parts[0][1])) for index in ids]  # a text without the control that it spells

    def _by_character(self, parts: Sequence[Part]) -> list[tuple[int, Source]]:
        """The ids of the parts as one text, each with the source of the characters that it covers."""
        owners = [origin for text, origin in parts for _ in text]
        return [
            (index, _source(owners[start:stop] or owners[max(0, start - 1) : start]))
            for index, start, stop in ids_and_spans(self._tokenizer, "".join(text for text, _ in parts))
        ]


def _source(covered: Sequence[Origin]) -> Source:
    origin = Origin.TEMPLATE if not covered or Origin.TEMPLATE in covered else covered[0]
    return Source(origin=origin, merged=len(set(covered)) > 1)
