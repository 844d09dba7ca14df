"""Environments that each break one promise of the contract, or keep it in an unusual way. Built on the corridor.

In a module of their own, so that they can be pickled and imported by another process.
"""

from __future__ import annotations

import random
import sys
import threading
from typing import Any, ClassVar

import numpy as np
import torch

from ragen.environments.text_env import StepAnswer, TextEnv
from tests.support.corridor import NUM_CELLS, Corridor


class Steady(Corridor):
    """A corridor that keeps every promise: the start follows from the seed, the return is known, no limit of its own."""

    def __init__(self, config: Any = None, *, render_mode: str | None = None) -> None:
        super().__init__(config)
        self.render_mode = render_mode

    def _begin(self) -> str:
        super()._begin()
        self.cell = int(self.np_random.integers(NUM_CELLS - 1))
        return self._render()  # type: ignore[no-any-return]

    def _play(self, action: str) -> StepAnswer:
        self.num_steps = 0  # so that the corridor's own limit is never reached
        return super()._play(action)

    def max_return(self) -> float | None:
        return 1.0 - 0.1 * (NUM_CELLS - 2 - self.cell)


class Lost(Steady):
    """Keeps every promise; it has no oracle."""

    def oracle_action(self) -> None:  # type: ignore[override]
        return None


class EmptyInstruction(Steady):
    def _begin(self) -> str:
        observation = super()._begin()
        self.instruction = " "
        return observation


class FourParts(Steady):
    """Answers as Gym did before 0.26."""

    def _play(self, action: str) -> Any:
        return super()._play(action)[:4]

    def step(self, action: str) -> Any:
        return self._play(action)


class NumpyReward(Steady):
    def _play(self, action: str) -> StepAnswer:
        observation, reward, terminated, truncated, info = super()._play(action)
        return observation, np.float64(reward), terminated, truncated, info


class InfiniteInfo(Steady):
    def _play(self, action: str) -> StepAnswer:
        observation, reward, terminated, truncated, info = super()._play(action)
        return observation, reward, terminated, truncated, {**info, "distance": float("inf")}


class NumberForSuccess(Steady):
    def _play(self, action: str) -> StepAnswer:
        observation, reward, terminated, truncated, info = super()._play(action)
        return observation, reward, terminated, truncated, {**info, "success": int(info["success"])}


class SolvedAndCut(Steady):
    """Says truncated where it should say terminated."""

    def _play(self, action: str) -> StepAnswer:
        observation, reward, terminated, _, info = super()._play(action)
        return observation, reward, False, terminated, info


class Separator(Steady):
    action_names = ("Left", "Right", "Left || Right")


class CaseTwins(Steady):
    action_names = ("Left", "Right", "left")


class ChangingNames(Steady):
    def _play(self, action: str) -> StepAnswer:
        answer = super()._play(action)
        self.action_names = ("Left", "Right", "Jump")
        return answer


class Unseeded(Steady):
    def _begin(self) -> str:
        return f"{super()._begin()} {np.random.default_rng().integers(10**9)}"


class UnseededSteps(Steady):
    def _play(self, action: str) -> StepAnswer:
        observation, reward, terminated, truncated, info = super()._play(action)
        return observation, reward + float(np.random.default_rng().random()), terminated, truncated, info


class Forgetful(Steady):
    """Remembers the episodes before."""

    num_episodes = 0

    def _begin(self) -> str:
        self.num_episodes += 1
        return f"{super()._begin()} episode {self.num_episodes}"


class Sharing(Steady):
    """Its copies count their episodes together."""

    counter: ClassVar[list[int]] = []

    def _begin(self) -> str:
        self.counter.append(1)
        return f"{super()._begin()} episode {len(self.counter)}"


class IgnoredSeed(Steady):
    def _begin(self) -> str:
        self.np_random = np.random.default_rng(0)
        return super()._begin()


class DrawnForNothing(Corridor):
    """Draws a start and does not use it."""

    def __init__(self, config: Any = None, *, render_mode: str | None = None) -> None:
        super().__init__(config)
        self.render_mode = render_mode

    def _play(self, action: str) -> StepAnswer:
        self.num_steps = 0
        return super()._play(action)


class OneStart(DrawnForNothing):
    def _begin(self) -> str:
        state = self.np_random.bit_generator.state
        observation = super()._begin()
        self.np_random.bit_generator.state = state
        return observation


class HiddenStart(Steady):
    """The first prompt does not show where the walk begins."""

    def _begin(self) -> str:
        super()._begin()
        return "somewhere"


class DynamicsInPrompt(Steady):
    """The dynamics stream also draws the prompt, so that members of a group read different ones."""

    def _begin(self) -> str:
        return f"{super()._begin()} {self.dynamics_random.integers(10**6)}"


