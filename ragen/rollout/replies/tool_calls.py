"""Tool calls: actions as JSON, in the answer block or in the form that a model family was trained to write.

With named actions each name is a tool without arguments; where any text is an action there is one tool, `act`, whose argument
`text` is the action.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ragen.records import Verdict
from ragen.rollout.replies.grammar import Envelope
from ragen.rollout.replies.json_text import read_json
from ragen.rollout.replies.readers import ActionNames, Parsed

ACT, TEXT = "act", "text"


class Several(Enum):
    """How the calls of one answer stand together, as the prompt says it."""

    LIST_OR_ONE = "in a list"
    LIST = "in one list"
    SEPARATED = "separated by ;"
    BLOCKS = "each in a block of its own"


@dataclass(frozen=True, kw_only=True)
class ToolFormat:
    """How one model family writes calls."""

    envelope: Envelope
    several: Several
    block: str = ""
    marker: str = ""  # must come first
    prelude: str = ""  # may come first
    arguments: str = "arguments"  # the key under which they stand


TOOL_FORMATS: Mapping[str, ToolFormat] = {
    "json": ToolFormat(envelope=Envelope.BLOCK, several=Several.LIST_OR_ONE),
    "hermes": ToolFormat(envelope=Envelope.BLOCKS, several=Several.BLOCKS, block="tool_call"),
    "llama3": ToolFormat(envelope=Envelope.REST, several=Several.SEPARATED, prelude="<|python_tag|>", arguments="parameters"),
    "mistral": ToolFormat(envelope=Envelope.REST, several=Several.LIST, marker="[TOOL_CALLS]"),
}


def tool_schemas(names: ActionNames) -> list[dict[str, Any]]:
    """The tools of an environment as a list of function descriptions, for chat templates that take `tools`."""
    if names is None:
        return [_schema(ACT, "Do this.", {TEXT: {"type": "string", "description": "The action."}})]
    return [_schema(name, f"The action {name}.", {}) for name in names]


class ToolCalls:
    """Reads and writes the calls of one tool format."""

    def __init__(self, format: ToolFormat) -> None:
        self._format = format
        self.envelope = format.envelope
        self.block = format.block
        self.marker = format.marker

    @property
    def shape(self) -> str:
        call = f'{{"name": "...", "{self._format.arguments}": {{...}}}}'
        return f"{self.marker}[{call}]" if self._format.several is Several.LIST else call

    def read(self, answers: Sequence[str], names: ActionNames) -> Parsed:
        """The actions that are called, up to the first call that is none."""
        actions: list[str] = []
        around = Verdict.VALID
        for answer in answers:
            if self.envelope is Envelope.REST:
                answer, around = self._without_text_around(answer)
                if not answer:
                    return Parsed(verdict=around)
            calls, verdict = self._calls(answer)
            if verdict is not Verdict.VALID:
                return Parsed(verdict=verdict)
            for call in calls:
                action = self._action(call, names)
                if isinstance(action, Verdict):
                    return Parsed(verdict=action)
                actions.append(action.strip())
        return Parsed(actions=[action for action in actions if action], verdict=around)

    def write(self, actions: Sequence[str], names: ActionNames) -> list[str]:
        calls = [json.dumps(self._call(action, names), ensure_ascii=False) for action in actions]
        match self._format.several:
            case Several.BLOCKS:
                return [f"\n{call}\n" for call in calls]
            case Several.SEPARATED:
                return ["; ".join(calls)]
            case Several.LIST_OR_ONE if len(calls) == 1:
                return calls
            case _:
                return [f"{self.marker}[{', '.join(calls)}]"]

    def explain(self, max_actions: int, names: ActionNames) -> str:
        if max_actions == 1:
            return "An answer is a tool call in JSON."
        return f"An answer holds up to {max_actions} tool calls in JSON, {self._format.several.value}."

    def _without_text_around(self, answer: str) -> tuple[str, Verdict]:
        """The JSON in an answer that no tag encloses; "" and NO_ANSWER if there is none."""
        before, found, calls = answer.rpartition(self.marker) if self.marker else ("", "", answer)
        if self.marker and not found:
            return "", Verdict.NO_ANSWER
        opening, closing = "[]" if self._format.several is Several.LIST else "{}"
        start, end = calls.find(opening), calls.rfind(closing)
        if start < 0:
            return "", Verdict.NO_ANSWER
        broken_off = end < 0 or opening in calls[end:]  # another call begins behind the last one that ends
        end = len(calls) if broken_off else end + 1
        before = (before + calls[:start]).strip().removeprefix(self._format.prelude)
        around = before.strip() or calls[end:].strip()
        return calls[start:end], Verdict.TEXT_AROUND if around else Verdict.VALID

    def _calls(self, answer: str) -> tuple[list[Any], Verdict]:
        several = self._format.several
        values, verdict = read_json(answer, separator=";" if several is Several.SEPARATED else None)
        if verdict is Verdict.VALID and several in (Several.LIST, Several.LIST_OR_ONE):
            (value,) = values
            if isinstance(value, list):
                return value, verdict
            if several is Several.LIST:
                return [], Verdict.NOT_A_CALL
        return values, verdict

    def _call(self, action: str, names: ActionNames) -> dict[str, Any]:
        name, arguments = (ACT, {TEXT: action}) if names is None else (action, {})
        return {"name": name, self._format.arguments: arguments}

    def _action(self, call: Any, names: ActionNames) -> str | Verdict:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return Verdict.NOT_A_CALL
        arguments = call.get(self._format.arguments)
        if not isinstance(arguments, dict) or len(call) != 2:
            return Verdict.BAD_ARGUMENTS
        if names is None and call["name"] != ACT:
            return Verdict.UNKNOWN_TOOL
        action = arguments.get(TEXT) if names is None else call["name"]
        if not isinstance(action, str) or len(arguments) != (names is None):
            return Verdict.BAD_ARGUMENTS
        return action if _is_text(action) else Verdict.NOT_JSON


def _is_text(text: str) -> bool:
    """False for half of a surrogate pair, which JSON can spell but no text can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _schema(name: str, description: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": dict(properties), "required": list(properties)},
        },
    }
