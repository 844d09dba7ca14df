"""The reply format: prompt text and parser agree, in every grammar and for every way to write actions down."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.records import Verdict
from ragen.rollout.replies import ReplyFormat, Ruling
from tests.support.replies import FORMATS, LENIENT, NAMES, STRICT, WORDS, label

FORMATS_DRAWN = st.sampled_from(FORMATS)
every_format = pytest.mark.parametrize("format", FORMATS, ids=label)


# --- reading ----------------------------------------------------------------------------------------------------------------


def test_a_valid_reply_gives_thought_and_actions_in_order() -> None:
    reply = STRICT.parse("<think> The box is left.\n</think> \n<answer>Left || Up</answer>\n", NAMES)
    assert (reply.thought, reply.actions, reply.verdict) == ("The box is left.", ("Left", "Up"), Verdict.VALID)


def test_without_thoughts_the_answer_block_alone_is_valid() -> None:
    reply = ReplyFormat(think=False).parse("<answer>Left</answer>", NAMES)
    assert (reply.thought, reply.actions, reply.verdict) == ("", ("Left",), Verdict.VALID)


def test_too_many_actions_are_flagged_and_cut() -> None:
    """bug-log row 28: seven actions where three are allowed are not called correct."""
    reply = STRICT.parse("<think>x</think><answer>Up||Up||Up||Down||Up||Up||Up</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.TOO_MANY_ACTIONS, ("Up", "Up", "Up"))


@every_format
@pytest.mark.parametrize("finished", [True, False])
def test_a_reply_of_nothing_is_empty(format: ReplyFormat, finished: bool) -> None:
    """bug-log row 62: end of turn at once, no ids at all, or only spaces (behind the prefix that the prompt holds)."""
    for text in ("", " \n", format.opening, f" {format.opening}\n"):
        reply = format.parse(text, NAMES, finished=finished)
        assert (reply.verdict, reply.actions) == (Verdict.EMPTY, ())


def test_names_are_matched_without_case_and_come_out_as_the_environment_spells_them() -> None:
    reply = STRICT.parse("<think>x</think><answer> rIGHT ||up</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.VALID, ("Right", "Up"))


def test_unknown_names_are_kept_for_the_environment_to_reject() -> None:
    reply = STRICT.parse("<think>x</think><answer>Up || Right. || Down</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.UNKNOWN_ACTION, ("Up", "Right.", "Down"))


@pytest.mark.parametrize(
    "written",
    [
        "U\N{CYRILLIC SMALL LETTER ER}",
        "\N{FULLWIDTH LATIN CAPITAL LETTER U}p",
        "U\u200bp",
        "\N{LATIN CAPITAL LETTER U WITH ACUTE}p",
    ],
)
def test_a_name_that_only_looks_known_is_named_and_not_accepted(written: str) -> None:
    reply = STRICT.parse(f"<think>x</think><answer>{written}</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.LOOKALIKE_ACTION, (written,))
    mixed = STRICT.parse(f"<think>x</think><answer>{written} || Fly</answer>", NAMES)
    assert mixed.verdict is Verdict.UNKNOWN_ACTION


def test_free_text_answers_are_taken_whole_if_one_is_wanted() -> None:
    one = ReplyFormat(max_actions=1)
    reply = one.parse("<think>x</think><answer>a || b</answer>", None)
    assert (reply.verdict, reply.actions) == (Verdict.VALID, ("a || b",))
    assert one.parse("<think>x</think><answer>Up || Down</answer>", NAMES).verdict is Verdict.TOO_MANY_ACTIONS


def test_a_raw_reply_is_the_answer_tags_and_all() -> None:
    raw = ReplyFormat(grammar="raw", think=False)
    assert raw.parse(" Up\n", NAMES).actions == ("Up",)
    reply = raw.parse("I say <answer>Up</answer>", None)
    assert (reply.verdict, reply.actions) == (Verdict.VALID, ("I say <answer>Up</answer>",))
    assert (raw.prefix, raw.stop_texts) == ("", ())


def test_only_a_raw_reply_counts_although_it_was_cut_off() -> None:
    cut = {"finished": False}
    assert STRICT.parse("<think>x</think><answer>Up || Do", NAMES, **cut).verdict is Verdict.TRUNCATED
    assert LENIENT.parse("<answer>Up || Do", NAMES, **cut).verdict is Verdict.TRUNCATED
    assert LENIENT.parse("I think", NAMES, **cut).verdict is Verdict.TRUNCATED
    assert STRICT.parse("<think>x</think><answer>Up</answer>", NAMES, **cut).verdict is Verdict.VALID
    assert STRICT.parse("<answer>Up</answer><think>x", NAMES, **cut).verdict is not Verdict.VALID
    reply = ReplyFormat(grammar="raw", think=False).parse("The answer is 4", None, **cut)
    assert (reply.verdict, reply.actions) == (Verdict.TRUNCATED, ("The answer is 4",))


def test_the_gravest_deviation_gives_the_verdict() -> None:
    assert LENIENT.parse("Well, <answer>Up</answer>", NAMES).verdict is Verdict.MISSING_THOUGHT
    assert LENIENT.parse("<think>x</think> so <answer>Fly</answer>", NAMES).verdict is Verdict.UNKNOWN_ACTION
    assert LENIENT.parse("<answer>Fly</answer>", NAMES).verdict is Verdict.MISSING_THOUGHT
    assert LENIENT.parse("<answer></answer>", NAMES).verdict is Verdict.EMPTY


# --- what the prompt says is what is read -----------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("Teacher", "Trader"), NAMES, ("Go",), None])
@pytest.mark.parametrize("max_actions", [1, 5])
@pytest.mark.parametrize("think", [True, False])
def test_the_examples_in_the_instructions_are_valid_replies(names: tuple[str, ...] | None, max_actions: int, think: bool) -> None:
    """bug-log row 31: following the prompt literally earns the full format reward."""
    format = ReplyFormat(think=think, max_actions=max_actions)
    text = format.instructions(names)
    pattern = r"<think>[^<]*</think><answer>[^<]*</answer>" if think else r"<answer>[^<]*</answer>"
    examples = re.findall(pattern, text)
    replies = [format.parse(example, names) for example in examples]
    assert len(replies) == (2 if names and len(names) > 1 else 1)
    assert {reply.verdict for reply in replies} == {Verdict.VALID}
    if names and len(names) > 1:
        assert {replies[0].actions[0], replies[1].actions[0]} == set(names[:2])
    if names and max_actions == 5:
        assert "up to 5 actions, separated by ||" in text
        assert max(len(reply.actions) for reply in replies) == 2


@every_format
@pytest.mark.parametrize("names", [NAMES, ("Go",), None])
def test_the_examples_of_every_format_are_valid(format: ReplyFormat, names: Sequence[str] | None) -> None:
    """bug-log row 31, whatever the grammar and the tools."""
    examples = format.instructions(names).rpartition("Example answer format: ")[2].split(" or ")
    assert [format.parse(example, names).verdict for example in examples] == [Verdict.VALID] * len(examples)
    assert len(examples) == (2 if names == NAMES else 1)


def obey(message: str, action: str, names: Sequence[str] | None) -> str:
    """The reply of an agent that fills in the form which a message ends with."""
    form = re.search(r"Answer again as (.*)\.$", message)
    if form is None:
        assert message.endswith("Answer again with the answer alone.")
        return action
    if "{...}" not in form[1]:
        return form[1].replace("...", action)
    arguments = "{}" if names else f'{{"text": "{action}"}}'
    before, _, behind = form[1].partition('"..."')
    return f'{before.replace("...", action)}"{action if names else "act"}"{behind.replace("{...}", arguments)}'


@every_format
@pytest.mark.parametrize("names", [NAMES, None])
def test_whoever_does_what_the_next_message_says_gives_a_valid_reply(format: ReplyFormat, names: Sequence[str] | None) -> None:
    """bug-log row 31: after whichever mistake, the message's form, filled in literally, is read without penalty."""
    for verdict in Verdict:
        message = f"{format.feedback(verdict, ['Fly'])}\n{format.reminder}"
        reply = format.parse(obey(message, "Up", names), names)
        assert (reply.verdict, reply.actions) == (Verdict.VALID, ("Up",)), message


