"""What each deviation from the format is called, and which of them a lenient grammar plays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.records import Verdict
from ragen.rollout.replies import RULINGS, Grammar, ReplyFormat, Ruling
from tests.support.replies import LENIENT, NAMES, STRICT, WORDS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>x</plan><answer>Up</answer>", Verdict.UNCLOSED_THOUGHT),
        ("<think>x</think><answer>Up", Verdict.UNCLOSED_ANSWER),
        ("<think>x<answer>Up</answer>", Verdict.UNCLOSED_THOUGHT),
        ("<think>x</think>Up", Verdict.NO_ANSWER),
        ("<think>x", Verdict.NO_ANSWER),
        ("Up", Verdict.NO_ANSWER),
        ("<answer>Up</answer>", Verdict.MISSING_THOUGHT),
        ("<answer>Up</answer><think>x</think>", Verdict.MISORDERED),
        ("</think>x<think><answer>Up</answer>", Verdict.MISORDERED),
        ("<think>x</think></answer>Up<answer>", Verdict.MISORDERED),
        ("<think>x</think><answer></answer>", Verdict.EMPTY),
        ("<think>x</think><answer> || </answer>", Verdict.EMPTY),
    ],
)
def test_pairs_must_be_closed_and_in_order(text: str, expected: Verdict) -> None:
    """bug-log row 26: blocks closed by a wrong tag, not closed, in the wrong order, or empty, are not a valid reply."""
    reply = STRICT.parse(text, NAMES)
    assert (reply.verdict, reply.actions, reply.thought) == (expected, (), "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>x</think><answer>Up</answer></answer>", Verdict.UNOPENED_ANSWER),
        ("<think>x</think><answer>Up</answer><answer>Up</answer>", Verdict.DUPLICATE_ANSWER),
        ("<think>x</think><answer><answer>Up</answer></answer>", Verdict.NESTED),
        ("<think>x</think><answer>Up</answer>Down</answer>", Verdict.UNOPENED_ANSWER),
        ("<think><think>x</think><answer>Up</answer>", Verdict.DUPLICATE_THOUGHT),
        ("<think>x</think></think><answer>Up</answer>", Verdict.UNOPENED_THOUGHT),
        ("<think>x</think><answer>Up</ANSWER></answer>", Verdict.UNOPENED_ANSWER),
        ("<think>x< /think></think><answer>Up</answer>", Verdict.UNOPENED_THOUGHT),
        ("<think>x <answer>Up</answer></think>", Verdict.NESTED),
        ("<answer>Up <think>x</think></answer>", Verdict.NESTED),
        ("<answer>Down</answer><think>x</think><answer>Up</answer>", Verdict.DUPLICATE_ANSWER),
    ],
)
def test_no_field_may_hold_the_text_of_a_tag(text: str, expected: Verdict) -> None:
    """bug-log row 27: a doubled, nested or misspelt tag is named instead of ending up inside an action."""
    reply = STRICT.parse(text, NAMES)
    assert (reply.verdict, reply.actions) == (expected, ())


@pytest.mark.parametrize(
    "text",
    [
        "Sure! <think>x</think><answer>Up</answer>",
        "<think>x</think> so <answer>Up</answer>",
        "<think>x</think><answer>Up</answer> Done.",
    ],
)
def test_prose_around_the_blocks_is_refused_or_forgiven(text: str) -> None:
    """bug-log row 28: the whole reply must match, not some part of it, unless the grammar says so."""
    assert STRICT.parse(text, NAMES).actions == ()
    for format in (STRICT, LENIENT):
        assert format.parse(text, NAMES).verdict is Verdict.TEXT_AROUND
    reply = LENIENT.parse(text, NAMES)
    assert (reply.actions, reply.thought) == (("Up",), "x")
    assert LENIENT.is_valid(reply.verdict)
    assert LENIENT.feedback(reply.verdict, []) == ""


def test_an_answer_inside_the_thought_is_never_taken_for_the_answer() -> None:
    """bug-log row 29: the first answer tag stands in the thought as a placeholder."""
    text = "<think>I write <answer>Down</answer>.</think><answer>Up</answer>"
    assert STRICT.parse(text, NAMES).actions == ()
    reply = LENIENT.parse(text, NAMES)
    assert (reply.verdict, reply.actions, reply.thought) == (Verdict.ANSWER_IN_THOUGHT, ("Up",), "I write …Down….")
    only = LENIENT.parse("<think>I write <answer>Down</answer>.</think> Good.", NAMES)
    assert (only.verdict, only.actions) == (Verdict.NESTED, ())


@pytest.mark.parametrize(
    ("text", "thought", "actions"),
    [
        ("<answer>Up", "", ("Up",)),
        ("x</think> so <answer>Up</answer>", "x", ("Up",)),
        ("<think>x <answer>Up</answer> good", "x", ("Up",)),
        ("<think>I write <answer>Down</answer>, or rather <answer>Up</answer>", "I write", ("Up",)),
        ("<think>x</think><answer>Down</answer> no, <answer>Up || Left</answer>", "x", ("Up", "Left")),
        ("<THINK>x</Think><Answer>Up</ANSWER>", "x", ("Up",)),
        ("< think >x</ think><answer\n>Up< / answer>", "x", ("Up",)),
        ("<think>a<think>b</think>c</think><answer>Up</answer>", "a…b…c", ("Up",)),
    ],
)
def test_what_leaves_no_doubt_is_played_by_the_lenient_grammar(text: str, thought: str, actions: tuple[str, ...]) -> None:
    reply = LENIENT.parse(text, NAMES)
    assert (reply.thought, reply.actions) == (thought, actions)
    assert STRICT.parse(text, NAMES).actions == ()


@pytest.mark.parametrize(
    "text",
    [
        "<answer>Down <answer>Up</answer></answer>",
        "<answer>Up</answer>Down</answer>",
        "<answer>Up</answer><think>x</think>",
        "<think>x <answer>Up</think></answer>",
        "<answer>Up <think>x</answer>",
        "<think>x</think><answer>Up <think>",
        "<think>x</think><\N{CYRILLIC SMALL LETTER A}nswer>Up</answer>",
        "<think>x</think>\uff1canswer\uff1eUp</answer>",
        "<think>x</think><answer>Up\uff1c/answer\uff1e",
        "Up",
        "<answer></answer>",
    ],
)
def test_what_leaves_a_doubt_is_played_by_no_grammar(text: str) -> None:
    assert LENIENT.parse(text, NAMES).actions == STRICT.parse(text, NAMES).actions == ()


LOOKALIKES = {
    "a": "\u0430",
    "e": "\u0435",
    "i": "\u0456",
    "k": "\u043a",
    "<": "\uff1c",
    ">": "\uff1e",
    "/": "\u2044",
    "s": "\uff53",
}
Parts = list[str]  # <think> thought </think> <answer> actions </answer>


def without(index: int) -> Callable[[Parts, int], Parts]:
    return lambda parts, _: [*parts[:index], *parts[index + 1 :]]


def twice(start: int, stop: int) -> Callable[[Parts, int], Parts]:
    return lambda parts, _: [*parts[:stop], *parts[start:stop], *parts[stop:]]


def prose(parts: Parts, where: int) -> Parts:
    place = (0, 3, 6)[where % 3]
    return [*parts[:place], "So: ", *parts[place:]]


def respelt(change: Callable[[str, int], str]) -> Callable[[Parts, int], Parts]:
    def mutate(parts: Parts, where: int) -> Parts:
        index = (0, 2, 3, 5)[where % 4]
        return [*parts[:index], change(parts[index], where), *parts[index + 1 :]]

    return mutate


def lookalike(tag: str, where: int) -> str:
    candidates = [i for i, letter in enumerate(tag) if letter in LOOKALIKES]
    i = candidates[where % len(candidates)]
    return tag[:i] + LOOKALIKES[tag[i]] + tag[i + 1 :]


def invisible(tag: str, where: int) -> str:
    i = 1 + where % (len(tag) - 1)
    return f"{tag[:i]}\u200b{tag[i:]}"


NEAR_MISSES: dict[str, tuple[Callable[[Parts, int], Parts], Verdict]] = {
    "no opening of the thought": (without(0), Verdict.UNOPENED_THOUGHT),
    "no closing of the thought": (without(2), Verdict.UNCLOSED_THOUGHT),
    "no opening of the answer": (without(3), Verdict.UNOPENED_ANSWER),
    "no closing of the answer": (without(5), Verdict.UNCLOSED_ANSWER),
    "nothing in the answer": (without(4), Verdict.EMPTY),
    "no thought": (lambda parts, _: parts[3:], Verdict.MISSING_THOUGHT),
    "no answer": (lambda parts, _: parts[:3], Verdict.NO_ANSWER),
    "two thoughts": (twice(0, 3), Verdict.DUPLICATE_THOUGHT),
    "two answers": (twice(3, 6), Verdict.DUPLICATE_ANSWER),
    "answer opened twice": (twice(3, 4), Verdict.NESTED),
    "answer closed twice": (twice(5, 6), Verdict.UNOPENED_ANSWER),
    "thought closed twice": (twice(2, 3), Verdict.UNOPENED_THOUGHT),
    "answer first": (lambda parts, _: [*parts[3:], *parts[:3]], Verdict.MISORDERED),
    "tags of the thought exchanged": (lambda p, _: [p[2], p[1], p[0], *p[3:]], Verdict.MISORDERED),
    "blocks crossed": (lambda p, _: [p[0], p[1], p[3], p[2], p[4], p[5]], Verdict.MISORDERED),
    "answer inside the thought": (lambda p, _: [p[0], p[1], *p[3:], p[2]], Verdict.NESTED),
    "answer in the thought and behind it": (lambda p, _: [*p[:2], *p[3:], *p[2:]], Verdict.ANSWER_IN_THOUGHT),
    "prose": (prose, Verdict.TEXT_AROUND),
    "a tag in capitals": (respelt(lambda tag, _: tag.upper()), Verdict.WRONG_CASE),
    "a tag with a space": (respelt(lambda tag, _: tag.replace(">", " >")), Verdict.SPACED_TAG),
    "a letter that looks alike": (respelt(lookalike), Verdict.LOOKALIKE_TAG),
    "an invisible character": (respelt(invisible), Verdict.LOOKALIKE_TAG),
}


@pytest.mark.parametrize("miss", NEAR_MISSES)
@given(
    thought=WORDS, actions=st.lists(WORDS, min_size=1, max_size=3), where=st.integers(0, 99), spaces=st.sampled_from(["", "\n"])
)
def test_one_change_to_a_valid_reply_is_refused_under_its_own_name(
    miss: str, thought: str, actions: list[str], where: int, spaces: str
) -> None:
    """The strict grammar accepts what `render` writes, white space between the blocks aside, and nothing beside it."""
    parts = ["<think>", thought, "</think>", "<answer>", " || ".join(actions), "</answer>"]
    assert "".join(parts) == STRICT.render(thought, actions)
    assert STRICT.parse(spaces.join(parts)).verdict is Verdict.VALID
    mutate, expected = NEAR_MISSES[miss]
    reply = STRICT.parse(spaces.join(mutate(parts, where)))
    assert (reply.verdict, reply.actions) == (expected, ())


@pytest.mark.parametrize("miss", NEAR_MISSES)
def test_a_cut_reply_is_truncated_if_what_is_missing_could_have_completed_it(miss: str) -> None:
    mutate, expected = NEAR_MISSES[miss]
    text = "".join(mutate(["<think>", "x", "</think>", "<answer>", "Up", "</answer>"], 0))
    verdict = STRICT.parse(text, NAMES, finished=False).verdict
    lost_its_end = miss in ("no closing of the answer", "no answer")
    assert verdict is (Verdict.TRUNCATED if lost_its_end else expected)


def test_without_thoughts_a_thought_is_not_wanted() -> None:
    for grammar, actions in (("strict", ()), ("lenient", ("Up",))):
        format = ReplyFormat(think=False, grammar=grammar)
        reply = format.parse("<think>x</think><answer>Up</answer>", NAMES)
        assert (reply.verdict, reply.actions) == (Verdict.UNWANTED_THOUGHT, actions)
        assert format.parse("</answer>Up<answer>", NAMES).verdict is Verdict.MISORDERED


def test_what_is_forgiven_is_played_and_what_strict_plays_lenient_plays_too() -> None:
    assert Verdict.VALID in RULINGS[Grammar.STRICT]
    for verdict, ruling in RULINGS[Grammar.STRICT].items():
        assert RULINGS[Grammar.LENIENT][verdict] is ruling
    assert [v for v, ruling in RULINGS[Grammar.STRICT].items() if ruling is Ruling.FREE] == [Verdict.VALID]


def test_tags_may_carry_other_names() -> None:
    format = ReplyFormat(think_tag="a", answer_tag="a-b")
    assert (format.opening, format.stop_texts) == ("<a>", ("</a-b>",))
    reply = format.parse("<a><think></a><a-b>Up</a-b>", NAMES)
    assert (reply.verdict, reply.thought, reply.actions) == (Verdict.VALID, "<think>", ("Up",))
    assert format.parse("<a>x</a><A-b>Up</a-b>", NAMES).verdict is Verdict.WRONG_CASE
