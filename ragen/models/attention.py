"""One attention function for sampling and for training, plugged into transformers' own modules.

Every model of the library that uses `transformers.AttentionInterface` calls `attend` with the queries, keys and values of the
tokens given in this call, laid out flat as one row of L tokens. What those tokens may look at is decided by a *view*, which
travels through the model as the keyword argument `kv_view`:

- `PackedView`: one prompt followed by any number of continuations of it. The prompt is encoded once, with gradients, and
  serves all of them. Used to prefill prompts, to score and to train.
- `DecodeView` (engines/kv_cache.py): rows of a running batch, whose earlier keys and values are in a cache.

Axes: L flat tokens, H query heads, K key/value heads, R = H / K, D head width, N rows (continuations), T their padded length,
G prompts, P padded prompt length, S padded length of what a row has beside its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface

from ragen.models.packed_attention import PackedAttention

IMPLEMENTATION = "ragen"


class KVView(Protocol):
    """Decides what the tokens of one forward call attend to."""

    def attend(self, layer: int, q_HLD: Tensor, k_KLD: Tensor, v_KLD: Tensor, scale: float, window: int | None) -> Tensor:
        """Return the attention output [L, H, D]. `window`: how many tokens back a token may look, itself included."""
        ...


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    kv_view: KVView | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The function registered with transformers: query [1, H, L, D], key and value [1, K, L, D] -> [1, L, H, D]."""
    if kv_view is None or query.shape[0] != 1:
        raise ValueError("a model loaded for RAGEN is called through Policy, with one flat row of tokens and a kv_view")
    if softcap is not None or dropout:
        raise ValueError("attention soft-capping and attention dropout are not supported")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    return kv_view.attend(layer, query[0], key[0], value[0], scale, sliding_window)[None], None


AttentionInterface.register(IMPLEMENTATION, attend)


class Ragged:
    """Rows of unequal length laid out flat, and their padded [N, T] form. Every row has at least one token."""

    def __init__(self, lengths: Sequence[int], device: torch.device | str) -> None:
        assert lengths and min(lengths) > 0, lengths
        self.width = max(lengths)
        lengths_N = torch.tensor(lengths, dtype=torch.long, device=device)
        starts_N = lengths_N.cumsum(0) - lengths_N
        step_T = torch.arange(self.width, device=device)
        inside_NT = step_T < lengths_N[:, None]
        self.is_rectangle = bool(inside_NT.all())
        self._inside_NT = inside_NT
        self._token_NT = torch.where(inside_NT, starts_N[:, None] + step_T, starts_N[:, None])
        self._cell_L = inside_NT.flatten().nonzero()[:, 0]

    def pad(self, x_HLD: Tensor, *, blank: bool = False) -> Tensor:
        """[heads, L, D] -> [N, heads, T, D]; what stands in a padded cell is finite and of no meaning, or 0 if `blank`."""
        if self.is_rectangle:
            rows_HNTD: Tensor = x_HLD.unflatten(1, (-1, self.width))
            return rows_HNTD.transpose(0, 1)
        rows_NHTD = x_HLD[:, self._token_NT].transpose(0, 1)
        return rows_NHTD.masked_fill(~self._inside_NT[:, None, :, None], 0.0) if blank else rows_NHTD

    def flat(self, x_NHTD: Tensor) -> Tensor:
        """[N, heads, T, D] -> [L, heads, D]"""
        cells = x_NHTD.transpose(1, 2).flatten(0, 1)
        return cells if self.is_rectangle else cells[self._cell_L]


