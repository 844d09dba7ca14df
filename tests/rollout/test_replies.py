"""The reply format: what is valid, what each fault is called, and that text and parser agree."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.records import Verdict
from ragen.rollout.replies import ReplyFormat

NAMES = ("Up", "Down", "Left", "Right")
THINKING = ReplyFormat(max_actions=3)
ANSWERING = ReplyFormat(think=False, max_actions=3)
WORDS = st.text(string.ascii_letters + string.digits + " .,'+*/()-", min_size=1, max_size=12).map(str.strip).filter(bool)


def verdict(text: str, format: ReplyFormat = THINKING) -> Verdict:
    return format.parse(text, NAMES).verdict


def test_a_valid_reply_gives_thought_and_actions_in_order():
    reply = THINKING.parse("<think> The box is left.\n</think> \n<answer>Left || Up</answer>\n", NAMES)
    assert (reply.thought, reply.actions, reply.verdict) == ("The box is left.", ("Left", "Up"), Verdict.VALID)


def test_without_thoughts_the_answer_block_alone_is_valid():
    reply = ANSWERING.parse("<answer>Left</answer>", NAMES)
    assert (reply.thought, reply.actions, reply.verdict) == ("", ("Left",), Verdict.VALID)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>x</plan><answer>Up</answer>", Verdict.MALFORMED),
        ("<think>x</think><answer>Up", Verdict.NO_ANSWER),
        ("<think>x<answer>Up</answer>", Verdict.MALFORMED),
        ("<think>x</think>Up", Verdict.NO_ANSWER),
        ("<think>x", Verdict.NO_ANSWER),
        ("Up", Verdict.NO_ANSWER),
        ("<answer>Up</answer>", Verdict.MALFORMED),
        ("<answer>Up</answer><think>x</think>", Verdict.MALFORMED),
        ("</think>x<think><answer>Up</answer>", Verdict.MALFORMED),
        ("<think>x</think></answer>Up<answer>", Verdict.NO_ANSWER),
        ("<think>x</think><answer></answer>", Verdict.EMPTY),
        ("<think>x</think><answer> || </answer>", Verdict.EMPTY),
    ],
)
def test_pairs_must_be_closed_and_in_order(text: str, expected: Verdict):
    """bug-log row 26: blocks closed by a wrong tag, not closed, in the wrong order, or empty, are not a valid reply."""
    reply = THINKING.parse(text, NAMES)
    assert (reply.verdict, reply.actions) == (expected, ())


@pytest.mark.parametrize(
    "text",
    [
        "<think>x</think><answer>Up</answer></answer>",
        "<think>x</think><answer>Up</answer><answer>Up</answer>",
        "<think>x</think><answer><answer>Up</answer></answer>",
        "<think>x</think><answer>Up</answer>Down</answer>",
        "<think><think>x</think><answer>Up</answer>",
        "<think>x</think></think><answer>Up</answer>",
        "<think>x</think><answer>Up</ANSWER></answer>",
        "<think>x< /think></think><answer>Up</answer>",
    ],
)
def test_no_field_may_hold_the_text_of_a_tag(text: str):
    """bug-log row 27: a doubled, nested or misspelt tag makes the reply malformed instead of ending up inside an action."""
    reply = THINKING.parse(text, NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.MALFORMED, ())


@pytest.mark.parametrize(
    "text",
    [
        "Sure! <think>x</think><answer>Up</answer>",
        "<think>x</think> so <answer>Up</answer>",
        "<think>x</think><answer>Up</answer> Done.",
    ],
)
def test_prose_around_the_blocks_is_malformed(text: str):
    """bug-log row 28: the whole reply must match, not some part of it."""
    assert verdict(text) is Verdict.MALFORMED


def test_too_many_actions_are_flagged_and_cut():
    """bug-log row 28: seven actions where three are allowed are not called correct."""
    reply = THINKING.parse("<think>x</think><answer>Up||Up||Up||Down||Up||Up||Up</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.TOO_MANY_ACTIONS, ("Up", "Up", "Up"))


def test_an_answer_inside_the_thought_is_never_taken_for_the_answer():
    """bug-log row 29: the first answer tag stands in the thought as a placeholder."""
    reply = THINKING.parse("<think>I write <answer>Down</answer>.</think><answer>Up</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.MALFORMED, ())


@pytest.mark.parametrize("text", ["", " \n", "<think>", " <think>\n"])
def test_a_reply_of_nothing_is_empty(text: str):
    """bug-log row 62: end of turn at once, no ids at all, or only spaces (behind the prefix that the prompt holds)."""
    assert verdict(text) is Verdict.EMPTY


def test_names_are_matched_without_case_and_come_out_as_the_environment_spells_them():
    reply = THINKING.parse("<think>x</think><answer> rIGHT ||up</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.VALID, ("Right", "Up"))


def test_unknown_names_are_kept_for_the_environment_to_reject():
    reply = THINKING.parse("<think>x</think><answer>Up || Right. || Down</answer>", NAMES)
    assert (reply.verdict, reply.actions) == (Verdict.UNKNOWN_ACTION, ("Up", "Right.", "Down"))


def test_free_text_answers_are_taken_whole_if_one_is_wanted():
    one = ReplyFormat(max_actions=1)
    reply = one.parse("<think>x</think><answer>a || b</answer>", None)
    assert (reply.verdict, reply.actions) == (Verdict.VALID, ("a || b",))
    assert one.parse("<think>x</think><answer>Up || Down</answer>", NAMES).verdict is Verdict.TOO_MANY_ACTIONS


@pytest.mark.parametrize("names", [("Teacher", "Trader"), NAMES, ("Go",), None])
@pytest.mark.parametrize("max_actions", [1, 5])
@pytest.mark.parametrize("think", [True, False])
def test_the_examples_in_the_instructions_are_valid_replies(names: tuple[str, ...] | None, max_actions: int, think: bool):
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


@pytest.mark.parametrize("think", [True, False])
def test_the_system_message_names_exactly_the_tags_that_the_parser_reads(think: bool):
    """bug-log row 31: prompt and parser share their tags."""
    format = ReplyFormat(think=think)
    tags = set(re.findall(r"</?\w+>", format.system + format.reminder))
    assert tags == set(re.findall(r"</?\w+>", format.render("a", ["b"])))


@pytest.mark.parametrize("think", [True, False])
def test_the_prefix_opens_a_rendered_reply_and_ends_without_white_space(think: bool):
    """A prompt that ends in a space would keep the first sampled id from being the usual space-plus-word one."""
    format = ReplyFormat(think=think)
    assert format.render("a", ["b"]).startswith(format.prefix)
    assert format.prefix == format.prefix.strip() != ""
    assert ReplyFormat(think=think, reply_prefix=False).prefix == ""


def test_feedback_quotes_a_little_of_what_was_unknown():
    long = "x" * 1000
    assert THINKING.feedback(Verdict.UNKNOWN_ACTION, ["Fly\nhigh", long, "c", "d"]) == f"Not an action: Fly high, {'x' * 40}, c."
    assert THINKING.feedback(Verdict.VALID, []) == ""
    assert all(THINKING.feedback(v, ["a"]) for v in Verdict if v is not Verdict.VALID)


@given(thought=WORDS, actions=st.lists(WORDS, min_size=1, max_size=4), think=st.booleans())
def test_parse_undoes_render(thought: str, actions: list[str], think: bool):
    format = ReplyFormat(think=think, max_actions=4)
    reply = format.parse(format.render(thought, actions), None)
    assert (reply.verdict, reply.thought, reply.actions) == (Verdict.VALID, thought if think else "", tuple(actions))


PIECES = st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "Up", " || ", "x", " ", "\n", "</Think>", "<"])


@given(st.lists(PIECES, max_size=9).map("".join))
def test_whatever_is_accepted_is_one_thought_and_one_answer(text: str):
    """bug-log rows 26 to 29: an accepted reply matches the format from end to end, and no field holds a tag."""
    reply = ReplyFormat(max_actions=5).parse(text)
    if reply.verdict is Verdict.VALID:
        match = re.fullmatch(r"\s*<think>([^>]*)</think>\s*<answer>([^>]*)</answer>\s*", text)
        assert match is not None
        assert reply.actions == tuple(part.strip() for part in match[2].split("||") if part.strip())
    elif reply.verdict is not Verdict.TOO_MANY_ACTIONS:
        assert reply.actions == ()
