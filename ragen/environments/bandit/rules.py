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

# Each name occurs once on this page, so that no test name is ever seen in training.
PAIRS = MappingProxyType(
    {
        "train": (
            ("Teacher", "Trader"),
            ("Librarian", "Gambler"),
            ("Clerk", "Explorer"),
            ("Nurse", "Pirate"),
            ("Accountant", "Founder"),
            ("Gardener", "Inventor"),
            ("Farmer", "Investor"),
            ("Baker", "Racer"),
            ("Dentist", "Prospector"),
            ("Janitor", "Astronaut"),
            ("Tailor", "Magician"),
            ("Postman", "Hunter"),
        ),
        "test": (
            ("Secretary", "Adventurer"),
            ("Plumber", "Smuggler"),
            ("Cook", "Spy"),
            ("Cashier", "Stuntman"),
            ("Mechanic", "Speculator"),
            ("Judge", "Sailor"),
            ("Cleaner", "Actor"),
            ("Carpenter", "Daredevil"),
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
