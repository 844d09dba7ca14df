"""An environment of one's own in thirty lines: guess a hidden number, with a hint after every guess."""

from dataclasses import dataclass

from ragen import ConfigError, StepAnswer, TextEnv, TextEnvConfig, option


@dataclass(kw_only=True)
class GuessNumberConfig(TextEnvConfig):
    highest: int = option(8, "the number lies between 1 and this")

    def check(self) -> None:
        if self.highest < 2:
            raise ConfigError(f"highest={self.highest}: must be at least 2")


class GuessNumber(TextEnv):
    Config = GuessNumberConfig
    config: GuessNumberConfig

    def _begin(self) -> str:
        self.action_names = tuple(str(number) for number in range(1, self.config.highest + 1))
        self.hidden = int(self.np_random.integers(1, self.config.highest + 1))
        self.instruction = f"Guess the hidden number from 1 to {self.config.highest}. The right guess gives a reward of 1."
        return "Your guess?"

    def _play(self, action: str) -> StepAnswer:
        solved = int(action) == self.hidden
        hint = "right" if solved else "too low" if int(action) < self.hidden else "too high"
        return f"{action} is {hint}.", float(solved), solved, False, {"success": solved, "effective": True}

    def oracle_action(self) -> str:
        return str(self.hidden)

    def max_return(self) -> float:
        return 1.0
