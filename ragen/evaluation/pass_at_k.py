"""Several episodes from one task seed: whether any of k succeeds (pass@k), and whether all of k do (pass^k)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

from ragen.evaluation.statistics import Interval, share_interval

Estimator = Callable[[int, int, int], float]


def pass_at_k(num_samples: int, num_successes: int, k: int) -> float:
    """The chance that k of these samples, drawn without replacement, hold at least one success: 1 - C(n - c, k) / C(n, k).

    Over repeated evaluations its mean is exactly 1 - (1 - p)^k for a seed solved with chance p, which 1 - (1 - c/n)^k is not.
    Source: M. Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, equation 1.
    Raises ValueError for an impossible count, or for k above the samples there are.
    """
    _check(num_samples, num_successes, k)
    return 1.0 - math.comb(num_samples - num_successes, k) / math.comb(num_samples, k)


def pass_all_k(num_samples: int, num_successes: int, k: int) -> float:
    """pass^k, the chance that k of these samples are all successes: C(c, k) / C(n, k); its mean is exactly p^k.

    Source: S. Yao et al., "tau-bench", arXiv 2406.12045, section 3. Raises ValueError as `pass_at_k`.
    """
    _check(num_samples, num_successes, k)
    return math.comb(num_successes, k) / math.comb(num_samples, k)


def pass_curves(successes: Sequence[bool], seeds: Sequence[Hashable]) -> tuple[tuple[Interval, ...], tuple[Interval, ...]]:
    """(pass@k, pass^k) for k = 1, 2, ... up to the samples that at least one task seed has, each a mean over seeds.

    Where infrastructure has lost episodes, a k counts only the seeds that still have k samples. For k = 1 every seed has the same
    weight, while the success rate weighs episodes: they differ only where seeds have unequally many.
    """
    counts: dict[Hashable, list[int]] = {}
    for success, seed in zip(successes, seeds, strict=True):
        count = counts.setdefault(seed, [0, 0])
        count[0] += 1
        count[1] += success
    most = max(n for n, _ in counts.values())
    pairs = list(counts.values())
    return (
        tuple(_mean_over_seeds(pass_at_k, pairs, k) for k in range(1, most + 1)),
        tuple(_mean_over_seeds(pass_all_k, pairs, k) for k in range(1, most + 1)),
    )


def _mean_over_seeds(estimate: Estimator, counts: Sequence[Sequence[int]], k: int) -> Interval:
    values = [estimate(n, c, k) for n, c in counts if n >= k]
    return share_interval(values, range(len(values)))


def _check(num_samples: int, num_successes: int, k: int) -> None:
    if not (0 <= num_successes <= num_samples and 1 <= k <= num_samples):
        raise ValueError(f"num_samples={num_samples}, num_successes={num_successes}, k={k}: need 0 <= c <= n and 1 <= k <= n")
