"""The critic's loss per token, and how much its values explain. Pure functions; M runs over trained (sampled) tokens.

No function here averages a loss: the caller divides by one denominator for the whole optimiser step, as with the policy's loss.
Formulas and sources: docs/algorithms/critic.md.
"""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(values_M: Tensor, old_M: Tensor, targets_M: Tensor, *, clip: float, huber_delta: float) -> Tensor:
    """max(l(V - R), l(clip(V, V_old - clip, V_old + clip) - R)) per token; clip=0 leaves the second part out.

    l(e) = e^2 / 2; with huber_delta = d > 0 it is Huber's: e^2 / 2 up to |e| = d, then the straight line d (|e| - d / 2).
    Source: the value clipping of OpenAI Baselines' PPO2, as published RAGEN uses it, with clip 0.5 and squared errors.
    Differs from the paper: Schulman et al. 2017 (PPO), eq. 9, has the plain squared error.
    """
    loss_M = _penalty(values_M - targets_M, huber_delta)
    if not clip:
        return loss_M
    return torch.maximum(loss_M, _penalty(_clipped(values_M, old_M, clip) - targets_M, huber_delta))


def value_clipped_where(values_M: Tensor, old_M: Tensor, targets_M: Tensor, *, clip: float) -> Tensor:
    """Where the clip stops the gradient: the value is more than `clip` from the old one and nearer to the target than there."""
    if not clip:
        return torch.zeros_like(values_M, dtype=torch.bool)
    clipped_M = _clipped(values_M, old_M, clip)
    return (clipped_M != values_M) & ((clipped_M - targets_M).abs() > (values_M - targets_M).abs())


def explained_variance(values_M: Tensor, targets_M: Tensor) -> float | None:
    """1 - Var(R - V) / Var(R): 1 is perfect, 0 no better than a constant, below 0 worse than that. At least one token.

    None where the targets are all equal up to rounding: there is no variance to explain.
    """
    targets_M, values_M = targets_M.double(), values_M.double()
    variance = targets_M.var(correction=0)
    if bool(variance <= (1e-6 * targets_M.abs().max()) ** 2):  # float32 resolves no finer
        return None
    return float(1 - (targets_M - values_M).var(correction=0) / variance)


def _clipped(values_M: Tensor, old_M: Tensor, clip: float) -> Tensor:
    return torch.clamp(values_M, old_M - clip, old_M + clip)


def _penalty(error_M: Tensor, huber_delta: float) -> Tensor:
    if not huber_delta:
        return error_M.square() / 2
    size_M = error_M.abs()
    near_M = size_M.clamp(max=huber_delta)  # so that the branch not taken cannot overflow
    return near_M.square() / 2 + huber_delta * (size_M - near_M)
