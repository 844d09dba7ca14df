"""How thought and answer are told apart: the order of the tags gives a deviation its name, the grammar says what it costs.

Everything here works on `Tagged.order`, one letter per tag: `tTaA` is a thought, then an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from ragen.records import Verdict
from ragen.rollout.replies.tags import Tagged


class Grammar(StrEnum):
    """How much of a deviation from the format is forgiven."""

    STRICT = "strict"  # the blocks that the prompt asks for, in order, and nothing but white space outside
    LENIENT = "lenient"  # whatever leaves no doubt about the answer is played
    RAW = "raw"  # the whole reply is the answer: no tags


class Ruling(Enum):
    """What becomes of a reply with some verdict."""

    FREE = "played, no penalty"
    COSTLY = "played, penalty"
    REFUSED = "not played, penalty"


class Envelope(Enum):
    """What the answer is wrapped in."""

    BLOCK = "one block"
    BLOCKS = "one block per action"
    REST = "whatever follows the thought"
    WHOLE = "the whole reply"


_ALWAYS = {
    Verdict.VALID: Ruling.FREE,
    Verdict.UNKNOWN_ACTION: Ruling.COSTLY,
    Verdict.LOOKALIKE_ACTION: Ruling.COSTLY,
    Verdict.TOO_MANY_ACTIONS: Ruling.COSTLY,
}
_FORGIVEN = (Verdict.WRONG_CASE, Verdict.SPACED_TAG, Verdict.UNCLOSED_ANSWER, Verdict.TEXT_AROUND)
_PLAYED_AT_A_COST = (
    Verdict.UNWANTED_THOUGHT,
    Verdict.MISSING_THOUGHT,
    Verdict.UNOPENED_THOUGHT,
    Verdict.UNCLOSED_THOUGHT,
    Verdict.DUPLICATE_THOUGHT,
    Verdict.ANSWER_IN_THOUGHT,
    Verdict.DUPLICATE_ANSWER,
)
RULINGS: Mapping[Grammar, Mapping[Verdict, Ruling]] = {  # a verdict that is not listed is refused
    Grammar.STRICT: _ALWAYS,
    Grammar.LENIENT: _ALWAYS | dict.fromkeys(_FORGIVEN, Ruling.FREE) | dict.fromkeys(_PLAYED_AT_A_COST, Ruling.COSTLY),
    # A model without an end of turn fills its tokens; what it wrote is an answer all the same.
    Grammar.RAW: _ALWAYS | {Verdict.TRUNCATED: Ruling.COSTLY},
}


def ruling(grammar: Grammar, verdict: Verdict) -> Ruling:
    """Whether a reply with this verdict is played, and whether it costs the format penalty."""
    return RULINGS[grammar].get(verdict, Ruling.REFUSED)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """What stands in the blocks. `answers` has one text per answer block; empty if it is in doubt which the answer is."""

    thought: str
    answers: tuple[str, ...]
    verdict: Verdict


def read_fields(tagged: Tagged, *, think: bool, envelope: Envelope, finished: bool) -> Fields:
    """Thought and answers of a reply, and the gravest way in which it deviates from the format.

    Behind the last closing thought tag comes the answer; of several answers there the last one counts (all of them in BLOCKS).
    `finished` False: the reply was cut off.
    """
    order = tagged.order
    # A tag that only looks like one goes first: with it, the order of the others says little.
    doubt = tagged.misspelt if tagged.misspelt is Verdict.LOOKALIKE_TAG else _doubt(order, think, envelope, finished)
    if doubt is not None:
        return Fields(thought="", answers=(), verdict=doubt)
    end = order.rfind("T")
    opened = [i for i, letter in enumerate(order) if letter == "a" and i > end]
    answers = [tagged.pieces[i + 1] for i in (opened if envelope is Envelope.BLOCKS else opened[-1:])]
    verdict = _blemish(order, think, envelope)
    if verdict is Verdict.VALID:
        verdict = _surface(tagged, envelope)
    return Fields(
        thought=_thought(tagged),
        answers=tuple(answers) if envelope is not Envelope.REST else tagged.pieces[-1:],
        verdict=verdict,
    )


def _doubt(order: str, think: bool, envelope: Envelope, finished: bool) -> Verdict | None:
    """Why it cannot be said what the answer is; None if it can."""
    behind = order.rpartition("T")[2]
    if envelope is Envelope.REST:
        if "t" in behind:
            return Verdict.NO_ANSWER if finished else Verdict.TRUNCATED
        return None
    if order in ("taAT", "atTA"):
        return Verdict.NESTED
    wanted = "tTaA" if think else "aA"
    if order != wanted and len(order) == len(wanted) and set(order) == set(wanted):
        return Verdict.MISORDERED
    if not finished and (behind.endswith("a") or not {"a", "A"} & set(behind)):
        return Verdict.TRUNCATED
    if "a" not in behind:
        return Verdict.UNOPENED_ANSWER if "A" in behind else Verdict.NO_ANSWER
    if re.search("a[at]", behind):
        return Verdict.NESTED
    return Verdict.UNOPENED_ANSWER if re.search("(?<!a)A", behind) else None


def _blemish(order: str, think: bool, envelope: Envelope) -> Verdict:
    """What is wrong with the thought, or with the number of answers, although it can be said what the answer is."""
    inside, closing, behind = order.rpartition("T")
    if not think:
        if "t" in order or closing:
            return Verdict.UNWANTED_THOUGHT
    elif not closing:
        return Verdict.UNCLOSED_THOUGHT if "t" in behind else Verdict.MISSING_THOUGHT
    elif inside.startswith("a"):
        return Verdict.DUPLICATE_ANSWER
    elif {"a", "A"} & set(inside):
        return Verdict.ANSWER_IN_THOUGHT
    elif "t" in behind:
        return Verdict.UNCLOSED_THOUGHT
    elif not inside.startswith("t") or "TT" in order:
        return Verdict.UNOPENED_THOUGHT
    elif inside != "t":
        return Verdict.DUPLICATE_THOUGHT
    if envelope is Envelope.BLOCK and behind.count("a") > 1:
        return Verdict.DUPLICATE_ANSWER
    return Verdict.VALID


def _surface(tagged: Tagged, envelope: Envelope) -> Verdict:
    """What is wrong although the blocks are the right ones: how tags are spelt, the last one missing, text around."""
    if tagged.misspelt is not Verdict.VALID:
        return tagged.misspelt
    if tagged.order.endswith("a"):
        return Verdict.UNCLOSED_ANSWER
    outside = tagged.pieces[:-1:2] if envelope is Envelope.REST else tagged.pieces[::2]
    return Verdict.TEXT_AROUND if any(piece.strip() for piece in outside) else Verdict.VALID


def _thought(tagged: Tagged) -> str:
    """What was thought, without the tags inside it."""
    end = tagged.order.rfind("T")
    if end >= 0:
        start = tagged.order.find("t", 0, end) + 1  # 0, the beginning of the reply, if nothing opened it
        return "\N{HORIZONTAL ELLIPSIS}".join(tagged.pieces[start : end + 1]).strip()
    start = tagged.order.find("t") + 1
    return tagged.pieces[start].strip() if start else ""
