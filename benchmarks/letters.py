"""A task that a model of random weights can learn in a minute: every text is an answer, and what pays is a letter in it."""

from __future__ import annotations

from dataclasses import dataclass

from ragen import StepAnswer, TextEnv, TextEnvConfig, option


@dataclass(kw_only=True)
class LettersConfig(TextEnvConfig):
    letters: str = option("eo", "one of these is asked for, drawn by the task seed")
    turns: int = option(3, "answers in an episode")


class Letters(TextEnv):
    """Each of a few turns pays the share of one letter in the answer; the task is solved when the last answer has a third."""

    Config = LettersConfig
    config: LettersConfig

    def _begin(self) -> str:
        self.letter = str(self.np_random.choice(list(self.config.letters)))
        self.turns = 0
        self.instruction = f"Write the letter {self.letter} often. Its share of your answer is the reward."
        return f"{self.letter}?"

    def _play(self, action: str) -> StepAnswer:
        self.turns += 1
        share = action.count(self.letter) / max(1, len(action))
        ended = self.turns == self.config.turns
        return f"{share:.1f}", share, ended, False, {"success": ended and share >= 1 / 3, "effective": True}
