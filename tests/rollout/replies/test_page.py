"""docs/replies.md says what is so: its examples are parsed, its parser is run."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import fields

import pytest

from ragen.records import Verdict
from ragen.rollout.replies import TOOL_FORMATS, ReplyConfig, ReplyFormat, Ruling
from tests.support.pages import ROOT, blocks
from tests.support.replies import NAMES

PAGE = ROOT / "docs" / "replies.md"
TEXT = PAGE.read_text(encoding="utf-8")
WORDS = {Ruling.FREE: "free", Ruling.COSTLY: "costs", Ruling.REFUSED: "refused"}


def rows(*titles: str) -> list[list[str]]:
    """The cells of every table with these column titles, code marks taken off."""
    table = re.compile(rf"^\| {re.escape(' | '.join(titles))} \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
    found = [line for body in table.findall(TEXT) for line in body.splitlines()]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in found]


def example(cell: str) -> tuple[str, bool]:
    """(text, finished) of a cell such as "`<answer>Le` (cut off)"."""
    code, _, note = cell[1:].rpartition("`")
    assert note in ("", " (cut off)"), cell
    return code.replace("␣", "\u200b"), not note


VERDICTS = rows("verdict", "example", "strict", "lenient")
RAW = rows("verdict", "example", "raw")
CALLS = rows("verdict", "example")


@pytest.mark.parametrize("row", VERDICTS, ids=lambda row: row[1])
def test_an_example_gets_its_verdict_and_its_ruling(row: list[str]) -> None:
    name, cell, *rulings = row
    text, finished = example(cell)
    for grammar, ruling in zip(("strict", "lenient"), rulings, strict=True):
        format = ReplyFormat(grammar=grammar, think=name != "`unwanted_thought`")
        reply = format.parse(text, NAMES, finished=finished)
        assert (f"`{reply.verdict}`", WORDS[format.ruling(reply.verdict)]) == (name, ruling)
        assert bool(reply.actions) is (ruling != "refused")
        if name not in ("`unknown_action`", "`lookalike_action`"):
            assert reply.actions in ((), ("Left",))


@pytest.mark.parametrize("row", RAW, ids=lambda row: row[1])
def test_a_raw_example_gets_its_verdict_and_its_ruling(row: list[str]) -> None:
    name, cell, ruling = row
    text, finished = example(cell)
    format = ReplyFormat(grammar="raw", think=False)
    verdict = format.parse(text, NAMES, finished=finished).verdict
    assert (f"`{verdict}`", WORDS[format.ruling(verdict)]) == (name, ruling)


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[1])
def test_a_broken_call_gets_its_verdict(row: list[str]) -> None:
    name, cell = row
    format = ReplyFormat(think=False, tools="json")
    assert f"`{format.parse(f'<answer>{example(cell)[0]}</answer>', NAMES).verdict}`" == name


def test_every_verdict_is_on_the_page() -> None:
    shown = {row[0].strip("`") for row in (*VERDICTS, *RAW, *CALLS)}
    assert shown | {"malformed", "too_long", "unknown_tool"} == set(Verdict)
    assert all(f"`{verdict}`" in TEXT for verdict in Verdict)


def test_the_feedback_is_quoted_as_it_is() -> None:
    quoted = rows("verdict", "line")
    assert len(quoted) == 6
    for name, line in quoted:
        assert ReplyFormat().feedback(Verdict(name.strip("`")), []) == line


def test_each_tool_format_reads_what_the_page_shows_of_it() -> None:
    shown = rows("`tools`", "two calls")
    assert [name.strip("`") for name, _ in shown] == list(TOOL_FORMATS)
    for name, cell in shown:
        format = ReplyFormat(think=False, tools=name.strip("`"), max_actions=2)
        reply = format.parse(cell.strip("`"), NAMES)
        assert (reply.verdict, reply.actions) == (Verdict.VALID, ("Left", "Up"))


def test_the_settings_are_listed_with_their_defaults() -> None:
    listed = {name.strip("`"): default.strip("`") for name, default, _ in rows("setting", "default", "meaning")}
    written = {True: "true", False: "false", "": '""', "||": '"||"'}
    assert listed == {field.name: written.get(field.default, field.default) for field in fields(ReplyConfig)}


@pytest.fixture
def my_parser() -> Iterator[str]:
    """The import path of the parser of the page."""
    (source,) = blocks(PAGE, "python")
    ast.parse(source)
    module = types.ModuleType("my_parser")
    sys.modules["my_parser"] = module
    exec(compile(source, str(PAGE), "exec"), vars(module))
    yield "my_parser:read"
    del sys.modules["my_parser"]


def test_the_parser_of_the_page_works(my_parser: str) -> None:
    format = ReplyFormat(parser=my_parser, max_actions=5)
    reply = format.parse("<think>x</think><answer>LLU</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.VALID, ("Left", "Left", "Up"))
    assert format.render("x", ["Left", "Left", "Up"]) == "<think>x</think><answer>LLU</answer>"
    assert format.parse("<think>x</think><answer>LLX</answer>", NAMES).verdict is Verdict.MALFORMED
    long = format.parse(f"<think>x</think><answer>{'L' * 21}</answer>", NAMES)
    assert (long.verdict, long.feedback) == (Verdict.MALFORMED, "At most 20 letters.")
    assert "LLU" in format.instructions(NAMES)
