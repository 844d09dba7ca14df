"""The gradient of one optimiser step, and weights that have one everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ragen.models.policy import Policy
from ragen.records import Sample
from ragen.training.update import Learner


def stir(policy: Policy, scale: float = 0.05, seed: int = 0) -> None:
    """Move the trained weights, such as adapters that begin at zero and would leave half of their gradients at zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)


def gradient(
    learner: Learner, samples: Sequence[Sample], monkeypatch: pytest.MonkeyPatch, *, max_tokens: int = 4096
) -> dict[str, Tensor]:
    """The gradient of one optimiser step over the samples, before clipping, with packs of at most `max_tokens`."""
    kept: dict[str, Tensor] = {}

    def keep(parameters: Any, max_norm: float) -> Tensor:
        kept.update({name: p.grad.clone() for name, p in learner.policy.trainable().items() if p.grad is not None})
        return torch.tensor(math.nan)  # so that nothing is changed

    with monkeypatch.context() as patch:
        patch.setattr(learner.pack_size, "tokens", max_tokens)
        patch.setattr(torch.nn.utils, "clip_grad_norm_", keep)
        learner.update(samples, step=0)
    return kept
