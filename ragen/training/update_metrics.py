"""What an update did, as numbers. Keys are defined in docs/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ragen.algorithms.losses import PolicyTerm, log_ratio


@dataclass(frozen=True, kw_only=True)
class PassSums:
    """Sums and maxima over the trained tokens of one forward pass."""

    tokens: int
    loss: float  # as minimised: weighted and divided, so these add up to the loss of their optimiser step
    policy_loss: float
    entropy: float
    kl_loss: float
    ratio: float
    ratio_max: float
    clipped_low: float | None  # None: the loss has no such bound
    clipped_high: float | None
    gap: float
    gap_max: float


@torch.no_grad()
def pass_sums(*, loss: Tensor, term: PolicyTerm, entropy_M: Tensor, kl_M: Tensor, new_M: Tensor, old_M: Tensor) -> PassSums:
    ratio_M, gap_M = log_ratio(new_M, old_M).exp(), (new_M - old_M).abs()
    return PassSums(
        tokens=len(new_M),
        loss=loss.item(),
        policy_loss=term.loss_M.sum().item(),
        entropy=entropy_M.sum().item(),
        kl_loss=kl_M.sum().item(),
        ratio=ratio_M.sum().item(),
        ratio_max=ratio_M.max().item(),
        clipped_low=None if term.low_M is None else term.low_M.sum().item(),
        clipped_high=None if term.high_M is None else term.high_M.sum().item(),
        gap=gap_M.sum().item(),
        gap_max=gap_M.max().item(),
    )


@dataclass(kw_only=True)
class Record:
    """What was optimised in one update. Skipped optimiser steps leave no trace here."""

    passes: list[PassSums] = field(default_factory=list)
    untouched: list[PassSums] = field(default_factory=list)  # those before the first optimiser step
    grad_norms: list[float] = field(default_factory=list)
    loss: float = 0.0  # sum of that of every optimiser step times its tokens

    def add(self, passes: list[PassSums], grad_norm: float) -> None:
        """Take note of an optimiser step that was taken."""
        if not self.grad_norms:
            self.untouched = passes
        self.passes += passes
        self.loss += sum(p.loss for p in passes) * sum(p.tokens for p in passes)
        self.grad_norms.append(grad_norm)

    @property
    def num_tokens(self) -> int:
        return sum(p.tokens for p in self.passes)

    def mean(self, name: str) -> float | None:
        """Of a sum per trained token; None where there is no such sum."""
        values = [getattr(p, name) for p in self.passes]
        return None if not values or None in values else float(sum(values)) / self.num_tokens

    def metrics(self) -> dict[str, float | None]:
        """Nothing but the number of tokens where no optimiser step was taken: what was not measured is absent."""
        if not self.passes:
            return {"update/tokens": 0.0}
        return {
            "update/loss": self.loss / self.num_tokens,
            "update/policy_loss": self.mean("policy_loss"),
            "update/entropy": self.mean("entropy"),
            "update/ratio_mean": self.mean("ratio"),
            "update/ratio_max": max(p.ratio_max for p in self.passes),
            "update/clip_low_frac": self.mean("clipped_low"),
            "update/clip_high_frac": self.mean("clipped_high"),
            "update/grad_norm": sum(self.grad_norms) / len(self.grad_norms),
            "update/tokens": float(self.num_tokens),
        }

    def gap_metrics(self) -> dict[str, float]:
        """Engine against learner, where the old log-probs are the engine's: before the first optimiser step."""
        if not self.untouched:
            return {}
        tokens = sum(p.tokens for p in self.untouched)
        return {
            "update/engine_gap_mean": sum(p.gap for p in self.untouched) / tokens,
            "update/engine_gap_max": max(p.gap_max for p in self.untouched),
        }
