"""The gap between the policy that sampled (the engine's) and the one that is trained (the learner's), corrected by weights.

M runs over sampled tokens. The weights are constants: they multiply the advantages, before the first optimiser step, and the
ratios of the loss are then against the learner's own log-probs. Formulas and worked examples: docs/algorithms/losses.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algorithms.losses import log_ratio, mean_by_owner


@dataclass(frozen=True, kw_only=True)
class Correction:
    weight_M: Tensor  # at least 0
    capped_M: Tensor  # bool: the cap acts
    masked_M: Tensor  # bool: the whole sample is left out


def importance_weights(
    learner_M: Tensor, engine_M: Tensor, owner_M: Tensor, *, cap: float | None, low: float | None, high: float | None
) -> Correction:
    """min(pi_learner / pi_engine, cap) per token, and 0 on all tokens of a sample whose mean ratio is not in [low, high].

    The mean is geometric, exp(mean of log(pi_learner / pi_engine)), so that it does not drift with the length. None switches a
    part off; without a cap every weight is 1 or 0.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training" (token cap); Li et al. 2025,
    "When speed kills stability" (geometric mask of whole sequences).
    Differs from them: the mask leaves a sample's advantages out; entropy and KL terms still see it if they see advantages of 0.
    """
    log_M = log_ratio(learner_M, engine_M)
    ratio_M, mean_M = log_M.exp(), mean_by_owner(log_M, owner_M).exp()
    masked_M = torch.zeros_like(ratio_M, dtype=torch.bool)
    if low is not None:
        masked_M |= mean_M < low
    if high is not None:
        masked_M |= mean_M > high
    weight_M, capped_M = torch.ones_like(ratio_M), torch.zeros_like(masked_M)
    if cap is not None:
        weight_M, capped_M = ratio_M.clamp(max=cap), ratio_M > cap
    return Correction(weight_M=weight_M.masked_fill(masked_M, 0.0), capped_M=capped_M, masked_M=masked_M)
