"""Parsers of one's own: what they may answer, and that a fault of theirs never looks like one of the model's."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ragen.errors import ConfigError
from ragen.records import Verdict
from ragen.rollout.replies import Parsed, ReplyFormat
from tests.support.replies import NAMES


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """An importable module `own_parser` with instructions."""
    module = types.ModuleType("own_parser")
    module.instructions = "Write words."  # type: ignore[attr-defined]
    sys.modules["own_parser"] = module
    yield module
    del sys.modules["own_parser"]


def format_with(module: types.ModuleType, function: Callable[..., Any], **settings: Any) -> ReplyFormat:
    module.read = function  # type: ignore[attr-defined]
    return ReplyFormat(parser="own_parser:read", max_actions=2, **settings)


def test_it_reads_the_answer_and_its_actions_are_judged_as_all_are(module: types.ModuleType) -> None:
    seen: list[tuple[str, Any]] = []

    def read(text: str, names: Any) -> list[str]:
        seen.append((text, names))
        return text.split()

    format = format_with(module, read)
    reply = format.parse("<think>x</think><answer>up left</answer>", NAMES)
    assert seen == [("up left", NAMES)]
    assert (reply.verdict, reply.thought, reply.actions) == (Verdict.VALID, "x", ("Up", "Left"))
    assert format.parse("<think>x</think><answer>Fly</answer>", NAMES).verdict is Verdict.UNKNOWN_ACTION
    assert format.parse("<think>x</think><answer>Up Up Up</answer>", NAMES).verdict is Verdict.TOO_MANY_ACTIONS
    assert format.parse("<think>x</think><answer> </answer>", NAMES).verdict is Verdict.EMPTY


def test_a_reply_without_answer_never_reaches_it(module: types.ModuleType) -> None:
    def read(text: str, names: Any) -> list[str]:
        raise AssertionError(text)

    assert format_with(module, read).parse("Up", NAMES).verdict is Verdict.NO_ANSWER


def test_with_the_raw_grammar_it_reads_the_whole_reply(module: types.ModuleType) -> None:
    def read(text: str, names: Any) -> Parsed:
        thought, _, answer = text.partition("Answer:")
        return Parsed(actions=[answer.strip()], thought=thought.strip())

    reply = format_with(module, read, grammar="raw", think=False).parse("I go up. Answer: Up", NAMES)
    assert (reply.verdict, reply.thought, reply.actions) == (Verdict.VALID, "I go up.", ("Up",))


def test_what_it_cannot_read_is_malformed_with_a_line_of_its_own_if_it_has_one(module: types.ModuleType) -> None:
    text = "<think>x</think><answer>?</answer>"
    format = format_with(module, lambda text, names: None)
    assert format.parse(text, NAMES).verdict is Verdict.MALFORMED
    assert format.feedback(Verdict.MALFORMED, []) == "Your answer could not be read: nothing was done."
    said = Parsed(actions=["Up"], verdict=Verdict.MALFORMED, feedback="No question marks.")
    reply = format_with(module, lambda text, names: said).parse(text, NAMES)
    assert (reply.verdict, reply.actions, reply.feedback) == (Verdict.MALFORMED, (), "No question marks.")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("Up", "TypeError: must answer a list of actions, a Parsed or None, not 'Up'"),
        (5, "TypeError: must answer a list of actions, a Parsed or None, not 5"),
        ([5], "TypeError: a text must be a str, not int"),
        (["\ud800"], "UnicodeEncodeError"),
        (Parsed(feedback=None), "TypeError: a text must be a str"),  # type: ignore[arg-type]
        (Parsed(verdict="fine"), "ValueError: 'fine' is not a valid Verdict"),  # type: ignore[arg-type]
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_it_must_not_answer_is_an_error_that_names_it(module: types.ModuleType, answer: Any, message: str) -> None:
    format = format_with(module, lambda text, names: answer)
    with pytest.raises(ConfigError, match=rf"^rollout\.context\.parser='own_parser:read': {message}"):
        format.parse("<think>x</think><answer>?</answer>", NAMES)


def test_a_parser_that_raises_is_an_error_that_names_it_and_not_a_penalty(module: types.ModuleType) -> None:
    def read(text: str, names: Any) -> list[str]:
        return [{}["missing"]]

    with pytest.raises(ConfigError, match=r"^rollout\.context\.parser='own_parser:read': KeyError: 'missing'$"):
        format_with(module, read).parse("<think>x</think><answer>?</answer>", NAMES)


def test_the_prompt_holds_its_instructions_and_a_reply_is_written_with_its_function(module: types.ModuleType) -> None:
    format = format_with(module, lambda text, names: text.split())
    assert format.instructions(NAMES) == "Write words."
    assert format.render("x", ["Up", "Left"]) == "<think>x</think><answer>Up || Left</answer>"
    module.instructions = lambda names: f"Write {' '.join(names)}."  # type: ignore[attr-defined]
    module.write = " ".join  # type: ignore[attr-defined]
    format = format_with(module, lambda text, names: text.split())
    assert format.instructions(NAMES) == "Write Up Down Left Right."
    assert format.parse(format.render("x", ["Up", "Left"]), NAMES).actions == ("Up", "Left")
    assert format.reminder == "Answer again as <think>...</think><answer>...</answer>."


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("own_parser", "must be 'module:function'"),
        (":read", "must be 'module:function'"),
        ("own_parser:", "must be 'module:function'"),
        ("no_such_parser:read", "cannot be imported: ModuleNotFoundError: No module named 'no_such_parser'"),
        ("own_parser:reed", "own_parser has no function 'reed'; did you mean 'read'?"),
        ("own_parser:instructions", "own_parser has no function 'instructions'"),
    ],
)
def test_a_parser_that_is_not_there_is_refused_at_start_up(module: types.ModuleType, path: str, message: str) -> None:
    module.read = lambda text, names: None  # type: ignore[attr-defined]
    with pytest.raises(ConfigError) as caught:
        ReplyFormat(parser=path)
    assert str(caught.value) == f"rollout.context.parser={path!r}: {message}"


@pytest.mark.parametrize("name", ["instructions", "write"])
def test_a_module_that_does_not_say_how_to_write_is_refused(module: types.ModuleType, name: str) -> None:
    """bug-log row 31: a prompt that says nothing of the format makes every reply a format error."""
    setattr(module, name, 5)
    with pytest.raises(ConfigError, match=rf"rollout\.context\.parser='own_parser:read': .*{name}"):
        format_with(module, lambda text, names: None)
