from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ragen.algorithms.value_loss import explained_variance, value_clipped_where, value_loss

NUMBERS = st.integers(-800, 800).map(lambda eighths: eighths / 8)  # float32 computes with these exactly
BOUNDS = st.integers(1, 80).map(lambda eighths: eighths / 8)


def tensor(*values: float, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, requires_grad=grad)


def one(value: float, old: float, target: float, *, clip: float = 0.5, huber_delta: float = 0.0) -> float:
    return value_loss(tensor(value), tensor(old), tensor(target), clip=clip, huber_delta=huber_delta).item()


def test_the_clipped_squared_error_by_hand() -> None:
    """The worked example of docs/algorithms/critic.md: clip 0.5, V_old 0.

    | V    | R | plain             | clipped V | loss of it        | the larger |
    |------|---|-------------------|-----------|-------------------|------------|
    | 0.3  | 1 | 0.7^2 / 2 = 0.245 | 0.3       | the same          | 0.245      |
    | 0.8  | 1 | 0.2^2 / 2 = 0.02  | 0.5       | 0.5^2 / 2 = 0.125 | 0.125      |
    | -0.8 | 1 | 1.8^2 / 2 = 1.62  | -0.5      | 1.5^2 / 2 = 1.125 | 1.62       |
    """
    loss = value_loss(tensor(0.3, 0.8, -0.8), tensor(0, 0, 0), tensor(1, 1, 1), clip=0.5, huber_delta=0)
    torch.testing.assert_close(loss, tensor(0.245, 0.125, 1.62))


def test_the_gradient_stops_only_where_a_value_has_gone_far_enough_towards_its_target() -> None:
    """dl/dV = V - R; nothing for the second, which is 0.8 from its old value already. The third has gone the wrong way."""
    values, old, targets = tensor(0.3, 0.8, -0.8, grad=True), tensor(0, 0, 0), tensor(1, 1, 1)
    value_loss(values, old, targets, clip=0.5, huber_delta=0).sum().backward()
    torch.testing.assert_close(values.grad, tensor(-0.7, 0, -1.8))
    assert value_clipped_where(values, old, targets, clip=0.5).tolist() == [False, True, False]


def test_hubers_loss_by_hand() -> None:
    """Delta 1: an error of 0.5 costs 0.5^2 / 2 = 0.125, one of 3 costs 1 * (3 - 0.5) = 2.5, and pulls with 1 instead of 3."""
    values = tensor(0.5, -3.0, grad=True)
    loss = value_loss(values, tensor(0, 0), tensor(0, 0), clip=0, huber_delta=1)
    torch.testing.assert_close(loss, tensor(0.125, 2.5))
    loss.sum().backward()
    torch.testing.assert_close(values.grad, tensor(0.5, -1.0))


@given(value=NUMBERS, old=NUMBERS, target=NUMBERS, clip=BOUNDS, delta=BOUNDS)
def test_it_is_the_larger_of_two_losses_of_torch(value: float, old: float, target: float, clip: float, delta: float) -> None:
    """Against torch.nn.functional.mse_loss and huber_loss."""
    near = min(max(value, old - clip), old + clip)
    squared = [torch.nn.functional.mse_loss(tensor(v), tensor(target)).item() / 2 for v in (value, near)]
    huber = [torch.nn.functional.huber_loss(tensor(v), tensor(target), delta=delta).item() for v in (value, near)]
    assert one(value, old, target, clip=clip) == pytest.approx(max(squared), rel=1e-4, abs=1e-4)
    assert one(value, old, target, clip=clip, huber_delta=delta) == pytest.approx(max(huber), rel=1e-4, abs=1e-4)
    assert one(value, old, target, clip=0) == pytest.approx(squared[0], rel=1e-4, abs=1e-4)


@given(value=NUMBERS, old=NUMBERS, target=NUMBERS, clip=BOUNDS, delta=st.sampled_from([0.0, 0.5]))
def test_where_it_counts_as_clipped_there_is_no_gradient_and_elsewhere_there_is(
    value: float, old: float, target: float, clip: float, delta: float
) -> None:
    values = tensor(value, grad=True)
    value_loss(values, tensor(old), tensor(target), clip=clip, huber_delta=delta).sum().backward()
    clipped = value_clipped_where(values.detach(), tensor(old), tensor(target), clip=clip).item()
    assert values.grad is not None
    if clipped:
        assert values.grad.item() == 0
    elif value != target:
        assert values.grad.item() * (tensor(value) - tensor(target)).item() > 0  # a step down the gradient goes to the target


def test_without_a_clip_nothing_counts_as_clipped() -> None:
    assert not value_clipped_where(tensor(9.0), tensor(0.0), tensor(10.0), clip=0).any()


def test_explained_variance_by_hand() -> None:
    """Targets 0 and 2, variance 1. Perfect: 1. A constant: 0. Values 2 and 0 leave errors -2 and 2, variance 4: -3. An offset
    costs nothing; values 0.5 and 1.5 leave errors -0.5 and 0.5, a quarter."""
    targets = tensor(0, 2)
    found = [explained_variance(v, targets) for v in (tensor(0, 2), tensor(7, 7), tensor(2, 0), tensor(5, 7), tensor(0.5, 1.5))]
    assert found == [1, 0, -3, 1, 0.75]


@pytest.mark.parametrize("targets", [[3.0], [0.0, 0.0], [0.1 + 0.2, 0.3], [1e8, 1e8 + 8]])
def test_equal_targets_leave_nothing_to_explain(targets: list[float]) -> None:
    """Equal up to rounding: the log leaves the number out instead of showing 1 - 0/0."""
    assert explained_variance(torch.zeros(len(targets)), tensor(*targets)) is None


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_explained_variance_is_finite_or_absent_and_at_most_one(pairs: list[tuple[float, float]]) -> None:
    values, targets = zip(*pairs, strict=True)
    found = explained_variance(tensor(*values), tensor(*targets))
    assert found is None or (math.isfinite(found) and found <= 1)
