"""What an environment answers, checked before anything is made of it: its code may be anybody's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an environment said about one action, with plain Python types; `info` holds its finite numbers only."""

    text: str
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    info: Mapping[str, float]


def read_answer(answer: Any) -> Answer:
    """What `TextEnv.step` answered, checked. Raises TypeError or ValueError for anything the contract does not allow."""
    text, reward, terminated, truncated, info = answer
    if isinstance(reward, bool) or not isinstance(reward, Real) or not math.isfinite(reward):
        raise ValueError(f"the reward must be a finite number, not {reward!r}")
    if not isinstance(info, Mapping):
        raise TypeError(f"info must be a dict, not {info!r}")
    if "success" not in info:
        raise ValueError(f"info must hold 'success', but holds {sorted(map(str, info))}")
    return Answer(
        text=read_text(text),
        reward=float(reward),
        terminated=_read_flag("terminated", terminated),
        truncated=_read_flag("truncated", truncated),
        success=_read_flag("info['success']", info["success"]),
        info={str(key): float(value) for key, value in info.items() if _is_number(value)},
    )


def read_text(text: Any) -> str:
    """An observation or instruction, checked. Raises TypeError, or UnicodeEncodeError for half a surrogate pair."""
    if not isinstance(text, str):
        raise TypeError(f"a text must be a str, not {type(text).__name__}")
    text.encode()  # no tokenizer takes what UTF-8 does not
    return str(text)


def read_names(names: Any) -> tuple[str, ...] | None:
    """The names of the actions, checked; None stands for any text. Raises TypeError."""
    if names is None:
        return None
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"action_names must be a tuple of str, or None, not {names!r}")
    return tuple(map(str, names))


def _read_flag(name: str, flag: Any) -> bool:
    if not isinstance(flag, (bool, np.bool_)):
        raise TypeError(f"{name} must be a bool, not {flag!r}")
    return bool(flag)


def _is_number(value: Any) -> bool:
    return isinstance(value, np.bool_) or (isinstance(value, Real) and math.isfinite(value))
