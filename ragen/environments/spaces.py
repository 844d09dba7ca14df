"""What an agent may write and what it may read: Gymnasium spaces for text.

Gymnasium's own Text space admits only a fixed set of characters, so that a newline, an accent or a grid symbol falls outside it.
A language model reads and writes any text; these two spaces say exactly that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space

_SAMPLE_CHARACTERS = "abc XYZ 019\n.,<>|é→▓漢"


def normalise(name: str) -> str:
    """The form in which action names are compared: white space around it stripped, then case-folded. Nothing else is forgiven."""
    return name.strip().casefold()


def resolve(action: str, names: Sequence[str] | None) -> str | None:
    """The environment's own spelling of `action`, or None if it has no such action. With names=None any text is an action."""
    if names is None:
        return action
    wanted = normalise(action)
    return next((name for name in names if normalise(name) == wanted), None)


class AnyText(Space[str]):
    """Every Python string."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(shape=None, dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """A short text with spaces, line ends and letters outside ASCII. Takes no mask and no probability."""
        if mask is not None or probability is not None:
            raise ValueError("AnyText.sample takes neither mask nor probability")
        length = int(self.np_random.integers(1, 17))
        return "".join(_SAMPLE_CHARACTERS[i] for i in self.np_random.integers(len(_SAMPLE_CHARACTERS), size=length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    def __repr__(self) -> str:
        return "AnyText()"


class NamedActions(Space[str]):
    """A few names, in the order shown. Contains what `resolve` finds: case and outer white space do not matter."""

    def __init__(self, names: Sequence[str], seed: int | np.random.Generator | None = None) -> None:
        """Raises ValueError if a name is empty, carries outer white space, or two names compare equal."""
        if not names or any(not name or name != name.strip() for name in names):
            raise ValueError(f"action names must be non-empty and without white space around them, got {tuple(names)}")
        if len({normalise(name) for name in names}) < len(names):
            raise ValueError(f"action names must differ by more than case, got {tuple(names)}")
        super().__init__(shape=None, dtype=str, seed=seed)
        self.names = tuple(names)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and resolve(x, self.names) is not None

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """One of the names, each as likely as the others. Takes no mask and no probability."""
        if mask is not None or probability is not None:
            raise ValueError("NamedActions.sample takes neither mask nor probability")
        return self.names[int(self.np_random.integers(len(self.names)))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedActions) and other.names == self.names

    def __repr__(self) -> str:
        return f"NamedActions{self.names}"
