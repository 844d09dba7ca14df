"""The page of `ragen tokens`, on a trajectory written down by hand: prompt "A B\\n" of template and environment, reply "go"."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ragen.cli.token_page import print_page, visible
from ragen.models.template_findings import Finding
from ragen.models.traced_template import Origin
from ragen.records import FinishReason, Turn
from ragen.tokens import Author, Passage, Token, TokenTrace
from tests.support.samples import make_trajectory


def token(index: int, text: str, origin: Origin = Origin.ENVIRONMENT, **fields: object) -> Token:
    defaults = {"merged": False, "trained": origin is Origin.SAMPLED, "logprob": None}
    return Token(id=index, text=text, origin=origin, **(defaults | fields))  # type: ignore[arg-type]


PROMPT = (token(1, "<|start|>", Origin.TEMPLATE), token(20, " A B"), token(3, "\n", merged=True), token(4, "<", Origin.PREFIX))
REPLY = (token(500, "go", Origin.SAMPLED, logprob=-0.25), token(6, "\t", Origin.SAMPLED, logprob=-10.5))


def trace(prompt: tuple[Token, ...] = PROMPT, reply: tuple[Token, ...] = REPLY, **turn: object) -> TokenTrace:
    trajectory = make_trajectory(
        [each.id for each in prompt], [each.id for each in reply], rewards=[1.5], tag="corridor", group=7
    )
    trajectory = replace(trajectory, turns=(replace(trajectory.turns[0], **turn),))  # type: ignore[arg-type]
    (written,) = trajectory.turns
    return TokenTrace(
        trajectory=trajectory,
        passages=(
            Passage(segment=0, completion=written, is_completion=False, tokens=prompt),
            Passage(segment=0, completion=written, is_completion=True, tokens=reply),
        ),
        model="tiny",
        author=Author.SCRIPT,
        is_cut=False,
        findings=(
            Finding(topic="stops", what="<|end|> (2)"),
            Finding(topic="white space", what=" ".join(["kept"] * 20), consequence="nothing"),
        ),
    )


def page(shown: TokenTrace, *, width: int = 80, colour: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    print_page(console, shown)
    return console.file.getvalue()  # type: ignore[attr-defined]


EXPECTED = """\
corridor, task seed 107, as tiny reads it; replies by script
 t  template   e  environment   p  prefix   S  sampled, trained

segment 1 of 1: 6 tokens, 2 trained ────────────────────────────────────────────

turn 1, read: 4 tokens
<|start|> ·A·B ↵
t1        e20  e+3
<
p4

turn 1, sampled: 2 tokens
valid: a, reward 1.5
go    ⇥
S500  S6
-0.25 -10.50

end: failed, success: no, return: 1.5

tokens ─────────────────────────────────────────────────────────────────────────
 t       1  16.7%  the chat template's own
 e       2  33.3%  messages: task, observations, how to answer
 p       1  16.7%  the forced beginning of a reply
 S       2  33.3%  sampled, and what is trained
 +       1         merged by the tokenizer with text of somebody else
         6         in 1 segment

chat template of tiny ──────────────────────────────────────────────────────────
stops:       <|end|> (2)
white space: kept kept kept kept kept kept kept kept kept kept kept kept kept
             kept kept kept kept kept kept kept (nothing)
"""


def test_the_page_without_colours() -> None:
    assert page(trace()) == EXPECTED


def test_colours_add_nothing_but_colours() -> None:
    coloured = page(trace(), colour=True)
    assert "\x1b[" in coloured
    assert Text.from_ansi(coloured).plain.rstrip("\n") == EXPECTED.rstrip("\n")


def test_what_is_sampled_but_not_trained_has_a_letter_of_its_own() -> None:
    shown = page(trace(reply=tuple(replace(each, trained=False) for each in REPLY)))
    assert "s500  s6" in shown
    assert " s       2  33.3%  sampled, but not trained" in shown
    assert "0 trained" in shown


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_of_tokens_is_wider_than_the_terminal(width: int) -> None:
    """Texts of one and of two columns a character, one far too long for any cell."""
    words = ["hello", " 日本語", "x" * 300, "🧍", "\n"] * 20
    lines = page(trace(prompt=tuple(token(n, word) for n, word in enumerate(words))), width=width).splitlines()
    start, stop = lines.index("turn 1, read: 100 tokens"), lines.index("turn 1, sampled: 2 tokens")
    assert max(map(cell_len, lines[start:stop])) <= max(width, 41)


def test_ids_stand_below_their_texts_whatever_the_width_of_the_letters() -> None:
    lines = page(trace(prompt=(token(1, "日本語"), token(22, "x")))).splitlines()
    upper = lines[lines.index("turn 1, read: 2 tokens") + 1]
    assert cell_len(upper.partition("x")[0]) == lines[lines.index(upper) + 1].index("e22")


def test_a_reply_that_was_cut_is_named() -> None:
    shown = page(trace(finish_reason=FinishReason.LENGTH, executed=()))
    assert "turn 1, sampled: 2 tokens, cut at the longest allowed\nvalid: nothing done, reward 1.5\n" in shown


def test_an_episode_that_is_not_shown_to_its_end_says_so() -> None:
    assert "\nand so on; return so far: 1.5\n" in page(replace(trace(), is_cut=True))


def test_a_prompt_that_nobody_answered_is_shown() -> None:
    alone = replace(trace(), passages=(Passage(segment=0, completion=None, is_completion=False, tokens=PROMPT),))
    assert "read, and never answered: 4 tokens" in page(alone)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" a b", "·a·b"),
        ("\n\n", "↵↵"),
        ("\r\t", "␍⇥"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u200b", "\\u200b"),
        ("√日🧍", "√日🧍"),
        ("[bold]", "[bold]"),
    ],
)
def test_everything_can_be_seen(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_a_reply_cannot_colour_the_page() -> None:
    """Neither by escape codes nor by the markup of the library that prints."""
    shown = page(trace(reply=(token(1, "\x1b[31m[red]x[/red]", Origin.SAMPLED),)))
    assert "\\x1b[31m[red]x[/red]" in shown


def test_turns_are_numbered_by_place_and_not_by_equality() -> None:
    """Two turns that say the same are equal, but not the same."""
    shown = trace()
    first = shown.trajectory.turns[0]
    second: Turn = replace(first)
    trajectory = replace(shown.trajectory, turns=(first, second))
    passages = (replace(shown.passages[1], completion=first), replace(shown.passages[1], completion=second))
    assert "turn 2, sampled" in page(replace(shown, trajectory=trajectory, passages=passages))
