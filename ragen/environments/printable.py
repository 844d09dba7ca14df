"""Text of an environment as a terminal and a file can take it: nothing in it moves the cursor, rings or cannot be encoded."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    r"""`text` with control characters but line ends and tabs, and half surrogates, as escapes: `\x1b`, `\x00`, `\ud800`."""
    return "".join(_escaped(char) if unicodedata.category(char) in ("Cc", "Cs") else char for char in text)


def _escaped(char: str) -> str:
    return char if char in "\n\t" else char.encode("unicode_escape", "surrogatepass").decode("ascii")
