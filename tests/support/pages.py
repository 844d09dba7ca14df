"""The written pages, and what stands in their fences."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in one of the languages; "" is a block without one."""
    return [body for language, body in FENCE.findall(page.read_text(encoding="utf-8")) if language in languages]
