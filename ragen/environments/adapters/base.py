"""What all adapters share: the seed that an outside environment starts from, and the rule that says when it was solved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen.environments.adapters.answers import read_verdict
from ragen.environments.text_env import TextEnv

_SUCCESS_KEYS = ("success", "is_success")
_SEED_LIMIT = 2**31  # NumPy's legacy generators and everything written in C take no larger seed


class Adapter(TextEnv):
    """A TextEnv around an environment that takes its own seed in its own reset."""

    _given_seed: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._given_seed = seed
        return super().reset(seed=seed, options=options)

    def _draw_start_seed(self) -> int:
        """The seed for the outside environment's reset, 0 <= seed < 2**31: the task seed itself if it is that small.

        A larger task seed is hashed into the range; without one the seed comes from `np_random`. For `_begin` alone.
        """
        if self._given_seed is None:
            return int(self.np_random.integers(_SEED_LIMIT))
        if self._given_seed < _SEED_LIMIT:
            return self._given_seed
        return int(np.random.SeedSequence(self._given_seed).generate_state(1)[0] >> 1)


@dataclass(frozen=True, kw_only=True)
class SuccessRule:
    """When an outside environment counts as solved. `holds` is asked after every step.

    With a `key`: whenever info[key] is there and true. With a `threshold`: once the episode has ended, however it ended, with a
    return of at least that. With neither: info["success"] or info["is_success"] if there, else `terminated` and a return above 0.
    Raises TypeError if what is there is neither a flag nor a number.
    """

    key: str | None = None
    threshold: float | None = None

    def holds(self, info: Mapping[str, Any], *, terminated: bool, truncated: bool, episode_return: float) -> bool:
        if self.key is not None:
            said = info.get(self.key)
            return said is not None and read_verdict(self.key, said)
        if self.threshold is not None:
            return (terminated or truncated) and episode_return >= self.threshold
        key = next((key for key in _SUCCESS_KEYS if info.get(key) is not None), None)
        return terminated and episode_return > 0 if key is None else read_verdict(key, info[key])


def plain_numbers(info: Mapping[str, Any]) -> dict[str, bool | int | float]:
    """The finite numbers and flags of `info` as plain Python types; everything else is left out."""
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in info.items() if isinstance(key, str)}
    return {key: value for key, value in plain.items() if isinstance(value, (bool, int, float)) and math.isfinite(value)}
