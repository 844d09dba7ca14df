"""The chat of a policy that reads and writes text, and whose tokenizer nobody knows: a server's, a script's, a person's.

It does for the context manager what a `ChatTemplate` does, so that limits, memory and the growth of a prompt are one code for
every policy. Its ids stand for pieces of text, are negative, and mean something to the `TextChat` that made them alone; what is
recorded of them is their number (`records.UNKNOWN_ID`). A piece is about as long as a token, so a number of ids estimates tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ragen.records import ChatMessage

# Short words with the space before them, up to three digits, one or two signs, a run of spaces: what tokenizers cut text into.
_PIECE = re.compile(r" ?[^\W\d_]{1,8}| ?\d{1,3}| ?[^\w\s]{1,2}| ?_|\s+| ?\w", re.DOTALL)
_ROLES = ("system", "user", "assistant")
_FIRST_PIECE = -2 - len(_ROLES)  # -1 is UNKNOWN_ID, then come the roles


class TextChat:
    """Messages -> ids and back, without loss."""

    name = "text"
    stop_ids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._ids: dict[str, int] = {}

    def prompt(self, messages: Sequence[Mapping[str, str]], *, reply_prefix: str = "") -> list[int]:
        """Ids of a whole chat and of what the reply begins with."""
        ids: list[int] = []
        for message in messages:
            ids += self._turn(message["role"], message["content"])
        return ids + self._turn("assistant", reply_prefix)

    def append_user(self, text: str, *, last_id: int | None, reply_prefix: str = "") -> list[int]:
        """Ids between a reply and the next one."""
        return self._turn("user", text) + self._turn("assistant", reply_prefix)

    def messages(self, ids: Sequence[int]) -> list[ChatMessage]:
        """The chat that a prompt spells; the last message is what the reply begins with, mostly nothing."""
        turns: list[tuple[str, list[str]]] = []
        for each in ids:
            if (role := _role(each)) is not None:
                turns.append((role, []))
            else:
                turns[-1][1].append(self._piece(each))
        return [ChatMessage(role=role, content="".join(pieces)) for role, pieces in turns]

    def opens_with(self, text: str) -> bool:
        """A prompt never says the beginning of a reply by itself."""
        return False

    def appends(self, thoughts: bool = True) -> bool:
        """Every request carries the whole chat, so every reply has a prompt of its own."""
        return False

    def require_prompts(self) -> None:
        """Whole prompts are all there is."""

    def encode_text(self, text: str) -> list[int]:
        """Ids of the pieces of a text; half of a surrogate pair, which JSON can spell but no text can hold, becomes U+FFFD."""
        ids = []
        for piece in _PIECE.findall(whole_characters(text)):
            if piece not in self._ids:
                self._ids[piece] = _FIRST_PIECE - len(self._pieces)
                self._pieces.append(piece)
            ids.append(self._ids[piece])
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text that ids spell; a role stands in brackets on a line of its own, which no reply holds."""
        return "".join(self._piece(each) if _role(each) is None else f"\n[{_role(each)}]\n" for each in ids)

    def _turn(self, role: str, content: str) -> list[int]:
        return [-2 - _ROLES.index(role), *self.encode_text(content)]

    def _piece(self, id_: int) -> str:
        return self._pieces[_FIRST_PIECE - id_]


def whole_characters(text: str) -> str:
    """The text with U+FFFD in the place of half surrogate pairs, so that it can be written."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def num_pieces(text: str) -> int:
    """About how many tokens a text has, for want of a tokenizer."""
    return len(_PIECE.findall(text))


def _role(id_: int) -> str | None:
    return _ROLES[-2 - id_] if id_ > _FIRST_PIECE else None
