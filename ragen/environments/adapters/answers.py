"""What an outside environment answers, read without guessing: a text that looks like a number or a flag is neither.

Everything here raises TypeError naming the part that is wrong. Flags and numbers of NumPy serve as well as Python's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from ragen.environments.spaces import AnyText

_SHOWN_CHARACTERS = 100


def read_start(answer: Any) -> Any:
    """The observation that `reset` answered."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError(f"reset must answer (observation, info), not {_shown(answer)}")
    return answer[0]


def read_step(answer: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
    """Observation (as it is), reward, terminated, truncated and info of what `step` answered."""
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise TypeError(f"step must answer (observation, reward, terminated, truncated, info), not {_shown(answer)}")
    observation, reward, terminated, truncated, info = answer
    if not _is_flag(reward) and not isinstance(reward, Real):
        raise TypeError(f"the reward must be a number, not {_shown(reward)}")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not _is_flag(flag):
            raise TypeError(f"{name} must be a bool, not {_shown(flag)}")
    if not isinstance(info, Mapping):
        raise TypeError(f"info must be a dict, not {_shown(info)}")
    return observation, float(reward), bool(terminated), bool(truncated), info


def read_verdict(name: str, value: Any) -> bool:
    """A flag inside info; many environments write it as a number, which is true unless it is 0."""
    if not _is_flag(value) and not (isinstance(value, Real) and math.isfinite(value)):
        raise TypeError(f"info[{name!r}] must be a bool or a finite number, not {_shown(value)}")
    return bool(value)


def check_observation(space: Space[Any] | None, observation: Any) -> None:
    """Refuses what has no text: nothing at all, or something else where the space promises a text."""
    if isinstance(space, (spaces.Text, AnyText)) and not isinstance(observation, str):
        raise TypeError(f"the observation must be a str, as observation_space says, not {_shown(observation)}")
    if observation is None:
        raise TypeError("the observation must not be None")


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _shown(value: Any) -> str:
    line = " ".join(repr(value).split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}..."
