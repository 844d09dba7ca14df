"""The bandit with many pulls as an environment. Described in docs/environments/multi_turn_bandit.md."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.environments.bandit.rules import PAIRS
from ragen.environments.multi_turn_bandit.rules import (
    NEUTRAL_NAMES,
    STEADY_RISKY,
    best_arm,
    draw_bernoulli_arms,
    draw_names,
    draw_steady_risky_arms,
    is_mastered,
    pull,
)
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError, near_match

_NAMES = ("neutral", *PAIRS)
_ARMS = ("bernoulli", "steady_risky")
_MAX_PULLS = 1000


@dataclass(kw_only=True)
class MultiTurnBanditConfig(TextEnvConfig):
    num_pulls: int = option(10, f"pulls in an episode, 2 to {_MAX_PULLS}")
    num_arms: int = option(2, f"arms to choose from, 2 to {len(NEUTRAL_NAMES)}")
    arms: str = option("bernoulli", "bernoulli (1 point or nothing, drawn probabilities) or steady_risky (the bandit's two arms)")
    gap: float = option(0.2, "how much more than any other arm the best bernoulli arm pays on average, above 0 and below 1")
    names: str = option("neutral", "neutral (colours), or pairs of the bandit: train, test, phoenix_dragon")

    def check(self) -> None:
        for key, allowed in (("names", _NAMES), ("arms", _ARMS)):
            value = getattr(self, key)
            if value not in allowed:
                raise ConfigError(f"{key}={value!r}: must be one of {', '.join(allowed)}{near_match(value, allowed)}")
        if not 2 <= self.num_pulls <= _MAX_PULLS:
            raise ConfigError(f"num_pulls={self.num_pulls}: must be within 2..{_MAX_PULLS}")
        if not 2 <= self.num_arms <= len(NEUTRAL_NAMES):
            raise ConfigError(f"num_arms={self.num_arms}: must be within 2..{len(NEUTRAL_NAMES)}")
        if not 0.0 < self.gap < 1.0:
            raise ConfigError(f"gap={self.gap}: must be above 0 and below 1")
        if self.num_arms != 2 and self.names != "neutral":
            raise ConfigError(f"num_arms={self.num_arms}: must be 2 with names={self.names!r}, which are pairs")
        if self.num_arms != 2 and self.arms == "steady_risky":
            raise ConfigError(f"num_arms={self.num_arms}: must be 2 with arms='steady_risky'")
        if self.arms == "steady_risky" and self.gap != type(self).gap:
            raise ConfigError(f"gap={self.gap}: has no effect with arms='steady_risky'; leave it out")


class MultiTurnBanditEnv(TextEnv):
    """Pull arms several times and find out which pays best. Success is to prefer it in the end."""

    Config = MultiTurnBanditConfig
    config: MultiTurnBanditConfig

    def _begin(self) -> str:
        config = self.config
        names = draw_names(config.names, config.num_arms, self.np_random)
        if config.arms == "steady_risky":
            self.arms = draw_steady_risky_arms(names, self.np_random)
        else:
            self.arms = draw_bernoulli_arms(names, config.gap, self.np_random)
        self.best = best_arm(self.arms)
        self.pulls: list[str] = []
        self.action_names = tuple(arm.name for arm in self.arms)
        self.instruction = _instruction(self.action_names, config)
        return f"Choose between {_listed(self.action_names)}. {self._pulls_left()}"

    def _play(self, action: str) -> StepAnswer:
        arm = next(arm for arm in self.arms if arm.name == action)
        reward = pull(arm, self.dynamics_random.random())
        self.pulls.append(action)
        info = {
            "success": is_mastered(self.pulls, self.best.name, self.config.num_pulls),
            "effective": True,
            "best_arm": action == self.best.name,
            "regret": self.best.mean - arm.mean,
        }
        terminated = len(self.pulls) == self.config.num_pulls
        return f"{action} paid {_points(reward)}. {self._pulls_left()}", reward, terminated, False, info

    def oracle_action(self) -> str:
        return self.best.name

    def _pulls_left(self) -> str:
        return f"Pulls left: {self.config.num_pulls - len(self.pulls)}."


def _points(value: float) -> str:
    return f"{value:g} point" if value == 1.0 else f"{value:g} points"


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _instruction(names: tuple[str, ...], config: MultiTurnBanditConfig) -> str:
    if config.arms == "bernoulli":
        pays = "Each arm pays 1 point or nothing, each with its own probability."
    else:
        paid = STEADY_RISKY
        pays = (
            f"One arm always pays {_points(paid.low)}, the other pays {_points(paid.high)} with some probability "
            f"and otherwise {_points(paid.miss)}."
        )
        if config.names != "neutral":
            pays += " The name of an arm is a hint."
    num_last = config.num_pulls - config.num_pulls // 2
    last = "the last pull goes" if num_last == 1 else f"more than half of the last {num_last} pulls go"
    return (
        f"You are playing a bandit game with {config.num_pulls} pulls. "
        "Goal: find out which arm pays best on average and pull it.\n"
        f"There are {len(names)} arms, named {_listed(names)}. {pays} This does not change during the game.\n"
        f"The points of a pull are your reward. You succeed if {last} to the arm that pays best on average.\n"
        "To pull an arm, answer with its name."
    )