class GroupLayout:
    """Which of G prompts each of N rows continues, so that all rows of a prompt meet its keys in one matrix product."""

    def __init__(self, group_N: Sequence[int], num_groups: int, device: torch.device | str) -> None:
        members: list[list[int]] = [[] for _ in range(num_groups)]
        for row, group in enumerate(group_N):
            members[group].append(row)
        self.width = max(len(rows) for rows in members)
        self.num_groups = num_groups
        padded = [rows + [rows[0] if rows else 0] * (self.width - len(rows)) for rows in members]
        self.in_order = [row for rows in padded for row in rows] == list(range(len(group_N)))
        place_of = {row: g * self.width + i for g, rows in enumerate(members) for i, row in enumerate(rows)}
        self._row_GM = torch.tensor(padded, device=device)
        self._place_N = torch.tensor([place_of[row] for row in range(len(group_N))], device=device)

    def gather(self, x_NKMD: Tensor) -> Tensor:
        """[N, K, M, D] -> [G, K, width * M, D]"""
        grouped = x_NKMD.unflatten(0, (self.num_groups, self.width)) if self.in_order else x_NKMD[self._row_GM]
        return grouped.transpose(1, 2).flatten(2, 3)

    def scatter(self, x_GKMD: Tensor) -> Tensor:
        """[G, K, width * M, D] -> [N, K, M, D]"""
        rows: Tensor = x_GKMD.unflatten(2, (self.width, -1)).transpose(1, 2).flatten(0, 1)
        return rows if self.in_order else rows[self._place_N]


def attend_beside_prompt(
    q_NHTD: Tensor,
    prompt_kv: tuple[Tensor, Tensor],
    own_kv: tuple[Tensor, Tensor],
    layout: GroupLayout,
    bias_NTX: Tensor,
    scale: float,
) -> Tensor:
    """Attention of N rows over a prompt they share with others and over what is their own -> [N, H, T, D].

    prompt_kv: two of [G, K, P, D]; own_kv: two of [N, K, S, D]; bias_NTX: [N, T, P + S], -inf where a query must not look.
    One softmax over both parts: exact, not an approximation.
    """
    (k_GKPD, v_GKPD), (k_NKSD, v_NKSD) = prompt_kv, own_kv
    N, H, T, D = q_NHTD.shape
    K, P, S = k_NKSD.shape[1], k_GKPD.shape[2], k_NKSD.shape[2]
    q_NKMD = (q_NHTD * scale).reshape(N, K, H // K * T, D)
    scores = q_NHTD.new_empty(N, K, H // K * T, P + S, dtype=torch.float32)
    scores[..., :P] = layout.scatter(_products(layout.gather(q_NKMD), k_GKPD.transpose(2, 3)))
    scores[..., P:] = _products(q_NKMD, k_NKSD.transpose(2, 3))
    scores.view(N, H, T, P + S).add_(bias_NTX[:, None])
    weights = scores.softmax(-1)
    out = _products(weights[..., P:].to(v_NKSD.dtype), v_NKSD)
    out += layout.scatter(_products(layout.gather(weights[..., :P].to(v_NKSD.dtype)), v_GKPD))
    return out.view(N, H, T, D)


def _products(a_NKMX: Tensor, b_NKXY: Tensor) -> Tensor:
    """Batched matrix products over the first two axes."""
    out: Tensor = torch.bmm(a_NKMX.flatten(0, 1), b_NKXY.flatten(0, 1)).unflatten(0, a_NKMX.shape[:2])
    return out


class PackedView:
    """Flat tokens = the prompt [P], then N continuations of it one after another, of lengths `lengths` (none may be 0).

    A token of the prompt sees the prompt up to itself; a token of a continuation sees the whole prompt and its own
    continuation up to itself: exactly what N separate sequences would see.
    With `keep`, each layer's keys and values are appended to `kept` as [2, K, L, D].
    """

    def __init__(
        self, prompt_length: int, lengths: Sequence[int] = (), *, device: torch.device | str, keep: bool = False
    ) -> None:
        assert prompt_length > 0, prompt_length
        self.prompt_length = prompt_length
        self.ragged = Ragged(lengths, device) if lengths else None
        self.kept: list[Tensor] = []
        self._keep = keep

    def attend(self, layer: int, q_HLD: Tensor, k_KLD: Tensor, v_KLD: Tensor, scale: float, window: int | None) -> Tensor:
        if self._keep:
            assert layer == len(self.kept), (layer, len(self.kept))
            self.kept.append(torch.stack([k_KLD, v_KLD]))
        out: Tensor = PackedAttention.apply(q_HLD, k_KLD, v_KLD, self, scale, window)  # type: ignore[no-untyped-call]
        return out
