"""Parsers of one's own, by import path: `module:function`.

The function gets the text of an answer and the names of the actions (None: any text is one) and answers a list of actions, a
`Parsed` that says more, or None if the text cannot be read. The module also says how to write such an answer, so that prompt and
parser cannot drift apart:

    instructions   a text, or a function of the action names that answers one; stands in the first prompt
    write          optional: a function of a list of actions that answers a text which the parser reads as these
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.errors import ConfigError, boundary, near_match
from ragen.records import Verdict
from ragen.rollout.answers import read_text
from ragen.rollout.replies.grammar import Envelope
from ragen.rollout.replies.readers import ActionNames, Parsed


@dataclass(frozen=True, kw_only=True)
class OwnParser:
    """An imported parser as a reader. ConfigError, naming it, if it raises or answers something else than it may."""

    where: str  # how errors name it
    function: Callable[[str, ActionNames], Any]
    instructions: str | Callable[[ActionNames], str]
    separator: str  # between the actions of an answer where the module writes none itself
    writer: Callable[[Sequence[str]], str] | None = None

    envelope = Envelope.BLOCK
    block = marker = ""
    shape = "..."

    def read(self, answers: Sequence[str], names: ActionNames) -> Parsed:
        (answer,) = answers
        with boundary(ConfigError, self.where):
            found = self.function(answer, names)
            if found is None:
                return Parsed(verdict=Verdict.MALFORMED)
            parsed = found if isinstance(found, Parsed) else Parsed(actions=found)
            if isinstance(parsed.actions, str) or not isinstance(parsed.actions, Sequence):
                raise TypeError(f"must answer a list of actions, a Parsed or None, not {parsed.actions!r:.60}")
            return Parsed(
                actions=[read_text(action) for action in parsed.actions],
                thought=read_text(parsed.thought),
                verdict=Verdict(parsed.verdict),
                feedback=read_text(parsed.feedback),
            )

    def write(self, actions: Sequence[str], names: ActionNames) -> list[str]:
        if self.writer is None:
            return [f" {self.separator} ".join(actions)]
        with boundary(ConfigError, f"{self.where}: write"):
            return [read_text(self.writer(actions))]

    def explain(self, max_actions: int, names: ActionNames) -> str:
        if isinstance(self.instructions, str):
            return self.instructions
        with boundary(ConfigError, f"{self.where}: instructions"):
            return read_text(self.instructions(names))


def load_parser(path: str, *, where: str, separator: str) -> OwnParser:
    """The parser behind `module:function`. Raises ConfigError, one line beginning with `where`, if it cannot be used."""
    module_name, _, function_name = path.partition(":")
    if not module_name or not function_name:
        raise ConfigError(f"{where}: must be 'module:function'")
    with boundary(ConfigError, f"{where}: cannot be imported"):
        module = importlib.import_module(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ConfigError(f"{where}: {module_name} has no function {function_name!r}{near_match(function_name, own)}")
    instructions = getattr(module, "instructions", None)
    if not isinstance(instructions, str) and not callable(instructions):
        raise ConfigError(
            f"{where}: {module_name} must define `instructions`, a text or a function of the action names, which tells the model"
            " how to write what the parser reads"
        )
    writer = getattr(module, "write", None)
    if writer is not None and not callable(writer):
        raise ConfigError(f"{where}: {module_name}.write must be a function of a list of actions")
    return OwnParser(where=where, function=function, instructions=instructions, separator=separator, writer=writer)
