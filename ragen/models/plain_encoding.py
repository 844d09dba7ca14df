"""Text -> ids where only trusted text may become control ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from ragen.models.marked_text import join

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def ids_of(tokenizer: PreTrainedTokenizerBase, text: str, *, automatic: bool = False, plain: bool = False) -> list[int]:
    """Ids of `text`. `automatic`: with what the tokenizer puts around raw strings. `plain`: special tokens are overlooked."""
    # verbose=False: the room in the window is the context manager's affair, not a warning's.
    encoded = tokenizer(_clean(text), add_special_tokens=automatic, split_special_tokens=plain, verbose=False)
    return list(encoded["input_ids"])


def ids_and_spans(tokenizer: PreTrainedTokenizerBase, text: str) -> list[tuple[int, int, int]]:
    """`ids_of(text)` with the characters [start, stop) that each id covers; ids that share a character all cover it."""
    encoded = tokenizer(_clean(text), add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return [(index, *span) for index, span in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)]


class PlainEncoder:
    """Encodes messages so that nothing they spell becomes one of the `control` ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, control: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self.control = frozenset(control)
        added = tokenizer.added_tokens_decoder
        self.markers = tuple(sorted({added[i].content for i in self.control if i in added}))
        self._any_marker = re.compile("|".join(map(re.escape, self.markers)) or "(?!)")

    def text(self, text: str) -> list[int]:
        """Ids of a text that is not trusted: no control id, whatever it spells."""
        ids = ids_of(self._tokenizer, text)
        return ids if self.control.isdisjoint(ids) else self._plain(text)

    def alternating(self, own: Sequence[str], given: Sequence[str]) -> list[int]:
        """Ids of own[0] + given[0] + own[1] + ... as one string, so that merges are those of the whole; `given` is not trusted.

        If a given text spells control ids, the pieces are encoded one by one instead, and the given ones without control ids.
        """
        whole = ids_of(self._tokenizer, join(own, given))
        own_ids = [ids_of(self._tokenizer, piece) if self._any_marker.search(piece) else [] for piece in own]
        if [i for i in whole if i in self.control] == [i for i in chain(*own_ids) if i in self.control]:
            return whole
        return list(chain.from_iterable(self.one_by_one(own, given)))

    def one_by_one(self, own: Sequence[str], given: Sequence[str]) -> list[list[int]]:
        """Ids of own[0], given[0], own[1], ..., each piece for itself and the given ones without control ids."""
        trusted = [ids_of(self._tokenizer, piece) for piece in own]
        plain = [self.text(piece) for piece in given]
        return [ids for pair in zip_longest(trusted, plain) for ids in pair if ids is not None]

    def _plain(self, text: str) -> list[int]:
        """The tokenizer overlooks special tokens when asked to; where that is not enough (a marker that is not flagged as
        special, a text that normalises to one), halving takes the marker apart."""
        ids = ids_of(self._tokenizer, text, plain=True)
        if self.control.isdisjoint(ids):
            return ids
        if len(text) == 1:  # a character that exists only as a control id cannot be written
            return []
        half = len(text) // 2
        return self._plain(text[:half]) + self._plain(text[half:])


def _clean(text: str) -> str:
    """A lone surrogate is no text, and tokenizers refuse it; a question mark takes its place."""
    return text.encode(errors="replace").decode()
