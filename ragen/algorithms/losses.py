"""Policy losses per token. Pure functions; M runs over the sampled tokens of a batch, `owner_M` says whose sample each is.

No function here averages: the caller divides by one denominator for the whole optimiser step (aggregation.py), so that the
result does not depend on how the step is split into micro-batches. Only sampled tokens are on M, so nothing is ever multiplied
by a mask. Advantages may differ from token to token. Formulas, sources and worked examples: docs/algorithms/losses.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algorithms.config import LossConfig

LOG_RATIO_BOUND = 20.0  # exp(20) is finite in float32; a ratio beyond it is clipped anyway


@dataclass(frozen=True, kw_only=True)
class PolicyTerm:
    """The policy loss of every token, and where its bounds act: that is, where they cut or limit the gradient."""

    loss_M: Tensor
    low_M: Tensor | None  # None: the loss has no such bound
    high_M: Tensor | None


def policy_term(new_M: Tensor, old_M: Tensor, advantages_M: Tensor, owner_M: Tensor, config: LossConfig) -> PolicyTerm:
    """The loss that is configured. `old_M` has no gradient; that of the result is with respect to `new_M` alone."""
    bounds = {"clip_low": config.clip_low, "clip_high": config.clip_high}
    match config.name:
        case "ppo":
            loss_M = ppo(new_M, old_M, advantages_M, **bounds, dual_clip=config.dual_clip)
            low_M, high_M = clipped_where(log_ratio(new_M, old_M).exp(), advantages_M, **bounds)
        case "gspo":
            loss_M = gspo(new_M, old_M, advantages_M, owner_M, **bounds)
            low_M, high_M = clipped_where(sequence_ratio(new_M, old_M, owner_M), advantages_M, **bounds)
        case "cispo":
            loss_M = cispo(new_M, old_M, advantages_M, **bounds)
            low_M, high_M = outside(log_ratio(new_M, old_M).exp(), **bounds)
        case "sapo":
            loss_M = sapo(new_M, old_M, advantages_M, positive=config.temperature_pos, negative=config.temperature_neg)
            return PolicyTerm(loss_M=loss_M, low_M=None, high_M=None)
        case name:
            raise ValueError(f"name={name!r}: must be one of ppo, gspo, cispo, sapo")
    return PolicyTerm(loss_M=loss_M, low_M=low_M, high_M=high_M)


def log_ratio(new_M: Tensor, old_M: Tensor) -> Tensor:
    """log(pi_new / pi_old), bounded to [-20, 20] so that its exponential and all gradients stay finite."""
    return (new_M - old_M).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def ppo(
    new_M: Tensor,
    old_M: Tensor,
    advantages_M: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Tensor:
    """max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) per token, with r = pi_new / pi_old.

    `dual_clip` c bounds what a bad token can cost: where A < 0, r counts as at most c, and beyond it there is no gradient.
    Without it one token that has become a thousand times likelier rules the whole step.

    Source: Schulman et al. 2017 (PPO), eq. 7; separate bounds: Yu et al. 2025 (DAPO), eq. 10; c: Ye et al. 2020 ("Mastering
    complex control in MOBA games with deep reinforcement learning"), which uses 3.
    Differs from the papers: the log-ratio is bounded.
    """
    return _clipped(log_ratio(new_M, old_M).exp(), advantages_M, clip_low, clip_high, dual_clip)


def gspo(new_M: Tensor, old_M: Tensor, advantages_M: Tensor, owner_M: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """The same with one ratio for a whole sample: max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high)), see `sequence_ratio`.

    Source: Zheng et al. 2025 (GSPO), eq. 5 and, for advantages that differ from token to token, eq. 13 and 14. The bounds are
    three orders of magnitude closer than those of PPO: 3e-4 and 4e-4 in the paper.
    Differs from the paper: a sample is one token sequence of an episode, all its turns together, and the mean is over its sampled
    tokens; an episode of several segments has one ratio in each.
    """
    return _clipped(sequence_ratio(new_M, old_M, owner_M), advantages_M, clip_low, clip_high, None)


def sequence_ratio(new_M: Tensor, old_M: Tensor, owner_M: Tensor) -> Tensor:
    """s = exp(mean of log r over the tokens of the sample), at each of its tokens; d s / d(log pi_new) = s at the token itself.

    So the gradient of the mean of s over the sample is s times the mean of the tokens' gradients, which is that of s itself.
    """
    token_M = log_ratio(new_M, old_M)
    return (mean_by_owner(token_M.detach(), owner_M) + token_M - token_M.detach()).exp()


def cispo(new_M: Tensor, old_M: Tensor, advantages_M: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """-w A log pi_new per token, with w = clip(r, 1 - clip_low, 1 + clip_high) taken as a constant: every token keeps a gradient.

    Source: MiniMax 2025 (MiniMax-M1, arXiv 2506.13585), eq. 4 and 5, where the lower bound is left out (here: clip_low=1).
    """
    weight_M = log_ratio(new_M, old_M).exp().detach().clamp(1 - clip_low, 1 + clip_high)
    return -weight_M * advantages_M * new_M


def sapo(new_M: Tensor, old_M: Tensor, advantages_M: Tensor, *, positive: float, negative: float) -> Tensor:
    """-A (4 / t) sigmoid(t (r - 1)) per token, with t = `positive` where A > 0, else `negative`.

    The gradient is that of PPO at r = 1 and fades smoothly on both sides, the faster the larger t.
    Source: "Soft adaptive policy optimization" 2025 (arXiv 2511.20347), with t = 1 and 1.05.
    """
    ratio_M = log_ratio(new_M, old_M).exp()
    t_M = torch.where(advantages_M > 0, ratio_M.new_tensor(positive), ratio_M.new_tensor(negative))
    return -advantages_M * torch.sigmoid(t_M * (ratio_M - 1)) * 4 / t_M


def _clipped(ratio_M: Tensor, advantages_M: Tensor, low: float, high: float, dual: float | None) -> Tensor:
    clipped_M = ratio_M.clamp(1 - low, 1 + high)
    loss_M = torch.maximum(-advantages_M * ratio_M, -advantages_M * clipped_M)
    if dual is None:
        return loss_M
    return torch.where(advantages_M < 0, torch.minimum(loss_M, -advantages_M * dual), loss_M)


def clipped_where(ratio_M: Tensor, advantages_M: Tensor, *, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Where the clip stops the gradient: below the lower bound (A < 0), above the upper one (A > 0)."""
    low_M, high_M = outside(ratio_M, clip_low=clip_low, clip_high=clip_high)
    return low_M & (advantages_M < 0), high_M & (advantages_M > 0)


def outside(ratio_M: Tensor, *, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Where the ratio is below its lower bound, and where above its upper one."""
    return ratio_M < 1 - clip_low, ratio_M > 1 + clip_high


def mean_by_owner(values_M: Tensor, owner_M: Tensor) -> Tensor:
    """At every token, the mean of `values_M` over all tokens of the same sample."""
    num_owners = int(owner_M.max()) + 1 if len(owner_M) else 0
    sums_I = values_M.new_zeros(num_owners).index_add(0, owner_M, values_M)
    counts_I = owner_M.bincount(minlength=num_owners)
    return (sums_I / counts_I)[owner_M]
