"""The page of `ragen tokens`: each token above its id, in the colour of its origin, which a letter before the id repeats."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.text import Text

from ragen.models.traced_template import Origin
from ragen.records import FinishReason, Turn
from ragen.tokens import Passage, Token, TokenTrace

MAX_CELL = 40  # columns of one token
_SIGNS = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍"}


@dataclass(frozen=True, kw_only=True)
class _Kind:
    letter: str
    style: str
    name: str
    meaning: str


_KINDS = (
    _Kind(letter="t", style="white on grey37", name="template", meaning="the chat template's own"),
    _Kind(letter="e", style="cyan", name="environment", meaning="messages: task, observations, how to answer"),
    _Kind(
        letter="r", style="black on tan", name="retold", meaning="earlier replies, in a prompt built anew: text, encoded again"
    ),
    _Kind(letter="p", style="black on plum2", name="prefix", meaning="the forced beginning of a reply"),
    _Kind(letter="S", style="black on green3", name="sampled, trained", meaning="sampled, and what is trained"),
    _Kind(letter="s", style="black on dark_khaki", name="sampled, untrained", meaning="sampled, but not trained"),
)
_LETTERS = {Origin.TEMPLATE: "t", Origin.ENVIRONMENT: "e", Origin.RETOLD: "r", Origin.PREFIX: "p"}
_STYLES = {kind.letter: kind.style for kind in _KINDS}


def print_page(console: Console, trace: TokenTrace) -> None:
    """The whole page, in the width of the console."""
    for part in _page(trace, console.width):
        console.print(part, highlight=False)


def visible(text: str) -> str:
    """`text` with a sign for every space and line end, and codes for what cannot be seen."""
    return "".join(_SIGNS.get(c) or (c if c.isprintable() else c.encode("unicode_escape").decode()) for c in text)


def _page(trace: TokenTrace, width: int) -> Iterator[RenderableType]:
    key = trace.trajectory.key
    yield Text(f"{key.environment}, task seed {key.task_seed}, as {trace.model} reads it; replies by {trace.author}")
    yield _legend(trace.tokens)
    for passage, before in zip(trace.passages, (None, *trace.passages), strict=False):
        if before is None or before.segment != passage.segment:
            yield from _title(_segment_heading(trace, passage.segment))
        yield Text("\n").append_text(_heading(trace, passage))
        yield from _token_lines(passage.tokens, width)
    yield Text("\n" + _ending(trace))
    yield from _title("tokens")
    yield from _count_lines(trace)
    yield from _title(f"chat template of {trace.model}")
    yield from _finding_lines(trace, width)


def _legend(tokens: Sequence[Token]) -> Text:
    """The kinds of token that occur."""
    present = {_letter(token) for token in tokens}
    parts = [Text.assemble((f" {kind.letter} ", kind.style), f" {kind.name}") for kind in _KINDS if kind.letter in present]
    return Text("  ").join(parts)


def _title(text: str) -> Iterator[RenderableType]:
    yield Text()
    yield Rule(Text(text, style="bold"), align="left", style="dim")


def _segment_heading(trace: TokenTrace, segment: int) -> str:
    tokens = [token for passage in trace.passages if passage.segment == segment for token in passage.tokens]
    num_trained = sum(token.trained for token in tokens)
    return f"segment {segment + 1} of {len(trace.trajectory.segments)}: {_num(len(tokens), 'token')}, {num_trained} trained"


def _heading(trace: TokenTrace, passage: Passage) -> Text:
    """Which completion it is, or comes before; what came of it in a second line."""
    trajectory, completion = trace.trajectory, passage.completion
    length = _num(len(passage.tokens), "token")
    if completion is None:
        return Text(f"read, and never answered: {length}", style="bold")
    if isinstance(completion, Turn):
        name = f"turn {_place(trajectory.turns, completion)}"
        what = f"{completion.reply.verdict}: {' || '.join(completion.executed) or 'nothing done'}, reward {completion.reward:g}"
    else:
        name = f"summary {_place(trajectory.summaries, completion)}"
        what = "for the next segment" + ("" if completion.trained else ", not trained")
    if not passage.is_completion:
        return Text(f"{name}, read: {length}", style="bold")
    cut = ", cut at the longest allowed" if completion.finish_reason is FinishReason.LENGTH else ""
    return Text.assemble((f"{name}, sampled: {length}{cut}", "bold"), f"\n{what}")


def _place(completions: Sequence[object], completion: object) -> int:
    return next(number for number, each in enumerate(completions, start=1) if each is completion)


def _token_lines(tokens: Sequence[Token], width: int) -> Iterator[Text]:
    """The tokens in rows, a row ending where the text has a line end: texts above, ids below, log-probs below these."""
    for row in _rows(tokens, width):
        texts = Text()
        for token in row:
            texts.append(_shown(token), style=_STYLES[_letter(token)])
            texts.append(" " * (_room(token) - cell_len(_shown(token)) + 1))
        texts.rstrip()
        yield texts
        for below in (_label, _logprob):
            line = " ".join(f"{below(token):<{_room(token)}}" for token in row).rstrip()
            if line:
                yield Text(line, style="dim")


def _rows(tokens: Sequence[Token], width: int) -> Iterator[list[Token]]:
    row: list[Token] = []
    used = 0
    for token in tokens:
        needed = _room(token) + 1
        if row and used + needed > width:
            yield row
            row, used = [], 0
        row.append(token)
        used += needed
        if "\n" in token.text:
            yield row
            row, used = [], 0
    if row:
        yield row


def _room(token: Token) -> int:
    return max(cell_len(_shown(token)), len(_label(token)), len(_logprob(token)))


def _shown(token: Token) -> str:
    text = visible(token.text) or "∅"
    return text if cell_len(text) <= MAX_CELL else set_cell_size(text, MAX_CELL - 1) + "…"


def _label(token: Token) -> str:
    return f"{_letter(token)}{'+' if token.merged else ''}{token.id}"


def _logprob(token: Token) -> str:
    return "" if token.logprob is None else f"{token.logprob:.2f}"


def _letter(token: Token) -> str:
    return _LETTERS.get(token.origin) or ("S" if token.trained else "s")


def _ending(trace: TokenTrace) -> str:
    trajectory = trace.trajectory
    if trace.is_cut:
        return f"and so on; return so far: {trajectory.return_:g}"
    success = "yes" if trajectory.success else "no"
    error = f" ({trajectory.error})" if trajectory.error else ""
    return f"end: {trajectory.end_reason}{error}, success: {success}, return: {trajectory.return_:g}"


def _count_lines(trace: TokenTrace) -> Iterator[Text]:
    """The legend in full, with how many there are of each kind."""
    letters = [_letter(token) for token in trace.tokens]
    for kind in _KINDS:
        if count := letters.count(kind.letter):
            yield Text.assemble((f" {kind.letter} ", kind.style), f" {count:>6} {count / len(letters):>6.1%}  {kind.meaning}")
    if num_merged := sum(token.merged for token in trace.tokens):
        yield Text(f" +  {num_merged:>6}         merged by the tokenizer with text of somebody else")
    yield Text(f"    {len(letters):>6}         in {_num(len(trace.trajectory.segments), 'segment')}")


def _finding_lines(trace: TokenTrace, width: int) -> Iterator[Text]:
    room = max(len(finding.topic) for finding in trace.findings) + 2
    for finding in trace.findings:
        consequence = f" ({finding.consequence})" if finding.consequence else ""
        lines = textwrap.wrap(finding.what + consequence, max(20, width - room), break_on_hyphens=False)
        for number, line in enumerate(lines):
            yield Text(f"{'' if number else finding.topic + ':':<{room}}{line}")


def _num(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
