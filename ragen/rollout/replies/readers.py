"""What reads an answer: its text becomes actions, and actions become such a text again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ragen.records import Verdict
from ragen.rollout.replies.grammar import Envelope

ActionNames = Sequence[str] | None  # None: any text is an action


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What was read from an answer. A verdict that the grammar refuses leaves nothing of the actions.

    `thought` and `feedback` replace what the format itself would say about them; "" leaves that to the format.
    """

    actions: Sequence[str] = ()
    thought: str = ""
    verdict: Verdict = Verdict.VALID
    feedback: str = ""


class Reader(Protocol):
    """One way to write actions down."""

    @property
    def envelope(self) -> Envelope: ...

    @property
    def block(self) -> str:
        """The tag around an answer; "" leaves it to the format."""
        ...

    @property
    def marker(self) -> str:
        """What an answer that stands in no block begins with."""
        ...

    @property
    def shape(self) -> str:
        """An answer with '...' in the place of what is to be filled in."""
        ...

    def read(self, answers: Sequence[str], names: ActionNames) -> Parsed:
        """The actions in these texts, one text per block; the names as they were written."""
        ...

    def write(self, actions: Sequence[str], names: ActionNames) -> list[str]:
        """The texts, one per block, that `read` reads as these actions."""
        ...

    def explain(self, max_actions: int, names: ActionNames) -> str:
        """What the prompt says ahead of the examples."""
        ...


class Separated:
    """Names or free text, with a separator between several actions."""

    envelope = Envelope.BLOCK
    block = marker = ""
    shape = "..."

    def __init__(self, separator: str, max_actions: int) -> None:
        self._separator = separator
        self._max_actions = max_actions

    def read(self, answers: Sequence[str], names: ActionNames) -> Parsed:
        """Free text of which one piece is wanted is not split: an expression may hold the separator."""
        (answer,) = answers
        whole = names is None and self._max_actions == 1
        pieces = [answer] if whole else answer.split(self._separator.strip())
        return Parsed(actions=[piece.strip() for piece in pieces if piece.strip()])

    def write(self, actions: Sequence[str], names: ActionNames) -> list[str]:
        return [f" {self._separator} ".join(actions)]

    def explain(self, max_actions: int, names: ActionNames) -> str:
        if max_actions == 1:
            return ""
        return f"An answer may hold up to {max_actions} actions, separated by {self._separator}."