class GlobalNumpy(Steady):
    def _begin(self) -> str:
        np.random.seed(4321)
        return super()._begin()


class GlobalRandom(Steady):
    def _play(self, action: str) -> StepAnswer:
        random.random()
        return super()._play(action)


class GlobalStart(Steady):
    """Draws its start where no seed reaches."""

    def _begin(self) -> str:
        observation = super()._begin()
        return f"{observation} {random.random()} {np.random.rand()}"


class GlobalTorch(Steady):
    def _begin(self) -> str:
        torch.rand(1)
        return super()._begin()


class OrderOfASet(Steady):
    """The same in every copy, another in every process."""

    def _begin(self) -> str:
        return f"{super()._begin()} {' '.join({'north', 'east', 'south', 'west', 'up', 'down'})}"


class Endless(Steady):
    """Plays on after the end."""

    def step(self, action: str) -> StepAnswer:
        answer = super().step(action)
        self._in_episode = True
        return answer


class Eager(Steady):
    """Plays before the first reset."""

    def __init__(self, config: Any = None, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)
        self.reset()


class ClosedTwice(Steady):
    is_closed = False

    def close(self) -> None:
        super().close()
        if self.is_closed:
            raise OSError("already closed")
        self.is_closed = True


class Handle(Steady):
    """Holds what cannot be pickled."""

    def __init__(self, config: Any = None, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)
        self.lock = threading.Lock()


class CopiedByReference(Steady):
    def __deepcopy__(self, memo: dict[int, Any]) -> CopiedByReference:
        return self


class NumberForPicture(Steady):
    def render(self) -> Any:
        return 3


class WrongMaximum(Steady):
    def max_return(self) -> float:
        return 1.0


class Detour(Steady):
    """Its oracle turns back once, so that it scores less than the maximum."""

    def _begin(self) -> str:
        self.turned = False
        return super()._begin()

    def oracle_action(self) -> str:
        return "Right" if self.turned else "Left"

    def _play(self, action: str) -> StepAnswer:
        self.turned = True
        return super()._play(action)


class Dawdler(Steady):
    """Its oracle never arrives."""

    def oracle_action(self) -> str:
        return "Left"


class Misspelt(Steady):
    def oracle_action(self) -> str:
        return "Rigth"


class Clueless(Steady):
    """Its oracle knows no action from some starts."""

    def oracle_action(self) -> str | None:  # type: ignore[override]
        return None if self.start == 2 else "Right"

    def _begin(self) -> str:
        observation = super()._begin()
        self.start = self.cell
        return observation


class WorseThanChance(Dawdler):
    """Nobody knows the maximum, but the oracle is no oracle."""

    def max_return(self) -> None:
        return None


class StuckAfterAMistake(Steady):
    """Its oracle can follow its own path only."""

    def oracle_action(self) -> str:
        if self.path_left and self.path_left[0] != self.cell:
            raise LookupError("off the path")
        return "Right"

    def _begin(self) -> str:
        observation = super()._begin()
        self.path_left = list(range(self.cell, NUM_CELLS))
        return observation

    def _play(self, action: str) -> StepAnswer:
        self.path_left = self.path_left[1:]
        return super()._play(action)


class Exits(Steady):
    def _play(self, action: str) -> StepAnswer:
        sys.exit("enough")


class Hangs(Steady):
    """Never answers a step. The wait is let go of when the process ends."""

    def _play(self, action: str) -> StepAnswer:
        threading.Event().wait()
        raise AssertionError


class HangsInReset(Steady):
    def _begin(self) -> str:
        threading.Event().wait()
        raise AssertionError


class Calculator(TextEnv):
    """Any text is an action; this one is fit for every text."""

    def __init__(self, config: Any = None, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)

    def _begin(self) -> str:
        self.number = int(self.np_random.integers(100))
        self.instruction = "Say the number that comes next."
        return str(self.number)

    def _play(self, action: str) -> StepAnswer:
        right = self._read(action) == self.number + 1
        return ("right" if right else "wrong"), float(right), right, False, {"success": right, "effective": right}

    def _read(self, action: str) -> int | None:
        return int(action) if action.isascii() and action.isdigit() and len(action) < 10 else None

    def oracle_action(self) -> str:
        return str(self.number + 1)

    def max_return(self) -> float:
        return 1.0


class Trusting(Calculator):
    """Takes every text for a number."""

    def _read(self, action: str) -> int | None:
        return int(action)


class Echo(Calculator):
    """Shows what was said, however long."""

    def _play(self, action: str) -> StepAnswer:
        _, *rest = super()._play(action)
        return f"you said {action}", *rest  # type: ignore[return-value]