BLOCKS = ["<think>", "</think>", "<answer>", "</answer>"]
CALLS = ['{"name": "Up"}', '{"name": "Up", "arguments": {}}', '{"name": "Up", "parameters": {}}', "[1e400]", '{"a": 1, "a": 1}']
MISTAKES = [
    *("".join(tags) for length in range(5) for tags in itertools.product([*BLOCKS, "x"], repeat=length)),
    *(f"<think>x</think>{before}{call} x{behind}" for call in CALLS for before, behind in (("<answer>", "</answer>"), ("", ""))),
    *(f"<think>x</think><tool_call>{call}</tool_call>" for call in CALLS),
    *("[TOOL_CALLS]" + call for call in CALLS),
]


@every_format
def test_prompt_and_feedback_name_no_tag_but_those_of_a_rendered_reply(format: ReplyFormat) -> None:
    """bug-log row 31: prompt and parser share their tags."""

    def tags(text: str) -> set[str]:
        return set(re.findall(r"</?\w+>", text))

    written = tags(format.render("a", ["b"]))
    assert tags(format.system + format.reminder) == written
    for text in MISTAKES:
        said = format.feedback(format.parse(text, NAMES).verdict, ["a"])
        assert tags(said) <= written, said
        assert not re.search(r"\n|  | \.", said), said


