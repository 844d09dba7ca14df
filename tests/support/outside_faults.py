"""Gymnasium environments with a fault, as others write them: nothing in here knows of RAGEN."""

from __future__ import annotations

import threading
import typing
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

released = threading.Event()  # what the class that hangs waits for


class Echo(gymnasium.Env[Any, Any]):
    """Say left or right. The next answers of reset and step are set by the tests."""

    observation_space: gymnasium.Space[Any] = spaces.Text(100)
    action_space: gymnasium.Space[Any] = spaces.Discrete(2)
    start: ClassVar[Any] = ("hello", {})
    answer: ClassVar[Any] = ("x", 1.0, True, False, {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.start

    def step(self, action: Any) -> Any:
        return self.answer


class Hanging(Echo):
    """Its constructor waits for ever."""

    def __init__(self) -> None:
        released.wait()


class Slow(Echo):
    """Its constructor takes a while."""

    def __init__(self) -> None:
        released.wait(0.2)


class Interrupted(Echo):
    """Its constructor raises what no `except Exception` sees."""

    def __init__(self) -> None:
        raise KeyboardInterrupt


def hanging(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """A Hanging, for Gymnasium's registry."""
    return Hanging()


class Annotated(Echo):
    """Arguments of every kind."""

    def __init__(  # type: ignore[no-untyped-def]  # one argument says nothing of its type
        self,
        items: typing.List = [1],  # type: ignore[type-arg]  # noqa: B006, UP006
        table: dict = {},  # type: ignore[type-arg]  # noqa: B006
        mode: Literal["easy", "hard"] = "easy",
        size: int | tuple[int, int] = (3, 4),
        weights: np.ndarray | None = None,
        anything=None,
    ) -> None:
        self.items, self.mode, self.size, self.weights, self.anything = items, mode, size, weights, anything


class NeedsATuple(Echo):
    """Cannot be made from a command line."""

    def __init__(self, pair: tuple[int, int]) -> None:
        self.pair = pair


class Numbered(Echo):
    """As many actions as asked for."""

    def __init__(self, num_actions: int) -> None:
        self.action_space = spaces.Discrete(num_actions)


class Named(Echo):
    """The names of its actions are whatever a test sets."""

    action_names: ClassVar[Any] = ("left", "right")
