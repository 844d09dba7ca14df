"""Exact attention of one prompt and its continuations, with a backward pass that keeps no scores.

The prompt sees itself, a continuation sees the whole prompt and itself, causally. All continuations meet the prompt's keys in one
matrix product, so its keys and values are neither copied nor expanded. Scores exist for one block of queries at a time; the
backward pass computes them again from queries and keys, so memory grows with the tokens and not with their square. Plain batched
products beat the library's fused attention at these sizes: its backward pass takes about four times as long for 187 tokens.

Axes: H query heads, K key/value heads, R = H / K, D head width, N continuations, T their padded length, B queries of one block,
P prompt length, S keys of its own that a block can see. Queries of the heads that share keys lie together: [N, K, R * B, D].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK_SCORES = 2**21  # scores of one block of queries: 4 MiB in bfloat16, which stays in a processor's cache


class Keys(NamedTuple):
    """Keys and values of the prompt [K, P, D], if there is one, and of the rows themselves [N, K, T, D]."""

    k_KPD: Tensor | None
    v_KPD: Tensor | None
    k_NKTD: Tensor
    v_NKTD: Tensor

    @property
    def num_prompt(self) -> int:
        return 0 if self.k_KPD is None else self.k_KPD.shape[1]


def attend_rows(q_NHTD: Tensor, keys: Keys, scale: float, window: int | None) -> Tensor:
    """[N, H, T, D] -> [N, H, T, D]. No autograd: `rows_gradient` is its derivative."""
    out_NHTD = torch.empty(q_NHTD.shape, dtype=q_NHTD.dtype, device=q_NHTD.device)
    for start, stop in _blocks(q_NHTD, keys):
        q = _fold(q_NHTD[:, :, start:stop] * scale, keys.k_NKTD.shape[1])
        weights = _weights(q, keys, start, stop, window)
        out_NHTD[:, :, start:stop] = _unfold(_mix(weights, keys, stop), stop - start)
    return out_NHTD


def rows_gradient(
    grad_NHTD: Tensor, q_NHTD: Tensor, keys: Keys, scale: float, window: int | None
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
    """Gradients of q, the prompt's k and v, and the rows' own k and v, given that of the output. Sums over blocks are float32."""
    K, P = keys.k_NKTD.shape[1], keys.num_prompt
    dq_NHTD = torch.empty(q_NHTD.shape, dtype=q_NHTD.dtype, device=q_NHTD.device)
    own = [torch.zeros(keys.k_NKTD.shape, device=q_NHTD.device) for _ in range(2)]
    shared = [torch.zeros(keys.k_KPD.shape, device=q_NHTD.device) for _ in range(2)] if keys.k_KPD is not None else None
    for start, stop in _blocks(q_NHTD, keys):
        q, grad = _fold(q_NHTD[:, :, start:stop] * scale, K), _fold(grad_NHTD[:, :, start:stop], K)
        weights = _weights(q, keys, start, stop, window)
        grad_weights = _scores(grad, keys.v_KPD, keys.v_NKTD[:, :, :stop], grad.dtype)
        grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
        dq = torch.matmul(grad_scores[..., P:], keys.k_NKTD[:, :, :stop])
        own[0][:, :, :stop] += torch.matmul(grad_scores[..., P:].transpose(2, 3), q)
        own[1][:, :, :stop] += torch.matmul(weights[..., P:].transpose(2, 3), grad)
        if shared is not None and keys.k_KPD is not None:
            dq += _spread(torch.matmul(_gather(grad_scores[..., :P]), keys.k_KPD), len(q))
            shared[0] += torch.matmul(_gather(grad_scores[..., :P]).transpose(1, 2), _gather(q))
            shared[1] += torch.matmul(_gather(weights[..., :P]).transpose(1, 2), _gather(grad))
        dq_NHTD[:, :, start:stop] = _unfold(dq, stop - start) * scale
    dtype = q_NHTD.dtype
    dk_KPD, dv_KPD = (x.to(dtype) for x in shared) if shared is not None else (None, None)
    return dq_NHTD, dk_KPD, dv_KPD, own[0].to(dtype), own[1].to(dtype)


def _blocks(q_NHTD: Tensor, keys: Keys) -> Iterator[tuple[int, int]]:
    """Cut the T queries of every row so that a block has about BLOCK_SCORES scores."""
    N, H, T, _ = q_NHTD.shape
    size = max(16, BLOCK_SCORES // (N * H * (keys.num_prompt + T)))
    for start in range(0, T, size):
        yield start, min(start + size, T)


def _weights(q_NKMD: Tensor, keys: Keys, start: int, stop: int, window: int | None) -> Tensor:
    """The softmax [N, K, M, P + S] of queries start..stop-1, which are scaled already, over all that they may see (S = stop)."""
    P, B = keys.num_prompt, stop - start
    scores = _scores(q_NKMD, keys.k_KPD, keys.k_NKTD[:, :, :stop], torch.float32)
    query_B1 = torch.arange(P + start, P + stop, device=q_NKMD.device)[:, None]
    key_X = torch.arange(P + stop, device=q_NKMD.device)
    per_query = scores.unflatten(2, (-1, B))
    own_BS = key_X[P + start :] > query_B1
    per_query[..., P + start :].masked_fill_(own_BS, -torch.inf)  # what comes before the block is behind every query of it
    if window is not None:
        per_query.masked_fill_(key_X <= query_B1 - window, -torch.inf)
    return scores.softmax(-1).to(q_NKMD.dtype)


def _scores(q_NKMD: Tensor, k_KPD: Tensor | None, k_NKSD: Tensor, dtype: torch.dtype) -> Tensor:
    """Products with the prompt's keys and with the row's own: [N, K, M, P + S]."""
    own = torch.matmul(q_NKMD, k_NKSD.transpose(2, 3))
    if k_KPD is None:
        return own.to(dtype)
    P = k_KPD.shape[1]
    scores = own.new_empty(*own.shape[:3], P + own.shape[3], dtype=dtype)
    scores[..., :P] = _spread(torch.matmul(_gather(q_NKMD), k_KPD.transpose(1, 2)), len(q_NKMD))
    scores[..., P:] = own
    return scores


def _mix(weights_NKMX: Tensor, keys: Keys, stop: int) -> Tensor:
    """Values mixed by their weights: [N, K, M, D]."""
    P = keys.num_prompt
    out = torch.matmul(weights_NKMX[..., P:], keys.v_NKTD[:, :, :stop])
    if keys.v_KPD is not None:
        out += _spread(torch.matmul(_gather(weights_NKMX[..., :P]), keys.v_KPD), len(weights_NKMX))
    return out


def _gather(x_NKMX: Tensor) -> Tensor:
    """[N, K, M, X] -> [K, N * M, X]: all rows meet the prompt in one product."""
    return x_NKMX.transpose(0, 1).flatten(1, 2)


def _spread(x_KMX: Tensor, N: int) -> Tensor:
    """The inverse of `_gather`."""
    rows: Tensor = x_KMX.unflatten(1, (N, -1))
    return rows.transpose(0, 1)


def _fold(x_NHBD: Tensor, K: int) -> Tensor:
    """[N, H, B, D] -> [N, K, R * B, D]"""
    heads: Tensor = x_NHBD.unflatten(1, (K, -1))
    return heads.flatten(2, 3)


def _unfold(x_NKMD: Tensor, B: int) -> Tensor:
    """The inverse of `_fold`."""
    heads: Tensor = x_NKMD.unflatten(2, (-1, B))
    return heads.flatten(1, 2)


class PackedAttention(torch.autograd.Function):
    """Attention over flat tokens: a prompt [P], then its continuations. q [H, L, D], k and v [K, L, D] -> [L, H, D]."""

    @staticmethod
    def forward(ctx: Any, q_HLD: Tensor, k_KLD: Tensor, v_KLD: Tensor, layout: Any, scale: float, window: int | None) -> Tensor:
        ctx.save_for_backward(q_HLD, k_KLD, v_KLD)
        ctx.layout, ctx.scale, ctx.window = layout, scale, window
        P = layout.prompt_length
        on_prompt = attend_rows(q_HLD[None, :, :P], _of_prompt(k_KLD, v_KLD, P), scale, window)[0].transpose(0, 1)
        if layout.ragged is None:
            return on_prompt.contiguous()
        rows = attend_rows(layout.ragged.pad(q_HLD[:, P:]), _of_rows(k_KLD, v_KLD, layout), scale, window)
        return torch.cat([on_prompt, layout.ragged.flat(rows)])

    @staticmethod
    def backward(ctx: Any, grad_LHD: Tensor) -> tuple[Tensor | None, ...]:
        q_HLD, k_KLD, v_KLD = ctx.saved_tensors
        layout, scale, window = ctx.layout, ctx.scale, ctx.window
        P = layout.prompt_length
        grad_HLD = grad_LHD.transpose(0, 1)
        own = _of_prompt(k_KLD, v_KLD, P)
        dq, _, _, dk, dv = rows_gradient(grad_HLD[None, :, :P], q_HLD[None, :, :P], own, scale, window)
        if layout.ragged is None:
            return dq[0], dk[0], dv[0], None, None, None
        ragged = layout.ragged
        grad_rows = ragged.pad(grad_HLD[:, P:], blank=True)
        keys = _of_rows(k_KLD, v_KLD, layout)
        dq_rows, dk_prompt, dv_prompt, dk_rows, dv_rows = rows_gradient(grad_rows, ragged.pad(q_HLD[:, P:]), keys, scale, window)
        assert dk_prompt is not None and dv_prompt is not None
        whole = ((dq[0], dq_rows), (dk[0] + dk_prompt, dk_rows), (dv[0] + dv_prompt, dv_rows))
        return (*(torch.cat([a, ragged.flat(b).transpose(0, 1)], 1) for a, b in whole), None, None, None)


def _of_prompt(k_KLD: Tensor, v_KLD: Tensor, P: int) -> Keys:
    return Keys(None, None, k_KLD[None, :, :P], v_KLD[None, :, :P])


def _of_rows(k_KLD: Tensor, v_KLD: Tensor, layout: Any) -> Keys:
    P, pad = layout.prompt_length, layout.ragged.pad
    return Keys(k_KLD[:, :P], v_KLD[:, :P], pad(k_KLD[:, P:]), pad(v_KLD[:, P:]))
