"""Gymnasium environments as others write them: nothing in here knows of RAGEN."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import Autoreset, TimeLimit


class GuessNumber(gymnasium.Env[str, str]):
    """Guess the hidden number. Reply with digits."""

    observation_space = spaces.Text(200)
    action_space = spaces.Text(20)

    def __init__(self, high: int, hints: bool = True, greetings: list[str] = ["Hello."]) -> None:  # noqa: B006
        self.high, self.hints, self.greetings = high, hints, greetings

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(1, self.high + 1))
        return f"{self.greetings[0]} From 1 to {self.high}.", {}

    def step(self, action: str) -> tuple[str, Any, Any, Any, dict[str, Any]]:
        if not action.isdecimal():
            return "That is no number.", 0, False, False, {"effective": False}
        found = int(action) == self.number
        hint = "Too low." if int(action) < self.number else "Too high."
        answer = "Yes." if found else hint if self.hints else "No."
        return answer, np.float64(found), np.bool_(found), np.bool_(False), {"guess": np.int64(action), "note": "x"}


class Drift(gymnasium.Env[Any, Any]):
    """Reach position 3. A step to the right fails by chance."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    observation_space = spaces.Dict({"position": spaces.Discrete(4), "wind": spaces.Box(-1, 1, (2,), np.float32)})
    action_space = spaces.Discrete(2, start=5)
    action_names = ("left", "right")
    instruction = "Walk to position 3."

    def __init__(self, slip: float = 0.5, name: str | None = None, check_flags: bool = False, render_mode: str | None = None):
        self.slip, self.name, self.check_flags, self.render_mode = slip, name, check_flags, render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.num_steps = int(self.np_random.integers(2)), 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.num_steps += 1
        if action == 5:
            self.position = max(0, self.position - 1)
        elif self.np_random.random() >= self.slip:
            self.position += 1
        done = self.position == 3
        return self._see(), int(done), done, self.num_steps == 3, {"is_success": np.bool_(done)}

    def render(self) -> str:
        return "." * self.position + "\x1b[32;1mP\x1b[0m" + "." * (3 - self.position)

    def _see(self) -> dict[str, Any]:
        return {"position": np.int64(self.position), "wind": np.array([0.25, -0.0], dtype=np.float32)}


class Steering(gymnasium.Env[Any, Any]):
    """A wheel: its actions are no names."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Shadowing(GuessNumber):
    """Its constructor claims the names of two of our options."""

    def __init__(self, instruction: str, observation: int = 3) -> None:
        super().__init__(high=observation)
        self.instruction = f"Said by the constructor: {instruction}"


class Checked(GuessNumber):
    """Its constructor has an argument that no option can be called."""

    def __init__(self, check: int = 3) -> None:
        super().__init__(high=check)


class Undocumented(GuessNumber):
    def __init__(self, *args: Any, high: int = 3, **kwargs: Any) -> None:
        super().__init__(high)


def nested_limits(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """A Drift that brings a limit of two steps of its own."""
    return TimeLimit(Drift(slip=1.0, **kwargs), max_episode_steps=2)


def restarting(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """A Drift whose step after the end begins the next episode."""
    return Autoreset(Drift(slip=0.0, **kwargs))


class FailsToBegin(GuessNumber):
    """Its constructor raises."""

    def __init__(self, lines: int = 0) -> None:
        super().__init__(high=int([][lines]))


class Lowercase(GuessNumber):
    """Takes lower-case letters only."""

    action_space = spaces.Text(5, charset="abcdefghijklmnopqrstuvwxyz")

    def __init__(self) -> None:
        super().__init__(high=3)
