"""Where the torch engine keeps keys and values: one block per prompt, one contiguous row per running trajectory.

Axes as in models/attention.py. A row holds only what follows its prompt; the prompt's own keys and values lie once in a
`PromptBlock`, however many rows continue it. Running rows are rows 0..N-1 of the store, without gaps: a row that leaves is
replaced by the last one, so a decode step reads one contiguous piece per layer and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.models.attention import GroupLayout, Ragged, attend_beside_prompt

GROWTH = 64  # tokens by which rows grow


def whole_blocks(tokens: int) -> int:
    """`tokens`, rounded up to what is allocated for them."""
    return -(-tokens // GROWTH) * GROWTH


@dataclass(frozen=True, kw_only=True)
class PromptBlock:
    """A prompt, encoded once: keys and values per layer, and the final hidden state of its last token."""

    ids: tuple[int, ...]
    kv: list[Tensor]  # per layer [2, K, P, D]
    last_hidden_D: Tensor

    def __len__(self) -> int:
        return len(self.ids)


class RowStore:
    """Keys and values of the running rows, per layer two of [rows, K, capacity, D]; grows when a row needs more."""

    def __init__(self, like: PromptBlock) -> None:
        self._kv = [kv.new_empty(2, 0, kv.shape[1], 0, kv.shape[3]) for kv in like.kv]

    @property
    def num_rows(self) -> int:
        """Allocated rows."""
        return self._kv[0].shape[1]

    @property
    def capacity(self) -> int:
        """Allocated tokens per row."""
        return self._kv[0].shape[3]

    def reserve(self, rows: int, tokens: int) -> None:
        """Make room for `rows` rows of `tokens` tokens each, keeping what is stored."""
        if rows <= self.num_rows and tokens <= self.capacity:
            return
        rows = max(rows, self.num_rows)
        tokens = max(whole_blocks(tokens), self.capacity)
        for layer, old in enumerate(self._kv):
            new = old.new_zeros(2, rows, old.shape[2], tokens, old.shape[4])
            new[:, : old.shape[1], :, : old.shape[3]] = old
            self._kv[layer] = new

    def write(self, layer: int, row_L: Tensor, at_L: Tensor, k_KLD: Tensor, v_KLD: Tensor) -> None:
        """Store the keys and values of flat tokens: token i goes to position at_L[i] of row row_L[i]."""
        keys, values = self._kv[layer]
        keys[row_L, :, at_L] = k_KLD.transpose(0, 1)
        values[row_L, :, at_L] = v_KLD.transpose(0, 1)

    def read(self, layer: int, first: int, last: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Keys and values [rows, K, tokens, D] of rows first..last-1, without a copy."""
        keys, values = self._kv[layer]
        return keys[first:last, :, :tokens], values[first:last, :, :tokens]

    def move(self, source: int, target: int, tokens: int) -> None:
        for kv in self._kv:
            kv[:, target, :, :tokens] = kv[:, source, :, :tokens]

    def wipe(self, row: int) -> None:
        for kv in self._kv:
            kv[:, row] = 0

    def take_out(self, row: int, tokens: int) -> list[Tensor]:
        """A copy of one row, per layer [2, K, tokens, D], to be put back later."""
        return [kv[:, row, :, :tokens].clone() for kv in self._kv]

    def put_back(self, row: int, kept: Sequence[Tensor]) -> None:
        for kv, layer in zip(self._kv, kept, strict=True):
            kv[:, row, :, : layer.shape[2]] = layer


class PromptStack:
    """The blocks that running rows continue, stacked and padded per layer to [G, K, P, D]; made anew when the set changes."""

    def __init__(self, blocks: Sequence[PromptBlock]) -> None:
        self.blocks = tuple(blocks)
        self.lengths = [len(block) for block in blocks]
        longest = max(self.lengths)
        self._kv = []
        for layers in zip(*(block.kv for block in blocks), strict=True):
            first = layers[0]
            stack = first.new_zeros(2, len(blocks), first.shape[1], longest, first.shape[3])
            for g, kv in enumerate(layers):
                stack[:, g, :, : kv.shape[2]] = kv
            self._kv.append(stack)

    @property
    def width(self) -> int:
        return int(self._kv[0].shape[3])

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self._kv[layer]
        return keys, values


class DecodeView:
    """New tokens of the rows first..first+N-1: `lengths[n]` of them for a row that has `filled[n]` tokens behind its prompt.

    Writes their keys and values into the store and attends to prompt, earlier tokens and themselves, causally.
    """

    def __init__(
        self,
        store: RowStore,
        stack: PromptStack,
        groups: Sequence[int],
        *,
        first: int,
        filled: Sequence[int],
        lengths: Sequence[int],
    ) -> None:
        device = store.read(0, 0, 0, 0)[0].device
        self._store, self._stack = store, stack
        self._rows = (first, first + len(filled))
        self._ragged = Ragged(lengths, device)
        self._layout = GroupLayout(groups, len(stack.blocks), device)
        # As many cells as are allocated, as a rule: then they lie in one piece. What is not filled is finite and hidden.
        self._tokens = whole_blocks(max(f + n for f, n in zip(filled, lengths, strict=True)))
        lengths_N = torch.tensor(lengths, device=device)
        self._filled_N = torch.tensor(filled, device=device)
        self._prompt_N = torch.tensor([stack.lengths[g] for g in groups], device=device)
        row_L = torch.arange(len(filled), device=device).repeat_interleave(lengths_N)
        within_L = torch.arange(len(row_L), device=device) - (lengths_N.cumsum(0) - lengths_N)[row_L]
        self._row_L = row_L + first
        self._at_L = self._filled_N[row_L] + within_L
        self.positions_L = self._prompt_N[row_L] + self._at_L
        self._bias_by_window: dict[int | None, Tensor] = {}

    def attend(self, layer: int, q_HLD: Tensor, k_KLD: Tensor, v_KLD: Tensor, scale: float, window: int | None) -> Tensor:
        self._store.write(layer, self._row_L, self._at_L, k_KLD, v_KLD)
        if window not in self._bias_by_window:
            hidden_NTX = self._hidden(window)
            self._bias_by_window[window] = torch.zeros_like(hidden_NTX, dtype=torch.float32).masked_fill_(hidden_NTX, -torch.inf)
        out = attend_beside_prompt(
            self._ragged.pad(q_HLD),
            self._stack.read(layer),
            self._store.read(layer, *self._rows, self._tokens),
            self._layout,
            self._bias_by_window[window],
            scale,
        )
        return self._ragged.flat(out)

    def _hidden(self, window: int | None) -> Tensor:
        """[N, T, P + S] in absolute positions: a key behind the prompt's padding or behind the query is out of sight."""
        device = self._filled_N.device
        prompt_N1 = self._prompt_N[:, None]
        in_prompt_P = torch.arange(self._stack.width, device=device)
        beyond = torch.iinfo(torch.long).max  # a padded cell of the prompt stands after every query
        prompt_key_NP = torch.where(in_prompt_P < prompt_N1, in_prompt_P, beyond)
        own_key_NS = prompt_N1 + torch.arange(self._tokens, device=device)
        key_N1X = torch.cat([prompt_key_NP, own_key_NS], 1)[:, None]
        query_NT1 = (prompt_N1 + self._filled_N[:, None] + torch.arange(self._ragged.width, device=device))[:, :, None]
        hidden = key_N1X > query_NT1
        return hidden if window is None else hidden | (key_N1X <= query_NT1 - window)
