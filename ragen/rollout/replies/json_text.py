"""JSON that a model wrote: read in bounded time and depth, every fault by name, nothing raised.

The standard library does the reading; what it accepts beyond JSON (NaN, a key twice), or answers with something else than a
JSONDecodeError (deep nesting, numbers of thousands of digits), is caught here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from ragen.records import Verdict

MAX_LENGTH = 100_000  # characters
MAX_DEPTH = 32
_MAX_DIGITS = 400  # of an integer; no float holds so many

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[\[\]{}]', re.DOTALL)
_SPACE = re.compile(r"\s*+")


class _Fault(Exception):
    """Carries a verdict out of the decoder's hooks."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict


def read_json(text: str, *, separator: str | None = None) -> tuple[list[Any], Verdict]:
    """The JSON values of `text`, at least one, with `separator` between them (None: there is one); or none, and why."""
    if len(text) > MAX_LENGTH:
        return [], Verdict.TOO_LONG
    if _depth(text) > MAX_DEPTH:
        return [], Verdict.TOO_DEEP
    values: list[Any] = []
    position = _behind_space(text, 0)
    try:
        while True:
            value, position = _DECODER.raw_decode(text, position)
            values.append(value)
            position = _behind_space(text, position)
            if position == len(text):
                return values, Verdict.VALID
            if separator is None or not text.startswith(separator, position):
                return [], Verdict.NOT_JSON
            position = _behind_space(text, position + len(separator))
    except json.JSONDecodeError:
        return [], Verdict.NOT_JSON
    except _Fault as fault:
        return [], fault.verdict


def _behind_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _depth(text: str) -> int:
    """How deeply the brackets outside of strings nest."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in "]}":
            depth -= 1
    return deepest


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Fault(Verdict.DUPLICATE_KEY)
    return found


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _Fault(Verdict.BAD_NUMBER)
    return number


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _Fault(Verdict.BAD_NUMBER)
    return int(digits)


def _constant(name: str) -> Any:
    raise _Fault(Verdict.BAD_NUMBER)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_int=_integer, parse_constant=_constant)
