"""Observations of any kind as text that a language model reads. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

_MAX_ELEMENTS = 1024  # of an array that is written out; a 32 x 32 board still is, a picture is not
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_COLOURED = re.compile(r"\x1b\[([\d;]+)m(.*?)\x1b\[0?m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[\d;?]*[ -/]*[@-~]")
_SECTIONS_FOR_AGENTS = ("description", "action space", "observation space", "rewards", "episode end")


def as_text(value: Any) -> str:
    """A value of any Gymnasium space as text: a str as it is, numbers to four digits, a dict one key a line, rows by rows.

    An array of more than 1024 elements is only described, since a picture written out in numbers tells a reader nothing.
    Raises TypeError for what lies in no space of Gymnasium.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, Mapping):
        return "\n".join(_entry(str(key), as_text(item)) for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        has_parts = any(isinstance(item, (Sequence, Mapping)) and not isinstance(item, str) for item in value)
        return ("\n" if has_parts else ", ").join(map(as_text, value))
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        return f"{float(value) + 0.0:.4g}"  # -0.0 + 0.0 is 0.0
    if value is None or isinstance(value, (Number, np.generic)):
        return str(value)
    raise TypeError(f"an observation is made of texts, numbers, arrays, dicts and sequences, not of {type(value).__name__}")


def _entry(key: str, text: str) -> str:
    return f"{key}:\n{text}" if "\n" in text else f"{key}: {text}"


def _array(array: np.typing.NDArray[Any]) -> str:
    if array.size > _MAX_ELEMENTS:
        return f"array of shape {' x '.join(map(str, array.shape))}, values {_scalar(array.min())} to {_scalar(array.max())}"
    if array.ndim == 0:
        return as_text(array.item())
    if array.ndim == 1:
        return " ".join(_scalar(item) for item in array)
    return ("\n" if array.ndim == 2 else "\n\n").join(_array(part) for part in array)


def plain_ansi(text: str) -> str:
    """Terminal output without escape codes: a coloured `X` becomes `[red:X]`, since colour is often all that marks the player."""
    return _ESCAPE.sub("", _COLOURED.sub(_name_colour, text)).strip("\n")


def _name_colour(match: re.Match[str]) -> str:
    codes = [int(code) for code in match[1].split(";") if code]
    names = [_COLOURS[code % 10] for code in codes if code // 10 in (3, 4) and code % 10 < len(_COLOURS)]
    return f"[{names[0]}:{match[2]}]" if names else match[2]


def sections_for_agents(doc: str) -> str:
    """Of a docstring in Gymnasium's form what a player needs: its first lines, and how to act, see, score and finish.

    Sections for programmers (arguments, version history, references) are dropped; a docstring without sections stays whole.
    """
    head, *sections = re.split(r"(?m)^[ \t]*##[ \t]+", doc)
    kept = [head.strip()]
    for section in sections:
        title, _, body = section.partition("\n")
        if title.strip().lower() in _SECTIONS_FOR_AGENTS:
            kept.append(f"{title.strip()}:\n{body.strip()}")
    return "\n".join(part for part in kept if part)
