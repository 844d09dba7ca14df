"""Real chat templates of many model families, each with a tokenizer that knows the control tokens it writes.

The templates are those that TRL (Apache-2.0) carries in its package. They are read where it is installed; none is kept here.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from ragen.models.chat import ChatTemplate
from ragen.models.template_probe import Turns
from tests.support.tokenizers import BOS, make_tokenizer_for

INSTALL = "python -m pip install --no-deps trl"

# Spellings of control tokens. What models write themselves (thoughts, tool calls) are added tokens, but not special ones.
_SPECIAL = re.compile(
    r"<\|[^|>\s'\"{}]{1,40}\|>|<\uff5c[^\uff5c>\s]{1,40}\uff5c>|<\|\w+>|<\w+\|>|<\|\"\|>|</s>|<(?:start|end)_of_\w+>|\[/?INST\]|\[gMASK\]|<sop>"
)
_WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


@functools.cache
def templates() -> dict[str, str]:
    """Template by name; empty if TRL is not installed. TRL itself is not imported."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        return {}
    folder = Path(spec.origin).parent / "chat_templates"
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}


@functools.cache
def tokenizer_of(name: str, *, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer whose merges join anything, for the template `name`. Shared: not to be changed.

    `adds_bos`: it puts <s> before raw strings, as the tokenizers of many of these families do.
    """
    template = templates()[name]
    special = sorted(set(_SPECIAL.findall(template)) - {BOS})
    words = [word for word in _WORDS if word in template]
    return make_tokenizer_for(template, special, words, adds_bos=adds_bos)


def markers(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The spellings of the tokenizer's special tokens."""
    return [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]


COLUMNS = ("template", "several turns", "because it", "way out", "system text", "writes", "think switch", "tools", "BOS")


def row(name: str, chat: ChatTemplate) -> str:
    """What was found about a template, as a row of the table in docs/chat_templates.md."""
    user, tool = chat.layout.user, chat.layout.tool
    found = {finding.topic: finding for finding in chat.findings}
    _, _, way_out = found["several turns"].consequence.partition("by appending with ")
    writes = [word for topic, word in _WRITES.items() if topic in found]
    listed = "list" if chat.source.takes_tools else ""
    results = "" if tool.problem and tool.problem_with_thoughts else f"results{_limit(tool)}"
    cells = [
        f"`{name}`",
        "split" if user.problem and user.problem_with_thoughts else f"append{_limit(user)}",
        _quoted(user.problem_with_thoughts or user.problem),
        f"`{way_out.removeprefix('template_options=').strip('{}')}`" if way_out else "",
        "folded" if chat.layout.shape.folded else "own role",
        ", ".join(writes) + (", in parts" if chat.layout.shape.parts else ""),
        f"`{chat.source.think_switch}`" if chat.source.think_switch else "",
        ", ".join(filter(None, (listed, results))),
        "written" if found["BOS"].what == "as the template writes it" else "",
    ]
    return "".join(f"| {cell.strip(', ')} " if cell else "| " for cell in cells) + "|"


_WRITES = {"no system text": "a default system text", "preamble": "a preamble", "date": "the date"}


def _limit(turns: Turns) -> str:
    return " with thoughts" if turns.problem else " without thoughts" if turns.problem_with_thoughts else ""


def _quoted(problem: str) -> str:
    return re.sub(r"'([^']*)'", r"`\1`", problem).replace("|", "\\|")
