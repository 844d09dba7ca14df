"""The tags of a reply: where they stand, in what order, and how they are spelt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ragen.records import Verdict
from ragen.rollout.replies.lookalikes import INVISIBLE, skeleton

# Possessive throughout: nothing is tried twice, so that reading is linear in the text whatever it holds.
_GAP = rf"[\s{INVISIBLE}]*+"


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """A text taken apart at its tags.

    `order` has one letter per tag: t and T for a thought that opens and closes, a and A for an answer. Behind tag i comes
    `pieces[i + 1]`. `misspelt` is how the worst-spelt tag deviates, or VALID.
    """

    order: str
    pieces: tuple[str, ...]
    misspelt: Verdict


@dataclass(frozen=True, kw_only=True)
class Tags:
    """The names between the brackets. With `answer` "" there is no such tag."""

    thought: str
    answer: str

    def scan(self, text: str) -> Tagged:
        """Take `text` apart at whatever reads as a tag, also misspelt: only the exact spelling counts as one, but none may stand
        inside a field, where a person or a laxer parser would see it."""
        order, pieces, spellings = [], [], set()
        behind = 0
        for match in self._pattern.finditer(skeleton(text)):
            found = text[match.start() : match.end()]
            letter = "t" if match["name"].replace(INVISIBLE, "").lower() == self.thought else "a"
            order.append(letter.upper() if match["closing"] else letter)
            spellings.add(_spelling(found, self.spelt(order[-1])))
            pieces.append(text[behind : match.start()])
            behind = match.end()
        worst = max(spellings, key=_GRAVITY.index, default=Verdict.VALID)
        return Tagged(order="".join(order), pieces=(*pieces, text[behind:]), misspelt=worst)

    def spelt(self, letter: str) -> str:
        """The tag behind a letter of `Tagged.order`."""
        name = self.thought if letter in "tT" else self.answer
        return f"</{name}>" if letter.isupper() else f"<{name}>"

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(_spread(name) for name in (self.thought, self.answer) if name)
        return re.compile(rf"<{_GAP}(?P<closing>/{_GAP})?+(?P<name>{names}){_GAP}>", re.IGNORECASE)


_GRAVITY: Sequence[Verdict] = (Verdict.VALID, Verdict.SPACED_TAG, Verdict.WRONG_CASE, Verdict.LOOKALIKE_TAG)


def _spelling(found: str, exact: str) -> Verdict:
    if found == exact:
        return Verdict.VALID
    if found.isascii() and found.lower() == exact:
        return Verdict.WRONG_CASE
    if found.isascii() and "".join(found.split()).lower() == exact:
        return Verdict.SPACED_TAG
    return Verdict.LOOKALIKE_TAG


def _spread(name: str) -> str:
    """A pattern of `name` that overlooks invisible characters between its letters."""
    return f"{INVISIBLE}*+".join(re.escape(letter) for letter in name)
