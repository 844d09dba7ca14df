"""KL(policy || start policy): estimates from sampled tokens, as a term of the loss or as a price in the reward, and its weight.

M runs over sampled tokens. Formulas, sources and worked examples: docs/algorithms/kl.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragen.algorithms.config import KlConfig
from ragen.algorithms.losses import log_ratio

MAX_ERROR = 0.2  # of the measured KL, relative to the target, in one adaptation


def kl_estimate(policy_M: Tensor, reference_M: Tensor, *, estimator: str) -> Tensor:
    """KL(policy || reference) per token from a sample of the policy, as a number: what a reward needs, or a metric.

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


def kl_loss(new_M: Tensor, old_M: Tensor, reference_M: Tensor, *, estimator: str) -> Tensor:
    """The KL term of the loss, per token. `old_M` are the log-probs under which the tokens were sampled.

    k2        its gradient d grad(log pi) is on average that of KL(policy || reference), as long as the policy itself sampled
    k3        its gradient is on average that of KL(reference || policy), the divergence the other way round
    unbiased  r k3 with r = pi_new / pi_old: the gradient of KL(policy || reference) whichever policy sampled

    k1 is refused: its gradient is grad(log pi), in which the reference does not occur and whose average is zero.

    Source: Schulman 2020; Tang and Munos 2025, "On a few pitfalls in KL divergence gradient estimation for RL"; unbiased:
    DeepSeek-V3.2 2025 (arXiv 2512.02556), "unbiased KL estimate".
    Differs from the papers: the log-ratios are bounded.
    """
    match estimator:
        case "k2" | "k3":
            return kl_estimate(new_M, reference_M, estimator=estimator)
        case "unbiased":
            return log_ratio(new_M, old_M).exp() * kl_estimate(new_M, reference_M, estimator="k3")
    raise ValueError(f"estimator={estimator!r}: must be k2, k3 or unbiased in a loss")


def kl_divergence(policy_MV: Tensor, reference_MV: Tensor) -> Tensor:
    """KL(policy || reference) per token, exactly, from the log-softmax of both over the vocabulary."""
    return (policy_MV.exp() * (policy_MV - reference_MV)).sum(-1)


class KlController:
    """Owns the weight of the KL term: fixed, or led so that the measured KL comes near `target`.

    coef <- coef (1 + adapt_rate clip(KL / target - 1, -0.2, 0.2)) after every update.

    Source: Ziegler et al. 2019, "Fine-tuning language models from human preferences", section 2.2.
    Differs from the paper: `adapt_rate` is per update; there, it is batch size / horizon.
    """

    def __init__(self, config: KlConfig) -> None:
        self.config = config
        self.coef = config.coef

    @property
    def in_loss(self) -> bool:
        return self.coef > 0 and self.config.place == "loss"

    @property
    def in_reward(self) -> bool:
        return self.coef > 0 and self.config.place == "reward"

    def adapt(self, measured: float) -> None:
        """Take note of the KL of an update, in nats per token."""
        if self.config.target is None:
            return
        error = measured / self.config.target - 1
        self.coef *= 1 + self.config.adapt_rate * min(max(error, -MAX_ERROR), MAX_ERROR)

    def state_dict(self) -> dict[str, float]:
        return {"coef": self.coef}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """A fixed weight is what the configuration says, also when that was changed in a resumed run."""
        if self.config.target is not None:
            self.coef = state["coef"]
