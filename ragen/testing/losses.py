"""What every policy loss and KL term must keep, per token.

M runs over the sampled tokens of a batch; there is no mask, and nothing is averaged before the whole step is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.environments.checker.report import Report, require
from ragen.testing.run import NUM_SEEDS, OnFinding, run_checks

PolicyLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # new_M, old_M, advantages_M, owner_M -> loss_M
KlTerm = Callable[[Tensor, Tensor, Tensor], Tensor]  # new_M, old_M, reference_M -> loss_M

LENGTHS = (3, 1, 5, 2)  # tokens per sample
FAR = (-200.0, -1.0)  # two log-probs whose ratio no float32 holds


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Log-probs and advantages of a few samples, one after the other."""

    new_M: Tensor
    old_M: Tensor
    advantages_M: Tensor
    owner_M: Tensor  # which sample each token belongs to, counted from 0

    def pick(self, samples: Sequence[int]) -> tuple[Batch, Tensor]:
        """These samples in this order, and where their tokens stood."""
        places = torch.cat([(self.owner_M == sample).nonzero()[:, 0] for sample in samples])
        owner_M = torch.cat([torch.full((int((self.owner_M == s).sum()),), i) for i, s in enumerate(samples)])
        parts = (self.new_M[places], self.old_M[places], self.advantages_M[places])
        return Batch(new_M=parts[0], old_M=parts[1], advantages_M=parts[2], owner_M=owner_M), places


def batches(*, is_on_policy: bool = False) -> Iterator[Batch]:
    """Random ones; the ratios lie around 1, or are exactly 1."""
    for seed in range(NUM_SEEDS):
        generator = torch.Generator().manual_seed(seed)
        size = sum(LENGTHS)
        old_M = -3 * torch.rand(size, generator=generator) - 0.1
        moved_M = 0.0 if is_on_policy else 0.3 * torch.randn(size, generator=generator)
        owner_M = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
        advantages_M = torch.randn(size, generator=generator)
        yield Batch(new_M=old_M + moved_M, old_M=old_M, advantages_M=advantages_M, owner_M=owner_M)


def check_policy_loss(loss: PolicyLoss, *, name: str = "loss", on_finding: OnFinding | None = None) -> Report:
    """Check a policy loss per token: `loss(new_M, old_M, advantages_M, owner_M)` answers [M], to be minimised."""
    return run_checks(loss, POLICY_CHECKS.items(), name=name, on_finding=on_finding)


def check_kl_term(term: KlTerm, *, name: str = "kl", on_finding: OnFinding | None = None) -> Report:
    """Check a KL term of the loss per token: `term(new_M, old_M, reference_M)` answers [M], to be minimised."""
    return run_checks(term, KL_CHECKS.items(), name=name, on_finding=on_finding)


# -- policy losses -------------------------------------------------------------------------------------------------------------


def loss_answers(loss: PolicyLoss) -> str:
    """One finite number per token, with a gradient."""
    for batch in batches():
        loss_M, grad_M = _with_gradient(loss, batch)
        require(loss_M.shape == batch.new_M.shape, f"one loss per token: expected [{len(batch.new_M)}], got {list(loss_M.shape)}")
        require(bool(loss_M.isfinite().all() and grad_M.isfinite().all()), "a loss or gradient is not finite")
    return f"{NUM_SEEDS} batches"


def loss_of_nothing(loss: PolicyLoss) -> str:
    """A batch without a token has a loss without a token, and its sum is 0."""
    empty = torch.zeros(0)
    loss_M = loss(empty, empty, empty, torch.zeros(0, dtype=torch.long))
    require(loss_M.shape == (0,), f"no tokens must give no loss, not {loss_M.tolist()}")
    return "no tokens"


def loss_order(loss: PolicyLoss) -> str:
    """Samples in another order: the same loss for each of their tokens."""
    for batch in batches():
        moved, places = batch.pick([2, 0, 3, 1])
        _require_close(_with_gradient(loss, moved), _at(_with_gradient(loss, batch), places), "samples in another order")
    return "a permutation"


def loss_split(loss: PolicyLoss) -> str:
    """Samples in micro-batches of their own: the same loss for each of their tokens."""
    for batch in batches():
        whole = _with_gradient(loss, batch)
        for samples in ((0,), (1, 2), (3,)):
            part, places = batch.pick(samples)
            _require_close(_with_gradient(loss, part), _at(whole, places), f"samples {samples} by themselves")
    return "three micro-batches"


def zero_advantage(loss: PolicyLoss) -> str:
    """No advantage, no gradient, wherever the ratio is."""
    for batch in batches():
        nothing = Batch(new_M=batch.new_M, old_M=batch.old_M, advantages_M=0 * batch.advantages_M, owner_M=batch.owner_M)
        _, grad_M = _with_gradient(loss, nothing)
        require(not bool(grad_M.any()), f"advantages of 0 give the gradient {grad_M.tolist()}")
    return "no gradient"


def on_policy(loss: PolicyLoss) -> str:
    """Where nothing has moved yet, descent is the policy gradient: d loss / d log pi = -A at every token."""
    for batch in batches(is_on_policy=True):
        _, grad_M = _with_gradient(loss, batch)
        close = torch.allclose(grad_M, -batch.advantages_M, atol=1e-5, rtol=1e-4)
        require(close, f"at ratio 1 the gradient is {grad_M.tolist()}, not {(-batch.advantages_M).tolist()}")
    return "gradient -A at ratio 1"


