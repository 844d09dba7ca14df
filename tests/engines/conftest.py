from __future__ import annotations

from typing import Any

import pytest
import torch

from ragen.models.policy import Policy
from tests.support.architectures import load


@pytest.fixture
def policy() -> Policy:
    return load("llama")


@pytest.fixture
def fed(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each forward pass of `policy` was given."""
    counts: list[int] = []
    hidden = policy.hidden

    def counted(ids_L: torch.Tensor, *rest: Any) -> torch.Tensor:
        counts.append(len(ids_L))
        return hidden(ids_L, *rest)

    monkeypatch.setattr(policy, "hidden", counted)
    return counts
