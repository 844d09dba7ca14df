"""How the groups of a step are shared out among the environments, from how often each of them was solved.

Difficulty levels are environments under different tags. Training draws every initial state once, so there is no state whose
earlier success rate could decide; what can be known is how a tag fares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.errors import ConfigError, near_match
from ragen.records import Group

FIXED, BALANCE = "fixed", "balance"
RULES = (FIXED, BALANCE)
KEY = "rollout.curriculum"
STATE = "curriculum"


@dataclass(kw_only=True)
class CurriculumConfig:
    """How many of a step's groups each environment gets; their sum is always that of `num_groups`."""

    rule: str = FIXED  # fixed: num_groups of each environment; balance: more of those solved about every second time
    memory: float = 0.8  # how much of what was seen before a step still counts after it, in [0, 1)
    min_groups: int = 1  # groups that every environment gets in every step, so that what is known of it stays fresh

    def check(self) -> None:
        """Raise ConfigError for a value out of range or without effect."""
        if self.rule not in RULES:
            raise ConfigError(f"{KEY}.rule={self.rule!r}: must be one of {', '.join(RULES)}{near_match(self.rule, RULES)}")
        if not 0 <= self.memory < 1:
            raise ConfigError(f"{KEY}.memory={self.memory}: must lie in [0, 1)")
        if self.min_groups < 1:
            raise ConfigError(f"{KEY}.min_groups={self.min_groups}: must be at least 1")
        for key in ("memory", "min_groups"):
            value = getattr(self, key)
            if self.rule == FIXED and value != getattr(CurriculumConfig(), key):
                raise ConfigError(
                    f"{KEY}.{key}={value}: has no effect with {KEY}.rule={FIXED}; set rule={BALANCE} or leave it out"
                )


class Curriculum:
    """Deterministic: what a step gets is a function of the configuration and of the groups told to `learn` before it."""

    def __init__(self, config: CurriculumConfig, num_groups: Mapping[str, int]) -> None:
        """`num_groups` as configured, by tag. Raises ConfigError if they leave nothing to share out."""
        config.check()
        if config.rule == BALANCE:
            if len(num_groups) < 2:
                raise ConfigError(f"{KEY}.rule={BALANCE}: needs at least two environments to choose between")
            if config.min_groups * len(num_groups) >= sum(num_groups.values()):
                raise ConfigError(
                    f"{KEY}.min_groups={config.min_groups}: leaves nothing to share out: {len(num_groups)} environments, "
                    f"{sum(num_groups.values())} groups a step"
                )
        self._config = config
        self._planned = dict(num_groups)
        self._seen = dict.fromkeys(num_groups, (0.0, 0.0))  # successes and trajectories, older ones counting less

    def num_groups(self) -> dict[str, int]:
        """Groups of the next step by tag, in the order of configuration."""
        if self._config.rule == FIXED:
            return dict(self._planned)
        weights = {tag: rate * (1 - rate) for tag, rate in self.success_rates().items()}
        return share_out(sum(self._planned.values()), weights, minimum=self._config.min_groups)

    def success_rates(self) -> dict[str, float]:
        """(successes + 1) / (trajectories + 2) by tag: 1/2 for one that has never been played, never 0 or 1."""
        return {tag: (successes + 1) / (total + 2) for tag, (successes, total) in self._seen.items()}

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """Take in a step. Lost trajectories count neither way. Returns metrics; none if nothing is chosen."""
        if self._config.rule == FIXED:
            return {}
        metrics = {f"curriculum/{tag}/num_groups": float(count) for tag, count in self.num_groups().items()}
        metrics |= {f"curriculum/{tag}/success": rate for tag, rate in self.success_rates().items()}
        played = [trajectory for group in groups for trajectory in (*group.trajectories, *group.abstained)]
        for tag, (successes, total) in self._seen.items():
            outcomes = [trajectory.success for trajectory in played if trajectory.key.environment == tag]
            memory = self._config.memory
            self._seen[tag] = (memory * successes + sum(outcomes), memory * total + len(outcomes))
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on, as JSON; empty without a curriculum."""
        return {} if self._config.rule == FIXED else {STATE: {tag: list(seen) for tag, seen in self._seen.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` stood; from nothing seen, if it is of a run that had no curriculum."""
        for tag, (successes, total) in state.get(STATE, {}).items():
            self._seen[tag] = (float(successes), float(total))


def share_out(total: int, weights: Mapping[str, float], *, minimum: int) -> dict[str, int]:
    """`total` in whole numbers by weight: `minimum` each, the rest in proportion, what is left over to the largest remainders.

    Of equal remainders, the one that stands first. Weights are above 0.
    """
    rest = total - minimum * len(weights)
    shares = {tag: rest * weight / sum(weights.values()) for tag, weight in weights.items()}
    counts = {tag: minimum + int(share) for tag, share in shares.items()}
    by_remainder = sorted(shares, key=lambda tag: int(shares[tag]) - shares[tag])
    for tag in by_remainder[: total - sum(counts.values())]:
        counts[tag] += 1
    return counts
