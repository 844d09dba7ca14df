"""Log-probs and entropies, whose backward pass is our own; its slow twin is autograd over a plain log-softmax."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ragen.training import scoring


def scored(scores_MV: Tensor, targets: list[int], *, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """With an output layer that hands its input through, so that hidden states are the scores themselves."""
    policy: Any = SimpleNamespace(logits=lambda hidden: hidden, num_ids=scores_MV.shape[1], device=scores_MV.device)
    both: tuple[Tensor, Tensor] = scoring._Scored.apply(scores_MV, torch.tensor(targets), policy, temperature)  # type: ignore[no-untyped-call]
    return both


@pytest.mark.parametrize(
    ("probabilities", "expected"), [([0.25] * 4, math.log(4)), ([1, 0, 0, 0], 0), ([0.5, 0.5, 0, 0], math.log(2))]
)
def test_log_prob_and_entropy_by_hand(probabilities: list[float], expected: float) -> None:
    """Scores of -inf included: p log p is 0 there."""
    logprob_M, entropy_M = scored(torch.tensor([probabilities]).log() + 7, [0])
    assert logprob_M.item() == pytest.approx(math.log(probabilities[0]), abs=1e-6)
    assert entropy_M.item() == pytest.approx(expected, abs=1e-6)


CATEGORICAL = st.lists(st.floats(0.05, 1), min_size=4, max_size=4).map(lambda w: np.array(w) / sum(w))


@given(p=CATEGORICAL)
def test_entropy_equals_the_textbook_sum(p: np.ndarray) -> None:
    _, entropy_M = scored(torch.tensor(np.log(p))[None].float(), [1])
    assert entropy_M.item() == pytest.approx(float(-(p * np.log(p)).sum()), abs=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("by_entropy", [0.0, 0.3])
@pytest.mark.parametrize("chunk", [3, 16, 1000])
def test_values_and_gradients_are_those_of_a_plain_log_softmax(
    chunk: int, by_entropy: float, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    M, V = 37, 50
    monkeypatch.setitem(scoring.CHUNK_SCORES, "cpu", chunk * V)
    generator = torch.Generator().manual_seed(0)
    scores_MV = (3 * torch.randn(M, V, generator=generator)).requires_grad_()
    targets = torch.randint(V, (M,), generator=generator)
    weight_M = torch.randn(M, generator=generator)
    twin_MV = scores_MV.detach().clone().requires_grad_()

    logprob_M, entropy_M = scored(scores_MV, targets.tolist(), temperature=temperature)
    (logprob_M * weight_M + by_entropy * entropy_M * weight_M.abs()).sum().backward()
    log_softmax_MV = (twin_MV / temperature).log_softmax(-1)
    expected_M = log_softmax_MV.gather(1, targets[:, None])[:, 0]
    entropies_M = -(log_softmax_MV.exp() * log_softmax_MV).sum(-1)
    (expected_M * weight_M + by_entropy * entropies_M * weight_M.abs()).sum().backward()

    torch.testing.assert_close(logprob_M, expected_M, atol=1e-5, rtol=0)
    torch.testing.assert_close(entropy_M, entropies_M, atol=1e-5, rtol=0)
    torch.testing.assert_close(scores_MV.grad, twin_MV.grad, atol=1e-6, rtol=1e-5)


def test_a_score_that_is_not_a_number_is_not_hidden() -> None:
    """It must reach the loss, where the step is skipped and the sample named (bug-log row 67)."""
    logprob_M, entropy_M = scored(torch.tensor([[0.0, math.nan, 1.0], [0.0, 0.0, 0.0]]), [0, 0])
    assert logprob_M.isnan().tolist() == [True, False]
    assert entropy_M.isnan().tolist() == [True, False]
