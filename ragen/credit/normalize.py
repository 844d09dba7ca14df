"""How good a number is beside others: means, spreads, leave-one-out. Pure functions on plain numbers.

Everything is computed in float64 and in no particular order, so that equal numbers give exactly zero and nothing depends on who
stands where.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Compare = Callable[[list[float]], list[float]]

EPSILON = 1e-6  # added to a standard deviation before dividing by it
ROUNDING = 1e-12  # relative to the largest number; the same rewards added in another order differ by less
CLIP_LOW, CLIP_HIGH = -1.0, 3.0  # of asym_clip: a bad outlier pushes less than a good one

METHODS = ("identity", "mean", "mean_std", "asym_clip")


def all_equal(numbers: Sequence[float]) -> bool:
    """Whether the numbers, at least one, differ by no more than rounding: then there is nothing to learn from them."""
    return max(numbers) - min(numbers) <= ROUNDING * max(map(abs, numbers))


def normalize(numbers: Sequence[float], method: str) -> list[float]:
    """Each number against the others, by one of METHODS.

    identity: x; mean: x - mean; mean_std: (x - mean) / (std + 1e-6), the std unbiased; asym_clip: the same, clamped to [-1, 3].
    Equal numbers give exactly 0, and so does a lone one: there is nothing to compare it with. Identity keeps both as they are.
    """
    if method == "identity":
        return list(numbers)
    if method not in METHODS:
        raise ValueError(f"method={method!r}: must be one of {', '.join(METHODS)}")
    if len(numbers) < 2 or all_equal(numbers):
        return [0.0] * len(numbers)
    mean = fmean(numbers)
    scale = 1.0 if method == "mean" else stdev(numbers) + EPSILON
    normalized = [(x - mean) / scale for x in numbers]
    if method == "asym_clip":
        return [min(max(x, CLIP_LOW), CLIP_HIGH) for x in normalized]
    return normalized


def leave_one_out(numbers: Sequence[float]) -> list[float]:
    """Each number minus the mean of the others. Equal numbers and a lone one give exactly 0."""
    if len(numbers) < 2 or all_equal(numbers):
        return [0.0] * len(numbers)
    n, mean = len(numbers), fmean(numbers)
    return [(x - mean) * n / (n - 1) for x in numbers]


def within(numbers: Sequence[float], keys: Sequence[Hashable], compare: Compare) -> list[float]:
    """Apply `compare` among the numbers that have the same key; the answers come back in the order of the numbers."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    answers = [0.0] * len(numbers)
    for shared in places.values():
        for place, answer in zip(shared, compare([numbers[i] for i in shared]), strict=True):
            answers[place] = answer
    return answers


def whiten(parts: Sequence[FloatArray]) -> list[FloatArray]:
    """(x - mean) / (std + 1e-6) over all numbers of all parts together; fewer than two numbers are left as they are."""
    flat = np.concatenate([*parts, np.empty(0)])
    if len(flat) < 2:
        return list(parts)
    if np.ptp(flat) <= ROUNDING * np.abs(flat).max():
        return [np.zeros_like(part) for part in parts]
    mean, scale = flat.mean(), flat.std(ddof=1) + EPSILON
    return [(part - mean) / scale for part in parts]
