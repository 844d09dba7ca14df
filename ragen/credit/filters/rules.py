"""Which scores are kept: pure functions from numbers to positions, in ascending order.

Best scores go first, the largest or the smallest; equal ones in the order in which they stand, so a result never depends on
anything else. No rule keeps nothing where there is something, but for `top_p` without any mass to share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

ROUNDING = 1e-12  # relative; sums in another order and products of decimal fractions differ by less


def ranked(scores: Sequence[float], *, largest: bool) -> list[int]:
    """Positions, best first."""
    return sorted(range(len(scores)), key=lambda i: -scores[i] if largest else scores[i])


def top_k(scores: Sequence[float], k: int, *, largest: bool = True) -> list[int]:
    """The k best; all if there are fewer."""
    return sorted(ranked(scores, largest=largest)[:k])


def top_p(scores: Sequence[float], p: float, *, largest: bool = True, slack: float = 0.0) -> list[int]:
    """The fewest of the best whose sum reaches p times the sum of all, less `slack`; every one for p >= 1.

    Nothing if that threshold is not above 0. Raises ValueError for a negative score: sums of such are no shares.
    Source: RAGEN-2 (arXiv 2604.06268), "linear" mode. Differs from the published code: there slack is 0.01 in whatever unit the
    rewards have, which drops everything where spreads are small; and taking the smallest first stops at the first score of 0,
    which keeps nothing. Here the slack is 0 unless asked for and a score of 0 is as good a small one as any.
    """
    if any(score < 0 for score in scores):
        raise ValueError(f"top_p needs scores that are not negative, not {min(scores)}")
    if p >= 1:
        return list(range(len(scores)))
    threshold = p * math.fsum(scores) - slack
    if threshold <= 0:
        return []
    return _until(scores, ranked(scores, largest=largest), threshold)


def top_p_softmax(scores: Sequence[float], p: float, *, largest: bool = True) -> list[int]:
    """The fewest of the best whose probability under softmax(scores), of -scores for the smallest, reaches p.

    At least one. Not free of scale: for scores that differ by little the softmax is nearly uniform, and (1 - p) of the groups
    are dropped whatever they are worth. Source: RAGEN-2, "softmax" mode.
    """
    if not scores or p >= 1:
        return list(range(len(scores)))
    signed = [score if largest else -score for score in scores]
    masses = [math.exp(value - max(signed)) for value in signed]
    return _until(masses, ranked(signed, largest=True), p * math.fsum(masses))


def min_p(scores: Sequence[float], p: float, *, largest: bool = True) -> list[int]:
    """Those of at least p times the largest score, or at most 1 / p times the smallest.

    Raises ValueError for a negative score. Source: RAGEN-2's code. Differs from it: its slack of 1e-10 is relative here.
    """
    if any(score < 0 for score in scores):
        raise ValueError(f"min_p needs scores that are not negative, not {min(scores)}")
    if largest:
        return [i for i, score in enumerate(scores) if score >= p * max(scores) * (1 - ROUNDING)]
    return [i for i, score in enumerate(scores) if p * score <= min(scores) * (1 + ROUNDING)]


def _until(masses: Sequence[float], order: Sequence[int], threshold: float) -> list[int]:
    """Positions in the given order until their sum reaches the threshold, which it does."""
    total = 0.0
    for count, position in enumerate(order, start=1):
        total += masses[position]
        if total >= threshold * (1 - ROUNDING):
            return sorted(order[:count])
    raise AssertionError((total, threshold))
