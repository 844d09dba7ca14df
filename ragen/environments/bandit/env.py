"""The bandit as an environment: a thin shell around its rules. Described in docs/environments/bandit.md."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.environments.bandit.rules import PAIRS, Payoffs, deal, pull
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError, near_match


@dataclass(kw_only=True)
class BanditConfig(TextEnvConfig):
    names: str = option("train", "pairs of names: train (12 pairs), test (8 others), phoenix_dragon (the paper's one pair)")
    low_score: float = option(0.15, "points that the steady arm always pays")
    high_score: float = option(1.0, "points that the risky arm sometimes pays")
    high_prob: float = option(0.25, "probability of high_score, 0 to 1")
    miss_score: float = option(0.0, "points that the risky arm pays otherwise")
    reversed: bool = option(False, "the name that sounds steady belongs to the risky arm")

    @property
    def payoffs(self) -> Payoffs:
        return Payoffs(low=self.low_score, high=self.high_score, high_prob=self.high_prob, miss=self.miss_score)

    def check(self) -> None:
        if self.names not in PAIRS:
            raise ConfigError(f"names={self.names!r}: must be one of {', '.join(PAIRS)}{near_match(self.names, PAIRS)}")
        if not 0.0 <= self.high_prob <= 1.0:
            raise ConfigError(f"high_prob={self.high_prob}: must be within 0..1")
        mean = self.payoffs.risky_mean
        if not mean > self.low_score:
            raise ConfigError(f"low_score={self.low_score}: must be below {mean:g}, what the risky arm pays on average")


class BanditEnv(TextEnv):
    """Two arms, a steady one and a risky one; one pull. Success is choosing the risky arm, whatever it paid."""

    Config = BanditConfig
    config: BanditConfig

    def _begin(self) -> str:
        self.arms = deal(PAIRS[self.config.names], reverse=self.config.reversed, random=self.np_random)
        first, second = self.action_names = self.arms.names
        self.instruction = (
            "You are playing a bandit game. Goal: maximize your reward by choosing which arm to pull.\n"
            f"There are 2 arms, named {first} and {second}. Each arm has its own reward distribution, and its name is a hint. "
            "You pull once."
        )
        return f"Choose between {first} and {second}."

    def _play(self, action: str) -> StepAnswer:
        reward = pull(self.arms, action, self.config.payoffs, self.dynamics_random)
        info = {"success": action == self.arms.risky, "effective": True}
        return f"{action}: {reward:g} points", reward, True, False, info

    def oracle_action(self) -> str:
        return self.arms.risky
