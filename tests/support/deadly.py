"""Environments that end their process, hang it, or talk where they should not. In a module of their own, for another process."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium

from ragen.environments.text_env import StepAnswer, TextEnv


class Talks(TextEnv):
    """Keeps the contract, but prints whenever it is asked."""

    def _begin(self) -> str:
        print("PRINTED")
        self.instruction = "Say go, three times."
        self.action_names = ("go", "stay")
        self.num_steps = 0
        return f"room {self.np_random.integers(1000)}"

    def _play(self, action: str) -> StepAnswer:
        print("PRINTED")
        self.num_steps += action == "go"
        done = self.num_steps == 3
        return f"went {self.num_steps}", float(done), done, False, {"success": done, "effective": action == "go"}


class Exits(Talks):
    """Ends the process at the third step."""

    def _play(self, action: str) -> StepAnswer:
        if self.num_steps == 2:
            os._exit(7)
        return super()._play(action)


class ExitsWithSuccess(Talks):
    def _play(self, action: str) -> StepAnswer:
        os._exit(0)


class Crashes(Talks):
    """As a fault in compiled code does."""

    def _play(self, action: str) -> StepAnswer:
        os.kill(os.getpid(), signal.SIGSEGV)
        return super()._play(action)


class Interrupts(Talks):
    def _play(self, action: str) -> StepAnswer:
        raise KeyboardInterrupt


class NotEvenAnError(Talks):
    """Raises what no handler of errors catches."""

    def _play(self, action: str) -> StepAnswer:
        raise BaseException("nobody expects this")


class NeverMade(gymnasium.Env[str, int]):
    """Hangs while it is made, which settings are checked by."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        time.sleep(600)


class DiesWhenMade(gymnasium.Env[str, int]):
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        os._exit(3)


class RaisesWhenMade(gymnasium.Env[str, int]):
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int = 3) -> None:
        raise ValueError("no room\nfor that")


class Enormous(Talks):
    """Five million characters a step, and no end."""

    def _play(self, action: str) -> StepAnswer:
        return "x" * 5_000_000, 0.0, False, False, {"success": False, "effective": True}


class Controls(Talks):
    """Would clear the screen, and cannot be encoded."""

    def _play(self, action: str) -> StepAnswer:
        return "\x1b[2J\x00\ud800 end", 0.0, True, False, {"success": False, "effective": True}


class NoConfig(Talks):
    class Config:  # type: ignore[assignment]
        size = 3


class NoArguments(Talks):
    """Its constructor takes no configuration."""

    def __init__(self) -> None:
        self.num_steps = 0


class NumberForText(Talks):
    def _begin(self) -> Any:
        super()._begin()
        return 3


class LeavesEarly(Talks):
    def _begin(self) -> str:
        raise SystemExit("bye")
