"""What a single id spells, for a person to read."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a byte in vocabularies that fall back to bytes
_LOST = "\N{REPLACEMENT CHARACTER}"


def speller(tokenizer: PreTrainedTokenizerBase) -> Callable[[int], str]:
    """The function id -> text. Bytes of a character that is spread over several ids come as \\xNN each."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters: dict[int, str] = bytes_to_unicode()  # type: ignore[no-untyped-call]
    byte_of = {letter: byte for byte, letter in letters.items()}
    (anchor,) = tokenizer("a", add_special_tokens=False)["input_ids"][-1:]  # a tokenizer may drop a space at the beginning

    def decode(*ids: int) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    before = decode(anchor)

    def raw_bytes(word: str) -> list[int] | None:
        if found := _BYTE.fullmatch(word):
            return [int(found[1], 16)]
        return [byte_of[letter] for letter in word] if all(letter in byte_of for letter in word) else None

    @cache
    def spell(index: int) -> str:
        text = decode(anchor, index).removeprefix(before)
        if _LOST not in text:
            return text
        parts = raw_bytes(str(tokenizer.convert_ids_to_tokens(index)))
        return text if parts is None else bytes(parts).decode(errors="backslashreplace")

    return spell
