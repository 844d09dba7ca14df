from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ragen.algorithms.importance import Correction, importance_weights


def logs(*values: float) -> Tensor:
    return torch.tensor([math.log(v) for v in values])


def correct(
    learner: Tensor, engine: Tensor, *owner: int, cap: float | None = None, low: float | None = None, high: float | None = None
) -> Correction:
    return importance_weights(learner, engine, torch.tensor(owner, dtype=torch.long), cap=cap, low=low, high=high)


def test_the_token_cap_by_hand() -> None:
    """Learner 0.5, 0.1, 0.3 against engine 0.1, 0.2, 0.3: ratios 5, 1/2, 1; only the first meets the cap of 2."""
    found = correct(logs(0.5, 0.1, 0.3), logs(0.1, 0.2, 0.3), 0, 0, 1, cap=2.0)
    torch.testing.assert_close(found.weight_M, torch.tensor([2.0, 0.5, 1.0]))
    assert found.capped_M.tolist() == [True, False, False]
    assert found.masked_M.tolist() == [False] * 3


def test_the_mask_by_hand() -> None:
    """Sample 0 has ratios 4 and 1/4, mean 1: kept, whatever the single tokens. Sample 1: 1.02 and 1, mean 1.00995: kept below
    1.01. Sample 2: 1.021, above. Sample 3: 0.98, below."""
    learner = logs(0.4, 0.1, 0.51, 0.5, 0.5105, 0.49)
    engine = logs(0.1, 0.4, 0.5, 0.5, 0.5, 0.5)
    found = correct(learner, engine, 0, 0, 1, 1, 2, 3, low=0.99, high=1.01)
    assert found.masked_M.tolist() == [False] * 4 + [True] * 2
    assert found.weight_M.tolist() == [1, 1, 1, 1, 0, 0]
    assert correct(learner, engine, 0, 0, 1, 1, 2, 3, low=0.99).masked_M.tolist() == [False] * 5 + [True]
    assert correct(learner, engine, 0, 0, 1, 1, 2, 3, high=1.01).masked_M.tolist() == [False] * 4 + [True, False]


def test_cap_and_mask_act_together() -> None:
    found = correct(logs(0.5, 0.5, 0.1), logs(0.1, 0.5, 0.5), 0, 0, 1, cap=2.0, low=0.5)
    torch.testing.assert_close(found.weight_M, torch.tensor([2.0, 1.0, 0.0]))


@pytest.mark.parametrize("cap", [None, 2.0])
def test_an_engine_that_agrees_needs_no_correction(cap: float | None) -> None:
    same = logs(0.3, 0.2, 0.9)
    assert correct(same, same, 0, 1, 1, cap=cap, low=0.99, high=1.01).weight_M.tolist() == [1, 1, 1]


@given(tokens=st.lists(st.tuples(st.floats(-8, 0), st.floats(-8, 0)), min_size=1, max_size=8), cap=st.floats(1, 5))
def test_weights_equal_the_formula(tokens: list[tuple[float, float]], cap: float) -> None:
    """In plain floats; the bounds of the mask are 0.8 and 1.25."""
    learner, engine = (torch.tensor(column, dtype=torch.float64) for column in zip(*tokens, strict=True))
    found = correct(learner, engine, *[0] * len(tokens), cap=cap, low=0.8, high=1.25)
    mean = math.exp(sum(a - b for a, b in tokens) / len(tokens))
    if min(abs(mean - 0.8), abs(mean - 1.25)) < 1e-9:
        return
    expected = [min(math.exp(a - b), cap) if 0.8 <= mean <= 1.25 else 0.0 for a, b in tokens]
    assert found.weight_M.tolist() == pytest.approx(expected)


def test_the_expectation_under_the_engine_is_that_under_the_learner() -> None:
    """What the weights are for. Without a cap that acts: sum over four outcomes of q (p / q) f = sum of p f."""
    p, q = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0.25, 0.25, 0.25, 0.25])
    values = torch.tensor([1.0, -2.0, 3.0, 0.5])
    weights = correct(p.log(), q.log(), 0, 1, 2, 3, cap=10.0).weight_M
    torch.testing.assert_close((q * weights * values).sum(), (p * values).sum())


def test_far_apart_stays_finite() -> None:
    """Bug-log row 65."""
    found = correct(torch.tensor([-1.0, -3e38]), torch.tensor([-200.0, 0.0]), 0, 1, cap=2.0)
    assert found.weight_M.tolist() == pytest.approx([2.0, 0.0], abs=1e-8)


def test_a_value_that_is_no_number_is_not_hidden() -> None:
    """It must reach the check that skips the step."""
    nan = torch.tensor([math.nan])
    assert correct(nan, torch.zeros(1), 0, cap=2.0, low=0.9, high=1.1).weight_M.isnan().all()


def test_no_token_at_all() -> None:
    """Bug-log row 66."""
    assert correct(torch.zeros(0), torch.zeros(0), cap=2.0, low=0.9, high=1.1).weight_M.tolist() == []
