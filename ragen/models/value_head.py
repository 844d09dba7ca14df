"""The value head: hidden states in, one number per token out."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueHead(nn.Module):
    """A linear layer [M, D] -> [M] in float32, whatever number format the hidden states come in.

    Weights are drawn from `seed` with standard deviation `std`, the bias is 0; with std=0 every value is exactly 0.
    """

    def __init__(self, width: int, *, std: float, seed: int, device: torch.device | str) -> None:
        super().__init__()
        drawn_1D = torch.randn(1, width, generator=torch.Generator().manual_seed(seed)) * std
        self.weight = nn.Parameter(drawn_1D.to(device))
        self.bias = nn.Parameter(torch.zeros(1, device=device))

    def forward(self, hidden_MD: Tensor) -> Tensor:
        return nn.functional.linear(hidden_MD.float(), self.weight, self.bias)[:, 0]
