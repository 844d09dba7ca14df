"""When to stop sampling: stop ids, and stop texts found on the bytes of the sampled ids, without decoding the reply again.

A stop text may begin and end in the middle of tokens. Each id is turned into its bytes once (`token_bytes`); a request keeps only
the few last bytes that could be the beginning of a stop text. The ids are never cut: what was sampled is what is trained on.
Cutting the text that a parser reads is the context manager's affair.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


class StopMatcher:
    """Watches the sampled ids of one request. What stands in the prompt is never shown to it, so it cannot stop the reply."""

    def __init__(self, piece: Callable[[int], bytes], stop_ids: Sequence[int], stop_texts: Sequence[str]) -> None:
        if "" in stop_texts:
            raise ValueError(f"stop_texts={tuple(stop_texts)!r}: an empty text would stop every reply at once")
        self._piece = piece
        self._stop_ids = frozenset(stop_ids)
        self._stops = tuple(text.encode() for text in stop_texts)
        self._num_kept = max((len(stop) for stop in self._stops), default=1) - 1
        self._tail = b""

    def push(self, token_id: int) -> bool:
        """Take one sampled id; True if it is a stop id or completes a stop text: sampling ends with it."""
        if token_id in self._stop_ids:
            return True
        if not self._stops:
            return False
        seen = self._tail + self._piece(token_id)
        self._tail = seen[max(0, len(seen) - self._num_kept) :]
        return any(stop in seen for stop in self._stops)

    def restart(self) -> None:
        """Forget what was sampled: the reply is begun again."""
        self._tail = b""


def token_bytes(tokenizer: PreTrainedTokenizerBase) -> Callable[[int], bytes]:
    """A cached function from a token id to the UTF-8 bytes that the id adds to a text.

    Exact for byte-level BPE and for byte-fallback vocabularies, where half a character is a token of its own. Other vocabularies
    are asked what the id adds behind itself, since decoders drop or add a space only at the start of a text. An added token
    stands for its own written form.
    """
    added = {index: token.content.encode() for index, token in tokenizer.added_tokens_decoder.items()}
    byte_of = _byte_level_alphabet() if _is_byte_level(tokenizer) else None

    @functools.cache
    def piece(token_id: int) -> bytes:
        if token_id in added:
            return added[token_id]
        token = tokenizer.convert_ids_to_tokens(token_id)
        if not isinstance(token, str):  # a row of the output layer beyond the vocabulary: it has no text
            return b""
        if byte_of is not None and all(character in byte_of for character in token):
            return bytes(byte_of[character] for character in token)
        if fallback := BYTE_FALLBACK.fullmatch(token):
            return bytes.fromhex(fallback[1])
        return _added_behind_itself(tokenizer, token_id).encode()

    return piece


def _added_behind_itself(tokenizer: PreTrainedTokenizerBase, token_id: int) -> str:
    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    return decode([token_id, token_id])[len(decode([token_id])) :]


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)  # absent for tokenizers written in Python alone
    decoder = getattr(backend, "decoder", None)
    return decoder is not None and b'"ByteLevel"' in decoder.__getstate__()


def _byte_level_alphabet() -> dict[str, int]:
    """The characters in which byte-level BPE writes bytes: printable ones as they are, the others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
