"""The bandit's rules as pure functions: which arms there are, what they are called, what they pay.

Source: the bandit of the RAGEN paper (arXiv 2504.20073): a steady arm that always pays 0.15 and a risky one that pays 1 with
probability 0.25, so that the risky arm is better on average although it usually pays nothing.
Differs from the paper: twelve name pairs for training and eight others for testing (the paper has one pair, Phoenix and Dragon).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

Pair = tuple[str, str]  # (steady occupation, risky occupation)

# Each name occurs once on this page, so that no test name is ever seen in training. Names are paired so that
# SmolLM2-135M-Instruct, untrained, answers with either of the two about as often: the task is then neither solved nor ruled
# out by habit.
PAIRS = MappingProxyType(
    {
        "train": (
            ("Teacher", "Explorer"),
            ("Librarian", "Stuntman"),
            ("Nurse", "Racer"),
            ("Accountant", "Inventor"),
            ("Gardener", "Founder"),
            ("Baker", "Investor"),
            ("Dentist", "Astronaut"),
            ("Janitor", "Trader"),
            ("Plumber", "Pirate"),
            ("Mechanic", "Prospector"),
            ("Carpenter", "Daredevil"),
            ("Driver", "Spy"),
        ),
        "test": (
            ("Cook", "Boxer"),
            ("Cashier", "Gambler"),
            ("Judge", "Magician"),
            ("Secretary", "Fighter"),
            ("Engineer", "Outlaw"),
            ("Barber", "Sailor"),
            ("Cleaner", "Hunter"),
            ("Lawyer", "Smuggler"),
        ),
        "phoenix_dragon": (("Phoenix", "Dragon"),),
    }
)


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Two arms on the table: their names in the order shown, and which of them is the risky one."""

    names: tuple[str, str]
    risky: str


@dataclass(frozen=True, kw_only=True)
class Payoffs:
    """Points: the steady arm pays `low`; the risky arm pays `high` with probability `high_prob`, else `miss`."""

    low: float
    high: float
    high_prob: float
    miss: float

    @property
    def risky_mean(self) -> float:
        return self.high_prob * self.high + (1.0 - self.high_prob) * self.miss


def deal(pairs: tuple[Pair, ...], *, reverse: bool, random: np.random.Generator) -> Arms:
    """Draw a pair and the order of its names. With `reverse` the name that sounds steady is that of the risky arm."""
    steady, risky = pairs[int(random.integers(len(pairs)))]
    names = (steady, risky) if random.integers(2) == 0 else (risky, steady)
    return Arms(names=names, risky=steady if reverse else risky)


def pull(arms: Arms, name: str, payoffs: Payoffs, random: np.random.Generator) -> float:
    """The points that arm `name` pays this time; only the risky arm draws from `random`."""
    if name != arms.risky:
        return payoffs.low
    return payoffs.high if random.random() < payoffs.high_prob else payoffs.miss
