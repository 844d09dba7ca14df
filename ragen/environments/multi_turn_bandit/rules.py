"""The rules of the bandit with many pulls, as pure functions: which arms there are, what they pay, when it is mastered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragen.environments.bandit.rules import PAIRS, Payoffs

# Words without a hint of what they might pay, all of them short and in any model's vocabulary.
NEUTRAL_NAMES = ("Red", "Blue", "Green", "Yellow", "Purple", "Orange", "Pink", "Brown", "Gray", "White")
STEADY_RISKY = Payoffs(low=0.15, high=1.0, high_prob=0.25, miss=0.0)  # the two arms of the RAGEN paper


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Pays `high` points with probability `prob`, else `low`."""

    name: str
    prob: float
    high: float = 1.0
    low: float = 0.0

    @property
    def mean(self) -> float:
        """Points per pull in the long run."""
        return self.prob * self.high + (1.0 - self.prob) * self.low


Arms = tuple[Arm, ...]  # in the order shown


def draw_names(names: str, num_arms: int, random: np.random.Generator) -> tuple[str, ...]:
    """`num_arms` different names from the neutral ones, or one pair (steady, risky) from a list of the bandit's."""
    if names == "neutral":
        return tuple(NEUTRAL_NAMES[i] for i in random.permutation(len(NEUTRAL_NAMES))[:num_arms].tolist())
    pairs = PAIRS[names]
    return pairs[int(random.integers(len(pairs)))]


def draw_bernoulli_arms(names: Sequence[str], gap: float, random: np.random.Generator) -> Arms:
    """Arms that pay 1 or nothing. The best mean is uniform over gap..1, every other one uniform over 0..(best mean - gap)."""
    best = gap + (1.0 - gap) * random.random()
    others = ((best - gap) * random.random(len(names) - 1)).tolist()
    return _shuffled([Arm(name=name, prob=prob) for name, prob in zip(names, [best, *others], strict=True)], random)


def draw_steady_risky_arms(names: Sequence[str], random: np.random.Generator) -> Arms:
    """The two arms of the one-pull bandit; the first name is the steady arm's. The risky arm is the better one."""
    steady, risky = names
    paid = STEADY_RISKY
    arms = [
        Arm(name=steady, prob=1.0, high=paid.low),
        Arm(name=risky, prob=paid.high_prob, high=paid.high, low=paid.miss),
    ]
    return _shuffled(arms, random)


def pull(arm: Arm, chance: float) -> float:
    """The points of one pull, for a `chance` drawn uniformly from [0, 1)."""
    return arm.high if chance < arm.prob else arm.low


def best_arm(arms: Arms) -> Arm:
    """The arm with the highest mean; of several the one shown first."""
    return max(arms, key=lambda arm: arm.mean)


def is_mastered(pulls: Sequence[str], best: str, num_pulls: int) -> bool:
    """True once all `num_pulls` pulls are made and more than half of the last half of them (rounded up) went to arm `best`."""
    last = list(pulls)[num_pulls // 2 :]
    return len(pulls) == num_pulls and 2 * last.count(best) > len(last)


def _shuffled(arms: Sequence[Arm], random: np.random.Generator) -> Arms:
    return tuple(arms[i] for i in random.permutation(len(arms)).tolist())
