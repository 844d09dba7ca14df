"""The exact binomial test: how surprising a count is."""

from __future__ import annotations

import math


def surprise(count: int, num_draws: int, probability: float) -> float:
    """The two-sided p-value of `count` successes in `num_draws` independent draws, 0 < probability < 1: twice the smaller tail.

    A correct implementation falls below a level alpha in at most a part alpha of all runs with other seeds.
    """

    def mass(k: int) -> float:
        ways = math.lgamma(num_draws + 1) - math.lgamma(k + 1) - math.lgamma(num_draws - k + 1)
        return math.exp(ways + k * math.log(probability) + (num_draws - k) * math.log1p(-probability))

    below = math.fsum(mass(k) for k in range(count + 1))
    above = math.fsum(mass(k) for k in range(count, num_draws + 1))
    return min(1.0, 2.0 * min(below, above))
