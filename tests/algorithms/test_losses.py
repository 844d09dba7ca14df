"""Every loss by hand, against a direct formula in plain floats, and where its gradient goes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ragen.algorithms.config import LOSSES, LossConfig
from ragen.algorithms.losses import (
    cispo,
    clipped_where,
    gspo,
    log_ratio,
    mean_by_owner,
    outside,
    policy_term,
    ppo,
    sapo,
    sequence_ratio,
)

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
CONFIGS = {
    "ppo": LossConfig(),
    "dual": LossConfig(dual_clip=3.0),
    "gspo": LossConfig(name="gspo", clip_low=0.03, clip_high=0.04),
    "cispo": LossConfig(name="cispo", clip_low=1.0, clip_high=3.0),
    "sapo": LossConfig(name="sapo"),
}


def tensor(*values: float, grad: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=grad)


def logs(*values: float, grad: bool = False) -> Tensor:
    return tensor(*(math.log(v) for v in values), grad=grad)


def owners(*lengths: int) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def of(config: LossConfig, new: Tensor, old: Tensor, advantages: Tensor, owner: Tensor | None = None) -> Tensor:
    owner = torch.zeros(len(new), dtype=torch.long) if owner is None else owner
    return policy_term(new, old, advantages, owner, config).loss_M


def slope(config: LossConfig, ratio: float, advantage: float) -> float:
    """d loss / d log pi of a sample of one token."""
    new = tensor(math.log(ratio), grad=True)
    of(config, new, tensor(0.0), tensor(advantage)).sum().backward()
    assert new.grad is not None
    return new.grad.item()


# -- by hand -----------------------------------------------------------------------------------------------------------------


def test_ppo_by_hand() -> None:
    """Old probability 0.5. Ratio 1.5, A 2: cut at 1.28 -> -2.56. Ratio 1.5, A -2: 3. Ratio 0.5, A 2: -1. Ratio 0.5, A -2: cut at
    0.8 -> 1.6. Ratio 1.2, A 1: inside -> -1.2."""
    new, old = logs(0.75, 0.75, 0.25, 0.25, 0.6), logs(0.5, 0.5, 0.5, 0.5, 0.5)
    loss = ppo(new, old, tensor(2, -2, 2, -2, 1), **CLIP)
    torch.testing.assert_close(loss, tensor(-2.56, 3.0, -1.0, 1.6, -1.2))


def test_the_gradient_of_ppo_stops_only_where_the_ratio_has_gone_too_far_already() -> None:
    """d(-A r)/d(log pi) = -A r; none beyond the upper bound with A > 0, nor below the lower one with A < 0."""
    new = logs(0.75, 0.75, 0.25, 0.25, 0.5, 0.5, grad=True)
    ppo(new, logs(*[0.5] * 6), tensor(2, -2, 2, -2, 3, -3), **CLIP).sum().backward()
    torch.testing.assert_close(new.grad, tensor(0, 3, -1, 0, -3, 3))


def test_the_dual_clip_by_hand() -> None:
    """A -2, c 3. Ratio 5: 10, cut at 6, no gradient. Ratio 2: 4 as without. A +2 and ratio 5: -2.56 as without, c has no say."""
    new = logs(0.5, 0.2, 0.5, grad=True)
    loss = ppo(new, logs(0.1, 0.1, 0.1), tensor(-2, -2, 2), **CLIP, dual_clip=3.0)
    torch.testing.assert_close(loss, tensor(6, 4, -2.56))
    loss.sum().backward()
    torch.testing.assert_close(new.grad, tensor(0, 4, 0))


def test_gspo_by_hand() -> None:
    """Two samples. The first has ratios 2 and 1/2: s = sqrt(2 * 1/2) = 1, although PPO would cut both. The second has ratios 4, 1
    and 1: s = 4^(1/3) = 1.587401; A 1: cut at 1.28. With A -1 it is 1.587401, a third of whose gradient comes from each token."""
    new, old, owner = logs(0.8, 0.2, 0.8, 0.3, 0.4, grad=True), logs(0.4, 0.4, 0.2, 0.3, 0.4), owners(2, 3)
    s = 4 ** (1 / 3)
    torch.testing.assert_close(sequence_ratio(new, old, owner), tensor(1, 1, s, s, s))
    loss = gspo(new, old, tensor(2, 2, 1, 1, 1), owner, **CLIP)
    torch.testing.assert_close(loss, tensor(-2, -2, -1.28, -1.28, -1.28))
    loss.sum().backward()
    torch.testing.assert_close(new.grad, tensor(-2, -2, 0, 0, 0))
    other = logs(0.8, 0.3, 0.4, grad=True)
    loss = gspo(other, old[2:], tensor(-1, -1, -1), owners(3), **CLIP)
    torch.testing.assert_close(loss, tensor(s, s, s))
    loss.mean().backward()
    torch.testing.assert_close(other.grad, tensor(s / 3, s / 3, s / 3))


def test_cispo_by_hand() -> None:
    """Old 0.1, A 2, bounds [0, 4]. Ratio 5: weight 4, loss -4 * 2 * log 0.5 = 5.545177, gradient -8 where PPO has none. Ratio
    0.5: weight 0.5, loss -0.5 * 2 * log 0.05 = 2.995732, gradient -1. A -2 and ratio 5: gradient +8."""
    new = logs(0.5, 0.05, 0.5, grad=True)
    loss = cispo(new, logs(0.1, 0.1, 0.1), tensor(2, 2, -2), clip_low=1.0, clip_high=3.0)
    torch.testing.assert_close(loss, tensor(5.545177, 2.995732, -5.545177))
    loss.sum().backward()
    torch.testing.assert_close(new.grad, tensor(-8, -1, 8))


def test_sapo_by_hand() -> None:
    """At ratio 1 the gate is 1/2: -A 4 / t / 2 = -2 for A 1, t 1, and 2 / 1.05 = 1.904762 for A -1; the gradient is that of
    PPO. At ratio 3, A 1: sigmoid(2) = 0.880797, loss -3.523188, gradient -4 * 0.880797 * 0.119203 * 3 = -1.259924, not -3."""
    new = logs(0.1, 0.1, 0.3, grad=True)
    loss = sapo(new, logs(0.1, 0.1, 0.1), tensor(1, -1, 1), positive=1.0, negative=1.05)
    torch.testing.assert_close(loss, tensor(-2, 1.904762, -3.523188))
    loss.sum().backward()
    torch.testing.assert_close(new.grad, tensor(-1, 1, -1.259924))


# -- against plain formulas in double precision ------------------------------------------------------------------------------


def by_words(config: LossConfig, new: Sequence[float], old: Sequence[float], advantages: Sequence[float]) -> list[float]:
    """The losses of one sample, token by token, written as their papers put them and without a tensor."""
    ratios = [math.exp(n - o) for n, o in zip(new, old, strict=True)]
    low, high = 1 - config.clip_low, 1 + config.clip_high

    def surrogate(ratio: float, a: float) -> float:
        """A gain counts only up to the bound, a loss counts in full, but no more than c times."""
        if a >= 0:
            return -a * min(ratio, high)
        return -a * min(max(ratio, low), config.dual_clip or math.inf)

    match config.name:
        case "ppo":
            return [surrogate(r, a) for r, a in zip(ratios, advantages, strict=True)]
        case "gspo":
            s = math.prod(ratios) ** (1 / len(ratios))
            return [surrogate(s, a) for a in advantages]
        case "cispo":
            return [-min(max(r, low), high) * a * n for r, a, n in zip(ratios, advantages, new, strict=True)]
    temperatures = [config.temperature_pos if a > 0 else config.temperature_neg for a in advantages]
    return [-a * 4 / t / (1 + math.exp(-t * (r - 1))) for r, a, t in zip(ratios, advantages, temperatures, strict=True)]


LOGPROB = st.floats(-6, -0.01)
TOKENS = st.lists(st.tuples(LOGPROB, LOGPROB, st.floats(-4, 4)), min_size=1, max_size=6)


@pytest.mark.parametrize("name", CONFIGS)
@given(samples=st.lists(TOKENS, min_size=1, max_size=4))
def test_every_loss_equals_its_formula(name: str, samples: list[list[tuple[float, float, float]]]) -> None:
    config, tokens = CONFIGS[name], [token for sample in samples for token in sample]
    new, old, advantages = (tensor(*column, dtype=torch.float64) for column in zip(*tokens, strict=True))
    found = of(config, new, old, advantages, owners(*map(len, samples)))
    expected = [x for sample in samples for x in by_words(config, *(list(c) for c in zip(*sample, strict=True)))]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)
    single = of(config, new.float(), old.float(), advantages.float(), owners(*map(len, samples)))
    np.testing.assert_allclose(single.numpy(), expected, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["ppo", "dual", "sapo"])
@given(tokens=TOKENS)
def test_gradients_are_those_of_the_formula(name: str, tokens: list[tuple[float, float, float]]) -> None:
    """Central differences of the formula in words; kinks, where there is no gradient, are left out."""
    config = CONFIGS[name]
    columns = [list(column) for column in zip(*tokens, strict=True)]
    new, old, advantages = (tensor(*column, dtype=torch.float64) for column in columns)
    new.requires_grad_()
    of(config, new, old, advantages).sum().backward()
    assert new.grad is not None
    for i, (n, o, _) in enumerate(tokens):
        if any(abs(math.exp(n - o) - kink) < 1e-3 for kink in (0.8, 1.28, 3.0)):
            continue

        def at(x: float, i: int = i) -> float:
            return by_words(config, [*columns[0][:i], x, *columns[0][i + 1 :]], columns[1], columns[2])[i]

        assert new.grad[i].item() == pytest.approx((at(n + 1e-6) - at(n - 1e-6)) / 2e-6, rel=1e-4, abs=1e-5)


def test_the_gradient_of_gspo_is_that_of_the_ratio_itself() -> None:
    """Of the mean over a sample with one advantage, by differentiating exp(mean log ratio) directly (GSPO, eq. 7)."""
    new = tensor(-1.0, -2.0, -0.5, grad=True, dtype=torch.float64)
    old, a = tensor(-1.01, -1.98, -0.5, dtype=torch.float64), tensor(1.5, 1.5, 1.5, dtype=torch.float64)
    (found,) = torch.autograd.grad(gspo(new, old, a, owners(3), clip_low=0.1, clip_high=0.1).mean(), new)
    (expected,) = torch.autograd.grad(-1.5 * (new - old).mean().exp(), new)
    torch.testing.assert_close(found, expected)


# -- directions, zeros, extremes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_at_ratio_one_every_loss_pushes_alike(name: str, advantage: float) -> None:
    """Bug-log row 70: a good token becomes likelier, a bad one rarer; on-policy the slope is -A for all of them."""
    assert slope(CONFIGS[name], 1.0, advantage) == pytest.approx(-advantage, rel=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
@given(ratio=st.floats(0.01, 50), advantage=st.floats(-5, 5))
def test_no_loss_ever_pushes_the_wrong_way(name: str, ratio: float, advantage: float) -> None:
    assert slope(CONFIGS[name], ratio, advantage) * advantage <= 0


@pytest.mark.parametrize("name", CONFIGS)
@given(ratio=st.floats(0.01, 50))
def test_an_advantage_of_zero_gives_a_gradient_of_exactly_zero(name: str, ratio: float) -> None:
    assert slope(CONFIGS[name], ratio, 0.0) == 0


@pytest.mark.parametrize("name", CONFIGS)
@given(tokens=TOKENS, weight=st.sampled_from([0.0, 0.25, 2.0, 8.0]))
def test_every_loss_is_linear_in_the_advantage(name: str, tokens: list[tuple[float, float, float]], weight: float) -> None:
    """So that weights may be multiplied into it; the factors are powers of two, which round nothing."""
    new, old, advantages = (tensor(*column) for column in zip(*tokens, strict=True))
    torch.testing.assert_close(of(CONFIGS[name], new, old, advantages * weight), of(CONFIGS[name], new, old, advantages) * weight)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("new", "old"), [(-200.0, -1.0), (-1.0, -200.0), (0.0, -1e30), (-1e30, 0.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_a_ratio_far_out_stays_finite_in_value_and_gradient(
    name: str, new: float, old: float, dtype: torch.dtype, advantage: float
) -> None:
    """Bug-log row 65: exp of a log-ratio of 199 overflows in float32."""
    new_M = tensor(new, dtype=dtype, grad=True)
    term = of(CONFIGS[name], new_M, tensor(old, dtype=dtype), tensor(advantage, dtype=dtype))
    (gradient,) = torch.autograd.grad(term.sum(), new_M)
    assert bool(term.isfinite().all())
    assert bool(gradient.isfinite().all())


def test_the_log_ratio_is_bounded_on_both_sides_and_exact_between() -> None:
    found = log_ratio(tensor(-200, -1, -1, -3), tensor(-1, -200, -1.5, -1))
    assert found.tolist() == [-20, 20, 0.5, -2]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_value_that_is_no_number_is_not_hidden(name: str) -> None:
    """What is not finite must reach the check that skips the step, not be turned into a bound."""
    assert of(CONFIGS[name], tensor(math.nan), tensor(0), tensor(1)).isnan().all()
    assert of(CONFIGS[name], tensor(0), tensor(math.nan), tensor(1)).isnan().all()
    assert of(CONFIGS[name], tensor(0), tensor(0), tensor(math.nan)).isnan().all()


@pytest.mark.parametrize("name", CONFIGS)
def test_no_token_at_all_is_no_loss(name: str) -> None:
    """Bug-log row 66: zero, with a gradient that is finite because it is empty."""
    new = torch.zeros(0, requires_grad=True)
    total = of(CONFIGS[name], new, torch.zeros(0), torch.zeros(0)).sum()
    total.backward()
    assert total.item() == 0
    assert new.grad is not None
    assert new.grad.shape == (0,)


# -- who depends on whom -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
@given(samples=st.lists(TOKENS, min_size=2, max_size=4))
def test_no_sample_depends_on_another(name: str, samples: list[list[tuple[float, float, float]]]) -> None:
    """So the result of an optimiser step cannot depend on how it is split (bug-log row 71)."""
    config = CONFIGS[name]

    def loss(parts: list[list[tuple[float, float, float]]]) -> Tensor:
        new, old, advantages = (tensor(*c) for c in zip(*(token for part in parts for token in part), strict=True))
        return of(config, new, old, advantages, owners(*map(len, parts)))

    torch.testing.assert_close(loss(samples), torch.cat([loss([sample]) for sample in samples]))


def test_only_gspo_mixes_the_tokens_of_a_sample() -> None:
    new, old, advantages = logs(0.3, 0.6, 0.9), logs(0.31, 0.61, 0.95), tensor(1, -1, 2)
    for name, config in CONFIGS.items():
        whole = of(config, new, old, advantages)
        apart = of(config, new, old, advantages, owners(1, 1, 1))
        assert torch.equal(whole, apart) == (name != "gspo")


def test_tokens_of_a_sample_may_stand_anywhere() -> None:
    new, old, a, owner = logs(0.3, 0.6, 0.9, 0.2), logs(0.31, 0.6, 0.91, 0.2), tensor(1, -1, 2, 1), owners(2, 2)
    order = torch.tensor([2, 0, 3, 1])
    expected = gspo(new, old, a, owner, clip_low=0.02, clip_high=0.02)[order]
    torch.testing.assert_close(gspo(new[order], old[order], a[order], owner[order], clip_low=0.02, clip_high=0.02), expected)


def test_the_mean_by_owner() -> None:
    assert mean_by_owner(tensor(1, 2, 6), torch.tensor([1, 0, 1])).tolist() == [3.5, 2, 3.5]
    assert mean_by_owner(tensor(1, 2), torch.tensor([3, 3])).tolist() == [1.5, 1.5]


# -- where the bounds act ----------------------------------------------------------------------------------------------------


@given(ratio=st.floats(0.01, 10), advantage=st.sampled_from([-1.0, 0.0, 1.0]))
def test_what_is_counted_as_clipped_is_where_the_gradient_is_gone(ratio: float, advantage: float) -> None:
    gradient = slope(LossConfig(), ratio, advantage)
    term = policy_term(logs(ratio), tensor(0), tensor(advantage), owners(1), LossConfig())
    assert term.low_M is not None
    assert term.high_M is not None
    assert bool(term.low_M | term.high_M) == (advantage != 0 and gradient == 0)
    assert not bool(term.low_M & term.high_M)
    assert bool(term.low_M) == (ratio < 0.8 and advantage < 0 and gradient == 0)


def test_each_loss_says_where_its_bounds_act() -> None:
    """Ratios 0.5 and 2, one sample each with advantages 1 and -1: PPO cuts two of four, CISPO limits all, SAPO has no bound."""
    ratios, advantages = logs(0.5, 0.5, 2, 2), tensor(1, -1, 1, -1)
    zero, owner = torch.zeros(4), owners(1, 1, 1, 1)
    cut = policy_term(ratios, zero, advantages, owner, LossConfig())
    assert [x.tolist() for x in (cut.low_M, cut.high_M)] == [[False, True, False, False], [False, False, True, False]]  # type: ignore[union-attr]
    limited = policy_term(ratios, zero, advantages, owner, LossConfig(name="cispo"))
    assert [x.tolist() for x in (limited.low_M, limited.high_M)] == [[True, True, False, False], [False, False, True, True]]  # type: ignore[union-attr]
    free = policy_term(ratios, zero, advantages, owner, LossConfig(name="sapo"))
    assert (free.low_M, free.high_M) == (None, None)
    together = policy_term(ratios, zero, advantages, owners(4), CONFIGS["gspo"])  # a mean ratio of 1
    assert together.low_M is not None
    assert not together.low_M.any()
    low, high = outside(tensor(0.7, 1, 1.3), **CLIP)
    assert (low.tolist(), high.tolist()) == ([True, False, False], [False, False, True])
    assert [x.tolist() for x in clipped_where(tensor(0.7, 1.3), tensor(1, -1), **CLIP)] == [[False, False]] * 2


def test_every_name_on_offer_is_built_and_no_other() -> None:
    for name in LOSSES:
        assert of(LossConfig(name=name), tensor(-1), tensor(-1), tensor(1)).isfinite().all()
    with pytest.raises(ValueError, match=r"'trpo': must be one of ppo, gspo, cispo, sapo"):
        of(LossConfig(name="trpo"), tensor(-1), tensor(-1), tensor(1))
