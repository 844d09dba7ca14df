"""What the next message tells the model about a reply: what was wrong, and how to do it right, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragen.records import Verdict

_MAX_QUOTED, _MAX_QUOTED_NAMES = 40, 3  # characters and number of a model's own words shown back to it

# What was wrong, and what to do. The names in braces are those of `ReplyFormat.words`.
_LINES: Mapping[Verdict, tuple[str, str]] = {
    Verdict.EMPTY: ("Your reply held no action", ""),
    Verdict.TRUNCATED: ("Your reply was too long and was cut off", "Keep it shorter."),
    Verdict.NO_ANSWER: ("Your reply had no {answer_block}{behind}", ""),
    Verdict.MISORDERED: ("The tags of your reply were out of order", "Keep to {shape}."),
    Verdict.NESTED: ("Your reply had one block inside another", "Keep to {shape}."),
    Verdict.UNOPENED_ANSWER: ("Your reply had an {answer_end} without {answer}", "Keep to {shape}."),
    Verdict.UNCLOSED_ANSWER: ("Your answer was not closed", "Close it with {answer_end}."),
    Verdict.DUPLICATE_ANSWER: ("Your reply had more than one answer", "Write one."),
    Verdict.MISSING_THOUGHT: ("Your reply had no thought", "Begin with {think}."),
    Verdict.UNWANTED_THOUGHT: ("Your reply had a thought", "Write the answer alone."),
    Verdict.UNOPENED_THOUGHT: ("Your reply had a {think_end} too many", "Keep to {shape}."),
    Verdict.UNCLOSED_THOUGHT: ("Your thought was not closed", "Close it with {think_end}."),
    Verdict.DUPLICATE_THOUGHT: ("Your reply had more than one thought", "Write one."),
    Verdict.ANSWER_IN_THOUGHT: ("Your thought held an answer", "Answer only behind {think_end}."),
    Verdict.TEXT_AROUND: ("Your reply had text around {blocks}", "Write nothing else."),
    Verdict.WRONG_CASE: ("Your reply had a tag in capitals", "Keep to {shape}."),
    Verdict.SPACED_TAG: ("Your reply had a tag with spaces in it", "Keep to {shape}."),
    Verdict.LOOKALIKE_TAG: ("Your reply had a tag in unusual letters", "Keep to {shape}."),
    Verdict.MALFORMED: ("Your answer could not be read", ""),
    Verdict.NOT_JSON: ("Your tool call was not JSON", "Keep to {answer_shape}."),
    Verdict.BAD_NUMBER: ("Your tool call held a number out of range", "Use ordinary numbers."),
    Verdict.DUPLICATE_KEY: ("Your tool call had a key twice", "Keep to {answer_shape}."),
    Verdict.TOO_DEEP: ("Your tool call was nested too deeply", "Keep to {answer_shape}."),
    Verdict.TOO_LONG: ("Your tool call was too long", "Keep it shorter."),
    Verdict.NOT_A_CALL: ("Your answer was JSON but no tool call", "Keep to {answer_shape}."),
    Verdict.BAD_ARGUMENTS: ("Your tool call had arguments that the tool does not take", "Write them as in the first example."),
    Verdict.UNKNOWN_TOOL: ("There is no such tool", "The only one is {tool}."),
}


def feedback(verdict: Verdict, *, refused: bool, words: Mapping[str, str], max_actions: int, unknown: Sequence[str]) -> str:
    """The line about `verdict`, which is not one that the grammar forgives. `unknown`: the names that are no actions."""
    match verdict:
        case Verdict.TOO_MANY_ACTIONS:
            return f"Your reply held too many actions: only the first {max_actions} counted."
        case Verdict.UNKNOWN_ACTION | Verdict.LOOKALIKE_ACTION:
            quoted = (" ".join(name[:_MAX_QUOTED].split()) for name in unknown[:_MAX_QUOTED_NAMES])
            hint = " Spell actions with the letters of the prompt." if verdict is Verdict.LOOKALIKE_ACTION else ""
            return f"Not an action: {', '.join(quoted)}.{hint}"
    wrong, remedy = (text.format_map(words) for text in _LINES[verdict])
    return f"{wrong}{': nothing was done' if refused else ''}.{remedy and f' {remedy}'}"