@every_format
def test_feedback_says_that_nothing_was_done_exactly_where_a_reply_is_refused(format: ReplyFormat) -> None:
    for verdict in Verdict:
        said = format.feedback(verdict, ["a"])
        assert bool(said) is not format.is_valid(verdict)
        assert ("nothing was done" in said) is (format.ruling(verdict) is Ruling.REFUSED)


def test_feedback_quotes_a_little_of_what_was_unknown() -> None:
    long = "x" * 1000
    assert STRICT.feedback(Verdict.UNKNOWN_ACTION, ["Fly\nhigh", long, "c", "d"]) == f"Not an action: Fly high, {'x' * 40}, c."
    assert STRICT.feedback(Verdict.VALID, []) == ""


def test_the_default_prompt_is_word_for_word_this() -> None:
    assert STRICT.system == (
        "You are a helpful assistant. You always reply by first putting your thoughts between <think> and </think>, then your"
        " answer between <answer> and </answer>."
    )
    assert ReplyFormat().instructions(NAMES) == (
        "Example answer format: <think>I guess which choice is better.</think><answer>Up</answer> or"
        " <think>I guess which choice is better.</think><answer>Down</answer>"
    )
    assert STRICT.reminder == "Answer again as <think>...</think><answer>...</answer>."


@every_format
def test_the_prefix_opens_a_rendered_reply_and_ends_without_white_space(format: ReplyFormat) -> None:
    """A prompt that ends in a space would keep the first sampled id from being the usual space-plus-word one."""
    assert format.render("a", ["b"]).startswith(format.prefix)
    assert format.prefix == format.prefix.strip()
    assert bool(format.prefix) is (format.grammar != "raw" and (format.think or format.tools != "llama3"))


def test_the_prefix_can_be_left_to_the_model() -> None:
    assert (STRICT.prefix, ReplyFormat(reply_prefix=False).prefix) == ("<think>", "")


@every_format
def test_a_stop_text_ends_a_rendered_reply_and_stands_nowhere_before(format: ReplyFormat) -> None:
    text = format.render("a", ["b"])
    assert all(text.endswith(stop) and text.count(stop) == 1 for stop in format.stop_texts)


# --- properties -------------------------------------------------------------------------------------------------------------


@settings(max_examples=600)
@given(
    format=FORMATS_DRAWN,
    thought=WORDS,
    actions=st.lists(WORDS, min_size=1, max_size=4),
    named=st.booleans(),
    finished=st.booleans(),
)
def test_parse_undoes_render(format: ReplyFormat, thought: str, actions: list[str], named: bool, finished: bool) -> None:
    actions = actions[: format.max_actions]
    names = tuple({name.casefold(): name for name in actions}.values()) if named else None
    expected = tuple({name.casefold(): name for name in actions}[a.casefold()] for a in actions) if named else tuple(actions)
    reply = format.parse(format.render(thought, actions, names), names, finished=finished or format.grammar == "raw")
    assert (reply.verdict, reply.thought, reply.actions) == (Verdict.VALID, thought if format.think else "", expected)


