"""Exact sampling from a batch of scores, and the log-prob of what was sampled.

Axes: B requests, V vocabulary, C blocks of the vocabulary, W tokens per block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ragen.records import Sampling

BLOCK = 256
ROWS = {"cpu": 8}  # requests whose scores are worked on at a time, so that they stay in the processor's cache


def check(sampling: Sampling) -> None:
    """Raise ValueError for values that nothing can be sampled with."""
    for name, right, allowed in (
        ("max_new_tokens", sampling.max_new_tokens >= 1, "at least 1"),
        ("temperature", 0 <= sampling.temperature < math.inf, "at least 0"),
        ("top_p", 0 < sampling.top_p <= 1, "above 0 and at most 1"),
        ("top_k", sampling.top_k >= 0, "at least 0"),
    ):
        if not right:
            raise ValueError(f"sampling.{name}={getattr(sampling, name)}: must be {allowed}")


def random_stream(sampling: Sampling) -> np.ndarray:
    """The uniform numbers [max_new_tokens] in [0, 1) that decide a request's tokens: a function of its seed alone."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(sampling.seed)))
    return generator.random(sampling.max_new_tokens)


def sample(logits_BV: Tensor, requests: Sequence[Sampling], uniform_B: Sequence[float]) -> tuple[list[int], list[float]]:
    """Draw one token per row; return the ids and the log-probs under the distribution drawn from.

    logits_BV: float32, before temperature. Temperature 0 takes the best token, with log-prob 0. Rows must be finite.
    """
    ids: list[int] = []
    logprobs: list[float] = []
    rows = ROWS.get(logits_BV.device.type, len(requests))
    for start in range(0, len(requests), rows):
        part = slice(start, start + rows)
        drawn = _sample(logits_BV[part], requests[part], uniform_B[part])
        ids += drawn[0]
        logprobs += drawn[1]
    return ids, logprobs


def _sample(logits_BV: Tensor, requests: Sequence[Sampling], uniform_B: Sequence[float]) -> tuple[list[int], list[float]]:
    scaled_BV = logits_BV - logits_BV.amax(-1, keepdim=True)
    if any(r.temperature not in (0, 1) for r in requests):
        temperature_B1 = torch.tensor([[r.temperature or 1.0] for r in requests], dtype=torch.float32, device=logits_BV.device)
        scaled_BV /= temperature_B1.clamp_(min=torch.finfo(torch.float32).tiny)
    scaled_BV = _truncate(scaled_BV, requests)
    ids_B, logprobs_B = _inverse_cdf(scaled_BV, torch.tensor(uniform_B, dtype=torch.float64, device=logits_BV.device))
    if any(r.temperature == 0 for r in requests):
        greedy_B = torch.tensor([r.temperature == 0 for r in requests], device=logits_BV.device)
        ids_B = torch.where(greedy_B, logits_BV.argmax(-1), ids_B)
        logprobs_B = torch.where(greedy_B, 0.0, logprobs_B)
    return ids_B.tolist(), logprobs_B.tolist()


def _inverse_cdf(scaled_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Two-level draw: first the block of the vocabulary, then the token inside it. Costs one pass over the scores.

    A token of probability 0 is never drawn: both levels look for the first cumulative sum strictly above the target.
    The best score of each row is 0, so nothing overflows.
    """
    V = scaled_BV.shape[1]
    weights_BV = scaled_BV.exp()
    if V % BLOCK:
        weights_BV = torch.nn.functional.pad(weights_BV, (0, BLOCK - V % BLOCK))
    weights_BCW = weights_BV.unflatten(1, (-1, BLOCK))
    blocks_BC = weights_BCW.sum(-1).double()
    edges_BC = blocks_BC.cumsum(-1)
    total_B1 = edges_BC[:, -1:]
    target_B1 = uniform_B[:, None] * total_B1
    block_B1 = torch.searchsorted(edges_BC, target_B1, right=True).clamp_(max=edges_BC.shape[1] - 1)
    size_B1 = blocks_BC.gather(1, block_B1)
    share_B1 = ((target_B1 - edges_BC.gather(1, block_B1) + size_B1) / size_B1).clamp_(0.0, 1.0 - 1e-12)
    inside_BW = weights_BCW.gather(1, block_B1[:, :, None].expand(-1, -1, BLOCK))[:, 0].double().cumsum(-1)
    token_B1 = torch.searchsorted(inside_BW, share_B1 * inside_BW[:, -1:], right=True)
    ids_B1 = block_B1 * BLOCK + token_B1
    logprobs_B1 = scaled_BV.gather(1, ids_B1) - total_B1.log().float()
    return ids_B1[:, 0], logprobs_B1[:, 0]


def _truncate(scaled_BV: Tensor, requests: Sequence[Sampling]) -> Tensor:
    """Set to -inf what top-k and top-p leave out, in the rows that ask for it. Top-k comes first, as in other libraries."""
    rows = [i for i, r in enumerate(requests) if r.temperature > 0 and (r.top_k > 0 or r.top_p < 1)]
    if not rows:
        return scaled_BV
    scaled_BV = scaled_BV.clone()
    for i in rows:
        scores_V, order_V = scaled_BV[i].sort(descending=True, stable=True)
        keep = requests[i].top_k or len(scores_V)
        if requests[i].top_p < 1:
            probs_V = scores_V[:keep].double().softmax(-1)
            keep = int((probs_V.cumsum(-1) - probs_V < requests[i].top_p).sum())  # the smallest set that reaches top_p
        scaled_BV[i, order_V[keep:]] = -torch.inf
    return scaled_BV
