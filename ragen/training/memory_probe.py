"""What one forward pass of the update keeps for its backward pass, counted on a few small packs.

Counting the very tensors that autograd saves holds for every architecture, number format and tuning, and needs no model of any of
them. Bytes shared by several tensors count once, weights not at all: they are there anyway. The attention keeps no scores
(models/packed_attention.py), so that what is kept grows with the tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ragen.models.policy import Policy
from ragen.training.memory_plan import UpdateCost
from ragen.training.packing import Pack

SIZES = ((32, 2, 32), (32, 4, 32), (64, 2, 32), (64, 1, 64))  # (prompt, continuations, tokens of each)
AT_ONCE = 4  # float32 copies of one chunk's scores in its backward pass: scores, their logarithms, the gradient, its product


def measure_cost(policy: Policy, loss_terms: Callable[[Pack], tuple[Tensor, ...]], *, scores_at_once: int) -> UpdateCost:
    """Fit the bytes that `loss_terms` saves, the update's own forward pass, to the tokens of small packs.

    `scores_at_once`: scores over the vocabulary that exist at the same time. Weights and generators stay as they are. What
    layers make once and keep, such as copies of weights in a faster layout, is there afterwards: ask what is free behind this.
    """
    _warm_up(policy, loss_terms(random_pack(policy, *SIZES[0])))
    rows, saved = [], []
    for prompt, count, length in SIZES:
        part = random_pack(policy, prompt, count, length)
        saved.append(saved_bytes(policy, lambda part=part: loss_terms(part)))  # type: ignore[misc]
        tokens = count * length
        rows.append((prompt + tokens, tokens, 1))
    fitted, *_ = np.linalg.lstsq(np.array(rows, dtype=float), np.array(saved, dtype=float), rcond=None)
    per_token, per_trained, constant = (max(0.0, float(value)) for value in fitted)
    at_once = AT_ONCE * 4 * scores_at_once + int(constant)
    return UpdateCost(per_token=per_token, per_trained=per_trained, at_once=at_once)


def _warm_up(policy: Policy, terms: tuple[Tensor, ...]) -> None:
    """One backward pass, whose gradients are thrown away."""
    torch.stack([term.sum() for term in terms]).sum().backward()
    for parameter in policy.trainable().values():
        parameter.grad = None


def saved_bytes(policy: Policy, forward: Callable[[], object]) -> int:
    """Bytes that autograd keeps after `forward`, while its result lives."""
    weights = {p.untyped_storage().data_ptr() for p in policy.module.parameters()}
    kept: dict[int, tuple[int, Tensor]] = {}  # the tensors too, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept.setdefault(storage.data_ptr(), (storage.nbytes(), tensor))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()
    del result
    return sum(size for size, _ in kept.values())


def random_pack(policy: Policy, prompt: int, count: int, length: int) -> Pack:
    """A prompt with equal continuations whose every token is trained; the ids are of no matter."""
    device = policy.device
    tokens = count * length
    ids_L = (torch.arange(prompt + tokens, device=device) * 7) % policy.num_ids
    positions = [torch.arange(prompt, device=device), torch.arange(prompt, prompt + length, device=device).repeat(count)]
    return Pack(
        samples=(),
        ids_L=ids_L,
        positions_L=torch.cat(positions),
        prompt_length=prompt,
        lengths=(length,) * count,
        predictor_M=torch.arange(prompt, prompt + tokens, device=device),
        target_M=ids_L[prompt:],
        old_logprob_M=torch.zeros(tokens, device=device),
        advantage_M=torch.ones(tokens, device=device),
        sample_M=torch.zeros(tokens, dtype=torch.long, device=device),
    )