PIECES = st.sampled_from(
    [
        *("<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>"),
        *(
            "</Think>",
            "< answer >",
            "\uff1canswer\uff1e",
            "<th\N{CYRILLIC SMALL LETTER BYELORUSSIAN-UKRAINIAN I}nk>",
            "<think\u200b>",
            "<plan>",
            "</move>",
            "\ud800",
            "\x00",
            "é",
        ),
        *("Up", " || ", "x", " ", "\n", "<", ">", "[", "]", "{", "}", ";", '"', "\\", ":", ",", "1e400", "NaN", "null"),
        *('{"name": "Up", "arguments": {}}', '{"name": "act", "parameters": {"text": "a"}}', '{"name": "\\ud800"'),
    ]
)
SOUP = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40)
TAG = re.compile(r"</?(think|answer|tool_call|plan|move)>", re.IGNORECASE)


@settings(max_examples=600)
@given(format=FORMATS_DRAWN, text=SOUP, named=st.booleans(), finished=st.booleans())
def test_any_text_gets_one_verdict_and_what_is_refused_does_nothing(
    format: ReplyFormat, text: str, named: bool, finished: bool
) -> None:
    """bug-log row 46: whatever a model writes, nothing is raised."""
    reply = format.parse(text, NAMES if named else None, finished=finished)
    assert isinstance(reply.verdict, Verdict)
    assert (reply.actions == ()) is (format.ruling(reply.verdict) is Ruling.REFUSED)
    assert all(action == action.strip() != "" for action in reply.actions)
    assert len(reply.actions) <= format.max_actions
    assert reply.text == text


@settings(max_examples=600)
@given(format=FORMATS_DRAWN, text=SOUP)
def test_no_field_holds_the_text_of_a_tag(format: ReplyFormat, text: str) -> None:
    """bug-log row 27: neither an action nor a thought is read with a tag inside; only a raw reply has no tags at all."""
    reply = format.parse(text)
    if format.grammar != "raw":
        own = set(TAG.findall(format.render("a", ["b"])))
        assert own.isdisjoint(TAG.findall(" ".join((reply.thought, *reply.actions))))


@given(st.lists(PIECES, max_size=9).map("".join))
def test_whatever_is_accepted_is_one_thought_and_one_answer(text: str) -> None:
    """bug-log rows 26 to 29: an accepted reply matches the format from end to end."""
    reply = ReplyFormat(max_actions=5).parse(text)
    if reply.verdict in (Verdict.VALID, Verdict.TOO_MANY_ACTIONS):
        match = re.fullmatch(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", text, re.DOTALL)
        assert match is not None
        assert not TAG.search(match[1] + "|" + match[2].replace("tool_call", ""))
        assert reply.actions == tuple(part.strip() for part in match[2].split("||") if part.strip())[:5]
    else:
        assert reply.actions == ()


LONG = 100_000
LONG_TEXTS = {
    "opened thoughts": "<think>",
    "closed thoughts": "</think>",
    "opened answers": "<answer>",
    "answer blocks": "<answer></answer>",
    "brackets": "<",
    "spaced brackets": "< ",
    "gaps with slashes": "<\n/\n",
    "unfinished names": "<thin",
    "marks": "[TOOL_CALLS]",
    "calls": "<tool_call>{}</tool_call>",
    "objects": "{};",
    "lists": "[",
    "deep objects": '{"name":',
    "escaped quotes": '\\"',
    "separators": "||a",
    "spaces": " ",
    "invisible characters": "\u200b",
    "half characters": "\ud800",
    "letters of another script": "漢",
}


@pytest.mark.parametrize("format", [format for format in FORMATS if format.max_actions == 4 and format.think], ids=label)
@pytest.mark.parametrize("piece", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_long_soup_is_read_too(format: ReplyFormat, piece: str) -> None:
    """bug-log row 46: what is tried again at every position would take hours here, and the run would stand still."""
    soup = piece * (LONG // len(piece))
    for text in (soup, f"<think>x</think><answer>{soup}</answer>", f'<think>x</think>{{"{soup}', f"<{soup}"):
        assert format.parse(text, NAMES).verdict is not Verdict.VALID
