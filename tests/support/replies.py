"""Reply formats to test with: every grammar beside every way to write actions down."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from ragen.rollout.replies import ReplyFormat

NAMES = ("Up", "Down", "Left", "Right")
NATIVE = ("hermes", "llama3", "mistral")
STRICT = ReplyFormat(max_actions=3)
LENIENT = ReplyFormat(max_actions=3, grammar="lenient")

FORMATS = [
    *(ReplyFormat(grammar=g, think=t, max_actions=n) for g in ("strict", "lenient") for t in (True, False) for n in (1, 4)),
    *(ReplyFormat(grammar="raw", think=False, tools=tools, max_actions=n) for tools in ("", "json") for n in (1, 4)),
    *(
        ReplyFormat(grammar=g, think=t, tools=tools, max_actions=4)
        for g in ("strict", "lenient")
        for t in (True, False)
        for tools in ("json", *NATIVE)
    ),
    ReplyFormat(tools="hermes", max_actions=1),
    ReplyFormat(think_tag="plan", answer_tag="move", action_separator=";", max_actions=4),
]


def label(format: ReplyFormat) -> str:
    """How a test's id names a format."""
    return "-".join((format.grammar, format.tools or "text", "think" if format.think else "plain", str(format.max_actions)))


# Text without the characters that any format writes around it.
WORDS = st.text(string.ascii_letters + string.digits + " .,'+*/()-é漢", min_size=1, max_size=12).map(str.strip).filter(bool)
