"""Tool calls: what each model family writes is read, and broken JSON gets a name instead of raising."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.records import Verdict
from ragen.rollout.replies import TOOL_FORMATS, ReplyFormat, tool_schemas
from ragen.rollout.replies.json_text import MAX_DEPTH, MAX_LENGTH, read_json
from tests.support.replies import NAMES

UP = '{"name": "Up", "arguments": {}}'


def read(answer: str, names: tuple[str, ...] | None = NAMES, **settings: object) -> tuple[Verdict, tuple[str, ...]]:
    """Verdict and actions of an answer of JSON in its block."""
    format = ReplyFormat(think=False, tools="json", max_actions=3, **settings)  # type: ignore[arg-type]
    reply = format.parse(f"<answer>{answer}</answer>", names)
    return reply.verdict, reply.actions


def test_one_call_or_a_list_of_them_is_read() -> None:
    assert read(UP) == (Verdict.VALID, ("Up",))
    assert read(f'[{UP}, {{"arguments": {{}}, "name": "left"}}]') == (Verdict.VALID, ("Up", "Left"))
    assert read('{"name": "act", "arguments": {"text": " 1 + 2 || 3 "}}', None) == (Verdict.VALID, ("1 + 2 || 3",))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"name": "U', Verdict.NOT_JSON),
        ('{"name": "Up", "arguments": {}', Verdict.NOT_JSON),
        ("{'name': 'Up', 'arguments': {}}", Verdict.NOT_JSON),
        (f"{UP} {UP}", Verdict.NOT_JSON),
        ('{"name": "\\ud800", "arguments": {}}', Verdict.NOT_JSON),
        ("Up", Verdict.NOT_JSON),
        ("", Verdict.NOT_JSON),
        ("1e400", Verdict.BAD_NUMBER),
        ('{"name": "Up", "arguments": {"steps": -1e400}}', Verdict.BAD_NUMBER),
        ('{"name": "Up", "arguments": {"steps": NaN}}', Verdict.BAD_NUMBER),
        ('{"name": "Up", "arguments": {"steps": -Infinity}}', Verdict.BAD_NUMBER),
        ("9" * 5000, Verdict.BAD_NUMBER),
        ('{"name": "Up", "name": "Left", "arguments": {}}', Verdict.DUPLICATE_KEY),
        ('{"name": "Up", "arguments": {"a": 1, "a": 1}}', Verdict.DUPLICATE_KEY),
        ("[" * 10_000, Verdict.TOO_DEEP),
        ("[" * 10_000 + "]" * 10_000, Verdict.TOO_DEEP),
        ('{"a":' * 10_000, Verdict.TOO_DEEP),
        ('{"name": "act", "arguments": {"text": "' + "x" * 1_000_000 + '"}}', Verdict.TOO_LONG),
        ("null", Verdict.NOT_A_CALL),
        ("true", Verdict.NOT_A_CALL),
        ('"Up"', Verdict.NOT_A_CALL),
        ("[1, 2]", Verdict.NOT_A_CALL),
        (f"[[{UP}]]", Verdict.NOT_A_CALL),
        (f"[{UP}, null]", Verdict.NOT_A_CALL),
        ('{"arguments": {}}', Verdict.NOT_A_CALL),
        ('{"name": null, "arguments": {}}', Verdict.NOT_A_CALL),
        ('{"name": "Up"}', Verdict.BAD_ARGUMENTS),
        ('{"name": "Up", "arguments": null}', Verdict.BAD_ARGUMENTS),
        ('{"name": "Up", "arguments": "{}"}', Verdict.BAD_ARGUMENTS),
        ('{"name": "Up", "arguments": {"steps": 2}}', Verdict.BAD_ARGUMENTS),
        ('{"name": "Up", "parameters": {}}', Verdict.BAD_ARGUMENTS),
        ('{"name": "Up", "arguments": {}, "id": 1}', Verdict.BAD_ARGUMENTS),
        ('{"name": "\\u003c/answer>", "arguments": {}}', Verdict.NESTED),
        ("[]", Verdict.EMPTY),
        ('{"name": " ", "arguments": {}}', Verdict.EMPTY),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
@pytest.mark.parametrize("grammar", ["strict", "lenient"])
def test_a_broken_call_has_a_name_and_is_not_played(answer: str, expected: Verdict, grammar: str) -> None:
    """bug-log row 46: cut in mid-string, a list, null, 1e400, a key twice, nested, long: never an exception."""
    assert read(answer, grammar=grammar) == (expected, ())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"name": "Up", "arguments": {"text": "a"}}', Verdict.UNKNOWN_TOOL),
        ('{"name": "act", "arguments": {}}', Verdict.BAD_ARGUMENTS),
        ('{"name": "act", "arguments": {"text": 5}}', Verdict.BAD_ARGUMENTS),
        ('{"name": "act", "arguments": {"text": "a", "times": 2}}', Verdict.BAD_ARGUMENTS),
        ('{"name": "act", "arguments": {"text": "\\udfff"}}', Verdict.NOT_JSON),
    ],
)
def test_where_any_text_is_an_action_the_only_tool_is_act(answer: str, expected: Verdict) -> None:
    assert read(answer, None) == (expected, ())


def test_unknown_names_and_too_many_calls_are_what_they_are_elsewhere() -> None:
    assert read('{"name": "Fly", "arguments": {}}') == (Verdict.UNKNOWN_ACTION, ("Fly",))
    assert read(f"[{', '.join([UP] * 4)}]") == (Verdict.TOO_MANY_ACTIONS, ("Up",) * 3)


LEFT = '{"name": "Left", "arguments": {}}'


@pytest.mark.parametrize(
    ("tools", "text", "strict"),
    [
        ("hermes", f"<tool_call>\n{UP}\n</tool_call>\n<tool_call>\n{LEFT}\n</tool_call>", Verdict.VALID),
        ("hermes", f"I go. <tool_call>{UP}</tool_call><tool_call>{LEFT}</tool_call>", Verdict.TEXT_AROUND),
        ("hermes", f"<tool_call>{UP}</tool_call><tool_call>{LEFT}", Verdict.UNCLOSED_ANSWER),
        ("llama3", '{"name": "Up", "parameters": {}}; {"name": "Left", "parameters": {}}', Verdict.VALID),
        ("llama3", '<|python_tag|>{"name": "Up", "parameters": {}};{"name": "Left", "parameters": {}}', Verdict.VALID),
        ("llama3", 'I go: {"name": "Up", "parameters": {}}; {"name": "Left", "parameters": {}}.', Verdict.TEXT_AROUND),
        ("mistral", f"[TOOL_CALLS] [{UP}, {LEFT}]", Verdict.VALID),
        ("mistral", f"I go.[TOOL_CALLS][{UP}, {LEFT}] Good.", Verdict.TEXT_AROUND),
    ],
)
@pytest.mark.parametrize("think", [True, False])
def test_what_a_model_family_writes_is_read(tools: str, text: str, strict: Verdict, think: bool) -> None:
    thought = "<think>x</think>\n" if think else ""
    for grammar in ("strict", "lenient"):
        format = ReplyFormat(think=think, grammar=grammar, tools=tools, max_actions=2)
        reply = format.parse(thought + text, NAMES)
        played = strict is Verdict.VALID or grammar == "lenient"
        assert (reply.verdict, reply.actions) == (strict, ("Up", "Left") if played else ())
        assert reply.thought == ("x" if played and think else "")


@pytest.mark.parametrize(
    ("tools", "text", "expected"),
    [
        ("hermes", UP, Verdict.NO_ANSWER),
        ("hermes", f"<tool_call>[{UP}]</tool_call>", Verdict.NOT_A_CALL),
        ("hermes", "<tool_call>{}</tool_call>", Verdict.NOT_A_CALL),
        ("hermes", f"<Tool_call>{UP}</tool_call>", Verdict.WRONG_CASE),
        ("llama3", "I go up.", Verdict.NO_ANSWER),
        ("llama3", '[{"name": "Up", "parameters": {}}]', Verdict.TEXT_AROUND),
        ("llama3", UP, Verdict.BAD_ARGUMENTS),
        ("llama3", '{"name": "Up", "parameters": {}}, {"name": "Up", "parameters": {}}', Verdict.NOT_JSON),
        ("mistral", UP, Verdict.NO_ANSWER),
        ("mistral", f"[TOOL_CALLS]{UP}", Verdict.NO_ANSWER),
        ("mistral", f"[TOOL_CALLS][{UP}", Verdict.NOT_JSON),
        ("mistral", "[TOOL_CALLS][]", Verdict.EMPTY),
    ],
)
def test_what_another_family_writes_is_not(tools: str, text: str, expected: Verdict) -> None:
    reply = ReplyFormat(think=False, tools=tools, max_actions=2).parse(text, NAMES)
    assert (reply.verdict, reply.actions) == (expected, ())


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ("hermes", f"<tool_call>{UP}</tool_call><tool_call>" + '{"na'),
        ("llama3", '{"name": "Up", "parameters": {}}; {"na'),
        ("llama3", '{"name": "Up", "parameters": {}};'),
        ("llama3", "I would"),
        ("mistral", f"[TOOL_CALLS][{UP}, "),
        ("json", f"<answer>[{UP}, "),
    ],
)
@pytest.mark.parametrize("grammar", ["strict", "lenient"])
def test_a_call_that_was_cut_off_is_truncated(tools: str, text: str, grammar: str) -> None:
    format = ReplyFormat(think=False, tools=tools, grammar=grammar, max_actions=2)
    reply = format.parse(text, NAMES, finished=False)
    assert (reply.verdict, reply.actions) == (Verdict.TRUNCATED, ())


@pytest.mark.parametrize("grammar", ["strict", "lenient"])
def test_of_two_calls_of_which_one_is_broken_none_is_played(grammar: str) -> None:
    for tools, text in (("llama3", '{"name": "Up", "parameters": {}}; {"na'), ("mistral", f"[TOOL_CALLS][{UP}] [")):
        reply = ReplyFormat(think=False, tools=tools, grammar=grammar, max_actions=2).parse(text, NAMES)
        assert (reply.verdict, reply.actions) == (Verdict.NOT_JSON, ())


def test_text_ahead_of_the_thought_is_text_around_a_bare_call_too() -> None:
    text = 'Sure: <think>x</think>{"name": "Up", "parameters": {}}'
    assert ReplyFormat(tools="llama3").parse(text, NAMES).verdict is Verdict.TEXT_AROUND
    assert ReplyFormat(tools="llama3", grammar="lenient").parse(text, NAMES).actions == ("Up",)


def test_a_call_in_a_block_ends_the_reply_only_if_it_is_the_only_one() -> None:
    assert ReplyFormat(tools="hermes", max_actions=1).stop_texts == ("</tool_call>",)
    assert ReplyFormat(tools="hermes", max_actions=2).stop_texts == ()


def test_a_thought_without_end_hides_no_bare_call() -> None:
    text = '<think>I could {"name": "Up", "parameters": {}}'
    for grammar in ("strict", "lenient"):
        assert ReplyFormat(tools="llama3", grammar=grammar).parse(text, NAMES).verdict is Verdict.NO_ANSWER


def test_the_schemas_name_the_tools_that_are_read() -> None:
    assert tool_schemas(("Up", "Go left")) == [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"The action {name}.",
                "parameters": {"type": "object", "properties": {}, "required": []},
            },
        }
        for name in ("Up", "Go left")
    ]
    (act,) = (tool["function"] for tool in tool_schemas(None))
    assert (act["name"], act["parameters"]["required"], list(act["parameters"]["properties"])) == ("act", ["text"], ["text"])


@pytest.mark.parametrize("tools", TOOL_FORMATS)
@given(actions=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), min_size=1, max_size=3))
def test_calls_with_any_text_are_read_back(tools: str, actions: list[str]) -> None:
    """Quotes, brackets, line ends and control characters survive."""
    format = ReplyFormat(think=False, tools=tools, max_actions=3)
    reply = format.parse(format.render("", actions), None)
    wanted = tuple(action.strip() for action in actions if action.strip())
    assert (reply.verdict, reply.actions) == ((Verdict.VALID, wanted) if wanted else (Verdict.EMPTY, ()))


numbers = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
plain_json = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=8,
)


@given(values=st.lists(plain_json, min_size=1, max_size=3), indent=st.sampled_from([None, 1]))
def test_sound_json_is_read_as_it_was_written(values: list[object], indent: int | None) -> None:
    text = ";".join(json.dumps(value, indent=indent) for value in values)
    assert read_json(text, separator=";") == (values, Verdict.VALID)


@given(st.text('[]{}":,;0123456789eE.+-\\u nultrfas\n\x00\ud800', max_size=60))
def test_nothing_that_looks_like_json_raises(text: str) -> None:
    """bug-log row 46."""
    values, verdict = read_json(text, separator=";")
    assert bool(values) is (verdict is Verdict.VALID)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, Verdict.VALID),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), Verdict.TOO_DEEP),
        ("[" * (MAX_DEPTH + 1) + "]" * MAX_DEPTH + ", []]", Verdict.TOO_DEEP),
        (f'"{"[" * 1000}"', Verdict.VALID),
        (f'"\\"{"[" * 1000}"', Verdict.VALID),
        (f'"{"x" * (MAX_LENGTH - 2)}"', Verdict.VALID),
        (f'"{"x" * (MAX_LENGTH - 1)}"', Verdict.TOO_LONG),
    ],
    ids=["deepest", "deeper", "deeper and back", "brackets in a string", "a quote before them", "longest", "longer"],
)
def test_the_limits_are_where_they_are(text: str, expected: Verdict) -> None:
    assert read_json(text)[1] is expected
