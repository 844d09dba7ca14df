"""Policy loss terms per token. Pure functions; M runs over the trained (sampled) tokens of a batch.

No function here averages: the caller divides by one denominator for the whole optimiser step, so that the result does not
depend on how the step is split into micro-batches. Formulas and sources: docs/algorithms/starpo.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0  # exp(20) is finite in float32; a ratio beyond it is clipped anyway


def log_ratio(new_M: Tensor, old_M: Tensor) -> Tensor:
    """log(pi_new / pi_old), bounded to [-20, 20] so that its exponential and all gradients stay finite."""
    return (new_M - old_M).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def clipped_surrogate(new_M: Tensor, old_M: Tensor, advantages_M: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) per token, with r = pi_new / pi_old.

    Source: Schulman et al. 2017 (PPO), eq. 7; separate bounds: Yu et al. 2025 (DAPO), "clip-higher".
    """
    ratio_M = log_ratio(new_M, old_M).exp()
    clipped_M = ratio_M.clamp(1 - clip_low, 1 + clip_high)
    return torch.maximum(-advantages_M * ratio_M, -advantages_M * clipped_M)


def clipped_where(
    new_M: Tensor, old_M: Tensor, advantages_M: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Where the surrogate stops the gradient: below the lower bound (A < 0), above the upper one (A > 0)."""
    ratio_M = log_ratio(new_M, old_M).exp()
    return (ratio_M < 1 - clip_low) & (advantages_M < 0), (ratio_M > 1 + clip_high) & (advantages_M > 0)


def kl_estimate(policy_M: Tensor, reference_M: Tensor, *, estimator: str) -> Tensor:
    """KL(policy || reference) per token from a sample of the policy.

    With d = log policy - log reference: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d (never negative).
    Source: Schulman 2020, "Approximating KL divergence".
    """
    d_M = log_ratio(policy_M, reference_M)
    match estimator:
        case "k1":
            return d_M
        case "k2":
            return d_M.square() / 2
        case "k3":
            return torch.expm1(-d_M) + d_M
    raise ValueError(f"estimator={estimator!r}: must be k1, k2 or k3")


def kl_divergence(policy_MV: Tensor, reference_MV: Tensor) -> Tensor:
    """KL(policy || reference) per token, exactly, from the log-softmax of both over the vocabulary."""
    return (policy_MV.exp() * (policy_MV - reference_MV)).sum(-1)


def entropy(log_softmax_MV: Tensor) -> Tensor:
    """Entropy in nats per token of the distribution that was sampled from."""
    return -(log_softmax_MV.exp() * log_softmax_MV).sum(-1)
