"""The Tower of Hanoi as an environment: a thin shell around its rules. Described in docs/environments/hanoi.md."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.environments.hanoi.oracle import best_move
from ragen.environments.hanoi.rules import PEGS, State, all_moves, draw_state, move_name, play, show, tower, why_not
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError, near_match

_PLACES = ("standard", "random")
_MAX_DISKS = 9
_MAX_STATES = 20_000  # the oracle looks at all of them


@dataclass(kw_only=True)
class HanoiConfig(TextEnvConfig):
    num_disks: int = option(3, f"disks, 1 to {_MAX_DISKS}")
    num_pegs: int = option(3, f"pegs, 3 to {len(PEGS)}; num_pegs ** num_disks may be {_MAX_STATES} at most")
    start: str = option("random", "standard (all disks on the first peg) or random (anywhere but the goal)")
    goal: str = option("standard", "standard (all disks on the last peg) or random (anywhere but the start)")

    def check(self) -> None:
        for key in ("start", "goal"):
            value = getattr(self, key)
            if value not in _PLACES:
                raise ConfigError(f"{key}={value!r}: must be one of {', '.join(_PLACES)}{near_match(value, _PLACES)}")
        if not 1 <= self.num_disks <= _MAX_DISKS:
            raise ConfigError(f"num_disks={self.num_disks}: must be within 1..{_MAX_DISKS}")
        if not 3 <= self.num_pegs <= len(PEGS):
            raise ConfigError(f"num_pegs={self.num_pegs}: must be within 3..{len(PEGS)}")
        if (num_states := self.num_pegs**self.num_disks) > _MAX_STATES:
            most = max(n for n in range(1, _MAX_DISKS + 1) if self.num_pegs**n <= _MAX_STATES)
            raise ConfigError(
                f"num_disks={self.num_disks}: must be at most {most} with num_pegs={self.num_pegs}, not {num_states} positions"
            )


class HanoiEnv(TextEnv):
    """Move a tower of disks from peg to peg, never a larger disk onto a smaller one. Success is the goal position."""

    Config = HanoiConfig
    config: HanoiConfig

    def __init__(self, config: HanoiConfig | None = None, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)
        self._moves = {move_name(move): move for move in all_moves(self.config.num_pegs)}
        self.action_names = tuple(self._moves)

    def _begin(self) -> str:
        config = self.config
        first, last = tower(config.num_disks, 0), tower(config.num_disks, config.num_pegs - 1)
        while True:  # one draw in num_pegs ** num_disks, at most one in three, is drawn again
            self.state = first if config.start == "standard" else self._draw()
            self.goal = last if config.goal == "standard" else self._draw()
            if self.state != self.goal:
                break
        self.instruction = _instruction(self.goal, config)
        return show(self.state, config.num_pegs)

    def _play(self, action: str) -> StepAnswer:
        move = self._moves[action]
        after = play(self.state, move)
        if after is None:
            observation = f"Not allowed: {why_not(self.state, move)}.\n{show(self.state, self.config.num_pegs)}"
            return observation, 0.0, False, False, {"success": False, "effective": False}
        self.state = after
        success = after == self.goal
        return show(after, self.config.num_pegs), float(success), success, False, {"success": success, "effective": True}

    def oracle_action(self) -> str | None:
        move = best_move(self.state, self.goal, self.config.num_pegs)
        return None if move is None else move_name(move)

    def max_return(self) -> float:
        return 1.0

    def _draw(self) -> State:
        return draw_state(self.config.num_disks, self.config.num_pegs, self.np_random)


def _instruction(goal: State, config: HanoiConfig) -> str:
    pegs = PEGS[: config.num_pegs]
    if config.goal == "standard":
        wanted = f"move all disks to peg {pegs[-1]}."
    else:
        wanted = f"reach this position:\n{show(goal, config.num_pegs)}"
    sizes = (
        "There is one disk, 1."
        if config.num_disks == 1
        else (f"There are {config.num_disks} disks: 1 is the smallest, {config.num_disks} the largest.")
    )
    return (
        f"You are playing the Tower of Hanoi. Goal: {wanted}\n"
        f"The pegs are {', '.join(pegs)}. {sizes} Each line shows the disks on a peg from the bottom to the top.\n"
        "A move takes the top disk of one peg and puts it on another. A disk may lie on a larger disk or on an empty peg, "
        "never on a smaller disk; a move that is not allowed changes nothing.\n"
        "Reaching the goal is success and gives reward 1. Any other move gives reward 0.\n"
        f'Actions: "A to B" moves the top disk of peg A to peg B, and so on for any two of the pegs.'
    )
