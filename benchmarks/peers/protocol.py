"""What the scripts of this folder share: the piece of work comes as a JSON file, the answer goes out as the last line.

They run in environments where the package itself is not installed, so nothing of it is imported here.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

FIRST_ID = 100  # as in ragen/benchmark/work.py


def read_work() -> dict[str, Any]:
    """The piece of work that the first argument names; see ragen/benchmark/work.py for its fields."""
    return json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


def first_turn(exchange: dict[str, Any], repeat: int) -> list[int]:
    """What a conversation reads first in a repeat: its first id is another one each time, so that no cache knows it."""
    return [FIRST_ID + repeat, *exchange["observed"][1:]]


def num_new(work: dict[str, Any]) -> int:
    """Sampled tokens of one repeat."""
    return sum(exchange["num_new"] for conversation in work["conversations"] for exchange in conversation)


def answer(package: str, seconds: list[float], num_tokens: int, **details: Any) -> None:
    """Print the answer. Call it last; the peak of memory is that of the whole process, and of its children if that is more."""
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    result = {
        "package": package,
        "seconds": seconds,
        "num_tokens": num_tokens,
        "peak_bytes": used * (1 if sys.platform == "darwin" else 1024),
        "details": details,
    }
    print("\n" + json.dumps(result), flush=True)
