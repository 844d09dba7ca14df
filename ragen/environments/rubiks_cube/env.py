"""The 2x2x2 cube as an environment: a thin shell around its rules. Described in docs/environments/rubiks_cube.md."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.environments.rubiks_cube import rules, solver
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError


@dataclass(kw_only=True)
class RubiksCubeConfig(TextEnvConfig):
    scramble_depth: int = option(3, "turns that the shortest solution takes, 1 to 14, or to 11 with half_turns")
    half_turns: bool = option(False, "half turns (U2) are actions too and count as one turn")
    step_penalty: float = option(0.0, "subtracted from the reward of every action, at least 0")

    def check(self) -> None:
        farthest = solver.MAX_DISTANCE[self.half_turns]
        if not 1 <= self.scramble_depth <= farthest:
            count = "turns" if self.half_turns else "quarter turns"
            raise ConfigError(
                f"scramble_depth={self.scramble_depth}: must be within 1..{farthest}; {farthest} {count} solve any cube"
            )
        if self.step_penalty < 0.0:
            raise ConfigError(f"step_penalty={self.step_penalty}: must be at least 0")


class RubiksCubeEnv(TextEnv):
    """Turn the faces of a cube until each shows one colour."""

    Config = RubiksCubeConfig
    config: RubiksCubeConfig

    def _begin(self) -> str:
        self.action_names = rules.ALL_TURNS if self.config.half_turns else rules.QUARTER_TURNS
        self.cube = solver.draw(self.config.scramble_depth, self.np_random, half_turns=self.config.half_turns)
        self.instruction = self._write_instruction()
        return rules.show(self.cube)

    def _play(self, action: str) -> StepAnswer:
        self.cube = rules.turn(self.cube, action)
        solved = rules.is_solved(self.cube)
        text = f"The cube is solved.\n{rules.show(self.cube)}" if solved else rules.show(self.cube)
        return text, float(solved) - self.config.step_penalty, solved, False, {"success": solved, "effective": True}

    def oracle_action(self) -> str | None:
        """The first turn of a shortest solution from here; None once the cube is solved."""
        return solver.best_turn(self.cube, self.action_names or (), half_turns=self.config.half_turns)

    def max_return(self) -> float:
        """What a shortest solution from the start earns."""
        return 1.0 - self.config.scramble_depth * self.config.step_penalty

    def _write_instruction(self) -> str:
        half = " A 2 after it turns it by half." if self.config.half_turns else ""
        penalty = f" Every action costs {self.config.step_penalty:g}." if self.config.step_penalty else ""
        return (
            "You are solving a 2x2x2 Rubik's cube. Goal: every face shows one colour. "
            "It does not matter which face has which colour. Reaching the goal ends the episode with success.\n"
            "Faces: U (up), L (left), F (front), R (right), B (back), D (down). "
            "Colours: W white, O orange, G green, R red, B blue, Y yellow.\n"
            "Each line shows one face as seen from outside: upper row / lower row. "
            "The faces L, F, R, B stand side by side in a ring, with U above and D below. "
            "On U and D the row nearest to F is the lower row of U and the upper row of D.\n"
            f"Actions: {', '.join(self.action_names or ())}. "
            "A letter alone turns that face clockwise by a quarter, as seen from outside. "
            f"A ' after it turns it counter-clockwise.{half}\n"
            f"The reward is 1 for solving the cube and 0 before.{penalty}"
        )