def advantage_scale(loss: PolicyLoss) -> str:
    """Three times the advantage, three times the gradient."""
    for batch in batches():
        tripled = Batch(new_M=batch.new_M, old_M=batch.old_M, advantages_M=3 * batch.advantages_M, owner_M=batch.owner_M)
        loss_M, grad_M = _with_gradient(loss, batch)
        _require_close(_with_gradient(loss, tripled), (3 * loss_M, 3 * grad_M), "advantages times 3")
    return "advantages times 3"


def far_apart(loss: PolicyLoss) -> str:
    """Two policies that are as far apart as log-probs get: finite in float32 and bfloat16."""
    owner_M = torch.zeros(1, dtype=torch.long)
    for dtype in (torch.float32, torch.bfloat16):
        for new, old in (FAR, FAR[::-1]):
            for advantage in (1.0, -1.0):
                new_M, old_M, advantages_M = (torch.tensor([x], dtype=dtype) for x in (new, old, advantage))
                batch = Batch(new_M=new_M, old_M=old_M, advantages_M=advantages_M, owner_M=owner_M)
                _require_finite(_with_gradient(loss, batch), f"log-probs {new:g} and {old:g} in {dtype}")
    return f"log-probs {FAR[0]:g} and {FAR[1]:g}"


POLICY_CHECKS: Mapping[str, Callable[[PolicyLoss], str]] = {
    "answers": loss_answers,
    "no tokens": loss_of_nothing,
    "order of samples": loss_order,
    "split": loss_split,
    "zero advantage": zero_advantage,
    "on policy": on_policy,
    "advantage scale": advantage_scale,
    "far apart": far_apart,
}

# -- KL terms ------------------------------------------------------------------------------------------------------------------


def kl_at_home(term: KlTerm) -> str:
    """Where policy and reference agree there is nothing to pay, and nothing to gain."""
    for batch in batches(is_on_policy=True):
        loss_M, grad_M = _kl_with_gradient(term, batch.new_M, batch.old_M, batch.new_M)
        _require_close((loss_M, grad_M), (0 * loss_M, 0 * grad_M), "policy and reference equal")
    return "0 where both agree"


def kl_sign(term: KlTerm) -> str:
    """Descent leads to the reference: a token that the policy likes too much loses, one that it likes too little gains."""
    new_M, reference_M = torch.tensor([-0.5, -2.0]), torch.tensor([-1.0, -1.0])
    _, grad_M = _kl_with_gradient(term, new_M, new_M, reference_M)
    require(bool(grad_M[0] > 0 > grad_M[1]), f"log pi -0.5 and -2 beside a reference of -1: gradient {grad_M.tolist()}")
    return "towards the reference"


def kl_split(term: KlTerm) -> str:
    """Tokens by themselves cost what they cost together."""
    for batch in batches():
        whole = _kl_with_gradient(term, batch.new_M, batch.old_M, batch.old_M - 0.1)
        part = slice(2, 5)
        _require_close(
            _kl_with_gradient(term, batch.new_M[part], batch.old_M[part], batch.old_M[part] - 0.1),
            (whole[0][part], whole[1][part]),
            "three tokens by themselves",
        )
    return "three tokens by themselves"


def kl_far_apart(term: KlTerm) -> str:
    for dtype in (torch.float32, torch.bfloat16):
        for new, reference in (FAR, FAR[::-1]):
            new_M, reference_M = torch.tensor([new], dtype=dtype), torch.tensor([reference], dtype=dtype)
            for old_M in (new_M, reference_M):
                _require_finite(
                    _kl_with_gradient(term, new_M, old_M, reference_M), f"log-probs {new:g} and {reference:g} in {dtype}"
                )
    return f"log-probs {FAR[0]:g} and {FAR[1]:g}"


KL_CHECKS: Mapping[str, Callable[[KlTerm], str]] = {
    "at home": kl_at_home,
    "sign": kl_sign,
    "split": kl_split,
    "far apart": kl_far_apart,
}


def _with_gradient(loss: PolicyLoss, batch: Batch) -> tuple[Tensor, Tensor]:
    new_M = batch.new_M.clone().requires_grad_()
    loss_M = loss(new_M, batch.old_M, batch.advantages_M, batch.owner_M)
    (grad_M,) = torch.autograd.grad(loss_M.sum(), new_M)
    return loss_M.detach(), grad_M


def _kl_with_gradient(term: KlTerm, new_M: Tensor, old_M: Tensor, reference_M: Tensor) -> tuple[Tensor, Tensor]:
    leaf_M = new_M.clone().requires_grad_()
    loss_M = term(leaf_M, old_M, reference_M)
    (grad_M,) = torch.autograd.grad(loss_M.sum(), leaf_M)
    return loss_M.detach(), grad_M


def _at(answer: tuple[Tensor, Tensor], places: Tensor) -> tuple[Tensor, Tensor]:
    return answer[0][places], answer[1][places]


def _require_close(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], what: str) -> None:
    for kind, now, before in zip(("loss", "gradient"), found, expected, strict=True):
        same = now.shape == before.shape and torch.allclose(now, before, atol=1e-6, rtol=1e-5)
        require(same, f"{what}: the {kind} is {now.tolist()}, not {before.tolist()}")


def _require_finite(answer: tuple[Tensor, Tensor], what: str) -> None:
    for kind, numbers in zip(("loss", "gradient"), answer, strict=True):
        require(bool(numbers.isfinite().all()), f"{what}: the {kind} is {numbers.tolist()}")
