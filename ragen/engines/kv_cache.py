"""Where the torch engine keeps keys and values: one block per prompt, one contiguous row per running trajectory.

Axes as in models/attention.py. A row holds only what follows its prompt; the prompt's own keys and values lie once in a
`PromptBlock`, however many rows continue it. Running rows are rows 0..N-1 of the store, without gaps: a row that leaves is
replaced by the last one, so a decode step reads one contiguous piece per layer and copies nothing.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from ragen.kernels.cpu import CpuKernels
from ragen.models.attention import GroupLayout, Ragged, attend_beside_prompt
from ragen.models.packed_attention import BLOCK_SCORES, Keys, attend_rows

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

    def __init__(self, like: PromptBlock, *, max_cells: int) -> None:
        """`max_cells`: rows times tokens above which no more is allocated than is asked for."""
        self._max_cells = max_cells
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
        """Make room for `rows` rows of `tokens` tokens each, as many as there are and as long as they are, keeping those."""
        if rows <= self.num_rows and tokens <= self.capacity:
            return
        tokens = whole_blocks(tokens)
        if max(rows, self.num_rows) * max(tokens, self.capacity) <= self._max_cells:
            rows, tokens = max(rows, self.num_rows), max(tokens, self.capacity)
        kept_rows, kept_tokens = min(rows, self.num_rows), min(tokens, self.capacity)
        for layer, old in enumerate(self._kv):
            new = _zeros((2, rows, old.shape[2], tokens, old.shape[4]), like=old)
            new[:, :kept_rows, :, :kept_tokens] = old[:, :kept_rows, :, :kept_tokens]
            self._kv[layer] = new

    def write(
        self, layer: int, row_L: Tensor, at_L: Tensor, k_KLD: Tensor, v_KLD: Tensor, kernels: CpuKernels | None = None
    ) -> None:
        """Store the keys and values of flat tokens: token i goes to position at_L[i] of row row_L[i]."""
        keys, values = self._kv[layer]
        k_LKD, v_LKD = k_KLD.transpose(0, 1), v_KLD.transpose(0, 1)
        if kernels is not None:
            kernels.keep(k_LKD, v_LKD, keys, values, row_L, at_L)
        else:
            keys[row_L, :, at_L], values[row_L, :, at_L] = k_LKD, v_LKD

    def read(self, layer: int, first: int, last: int, tokens: int | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values [rows, K, tokens, D] of rows first..last-1, without a copy; all that is allocated if not limited."""
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
        return copied([kv[:, row, :, :tokens] for kv in self._kv])

    def put_back(self, row: int, kept: Sequence[Tensor]) -> None:
        for kv, layer in zip(self._kv, kept, strict=True):
            kv[:, row, :, : layer.shape[2]] = layer


def _zeros(shape: tuple[int, ...], *, like: Tensor) -> Tensor:
    """Zeros in memory of their own: what is never written takes none, and all of it is given back when they are dropped.

    From the heap, rows and conversations that grow leave holes which nothing fits into: several times what they hold.
    """
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or not size or not hasattr(mmap, "MAP_PRIVATE"):
        return like.new_zeros(shape)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes for keys and values: {error.strerror}") from None
    return torch.frombuffer(memory, dtype=like.dtype).view(shape)


def copied(layers: Sequence[Tensor]) -> list[Tensor]:
    """Copies of all these tensors of one type, together in one piece of memory of their own."""
    sizes = [layer.numel() for layer in layers]
    pieces = _zeros((sum(sizes),), like=layers[0]).split(sizes)
    copies = [piece.view(layer.shape) for piece, layer in zip(pieces, layers, strict=True)]
    for copy, layer in zip(copies, layers, strict=True):
        copy.copy_(layer)
    return copies


class Room:
    """Counts what rows will need at most, every one as long as the longest: the store and the stack of prompts are rectangles."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._prompts: set[tuple[int, ...]] = set()
        self._num_rows = self._longest = self._longest_prompt = 0

    def take(self, prompt: tuple[int, ...], own: int) -> bool:
        """Whether there is room for a row that continues `prompt` by up to `own` tokens, then counted. The first always fits."""
        num_prompts = len(self._prompts) + (prompt not in self._prompts)
        longest, longest_prompt = max(self._longest, own), max(self._longest_prompt, len(prompt))
        if self._num_rows and (self._num_rows + 1) * longest + num_prompts * longest_prompt > self._max_tokens:
            return False
        self._prompts.add(prompt)
        self._num_rows += 1
        self._longest, self._longest_prompt = longest, longest_prompt
        return True


class PromptStack:
    """The blocks that running rows continue, stacked and padded per layer to [G, K, P, D]; made anew when the set changes."""

    def __init__(self, blocks: Sequence[PromptBlock]) -> None:
        self.blocks = tuple(blocks)
        self.lengths = [len(block) for block in blocks]
        longest = max(self.lengths)
        self._kv = []
        for layers in zip(*(block.kv for block in blocks), strict=True):
            first = layers[0]
            stack = _zeros((2, len(blocks), first.shape[1], longest, first.shape[3]), like=first)
            for g, kv in enumerate(layers):
                stack[:, g, :, : kv.shape[2]] = kv
            self._kv.append(stack)

    @property
    def width(self) -> int:
        return int(self._kv[0].shape[3])

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self._kv[layer]
        return keys, values


class PrefillView:
    """Prompts one behind the other, each seeing itself alone; their keys and values are copied into `kept`, a list per prompt."""

    def __init__(self, lengths: Sequence[int]) -> None:
        assert lengths and min(lengths) > 0, lengths
        self.spans = [slice(end - length, end) for length, end in zip(lengths, accumulate(lengths), strict=True)]
        self.kept: list[list[Tensor]] = [[] for _ in lengths]

    def attend(self, layer: int, q_HLD: Tensor, k_KLD: Tensor, v_KLD: Tensor, scale: float, window: int | None) -> Tensor:
        out_LHD = q_HLD.new_empty(q_HLD.shape[1], q_HLD.shape[0], q_HLD.shape[2])
        for span, kept in zip(self.spans, self.kept, strict=True):
            assert layer == len(kept), (layer, len(kept))
            kept.append(torch.stack([k_KLD[:, span], v_KLD[:, span]]))
            keys = Keys(None, None, *kept[-1][:, None])
            out_LHD[span] = attend_rows(q_HLD[None, :, span], keys, scale, window)[0].transpose(0, 1)
        return out_LHD


class DecodeView:
    """New tokens of the rows first..first+N-1: `lengths[n]` of them for a row that has `filled[n]` tokens behind its prompt.

    Writes their keys and values into the store and attends to prompt, earlier tokens and themselves, causally. Rows that decode
    one token meet the prompts of the stack together; rows that read more, such as a new observation, are attended a few at a
    time, so that their scores stay in a processor's cache.
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
        num_heads: int,
        kernels: CpuKernels | None = None,
    ) -> None:
        """`kernels` attend to the rows of one token, in the place of torch's operations."""
        assert lengths and min(lengths) > 0, lengths
        device = store.read(0, 0, 0, 0)[0].device
        self._store, self._stack, self._kernels = store, stack, kernels
        lengths_N = torch.tensor(lengths, device=device)
        filled_N = torch.tensor(filled, device=device)
        prompt_N = torch.tensor([stack.lengths[g] for g in groups], device=device)
        row_L = torch.arange(len(filled), device=device).repeat_interleave(lengths_N)
        within_L = torch.arange(len(row_L), device=device) - (lengths_N.cumsum(0) - lengths_N)[row_L]
        self._row_L = row_L + first
        self._at_L = filled_N[row_L] + within_L
        self.positions_L = prompt_N[row_L] + self._at_L
        at_once = partial(_at_once, num_heads=num_heads, num_prompt=stack.width)
        self._parts: list[_Part | _SinglePart] = []
        start = 0
        for rows in _runs(filled, lengths, at_once):
            stop = start + sum(lengths[rows])
            flat, at = slice(start, stop), first + rows.start
            if kernels is not None and lengths[rows.start] == 1:
                self._parts.append(_SinglePart(stack, groups[rows], at, flat, filled[rows], kernels))
            else:
                self._parts.append(_Part(stack, groups[rows], at, flat, filled[rows], lengths[rows], device))
            start = stop

    def attend(self, layer: int, q_HLD: Tensor, k_KLD: Tensor, v_KLD: Tensor, scale: float, window: int | None) -> Tensor:
        self._store.write(layer, self._row_L, self._at_L, k_KLD, v_KLD, self._kernels)
        shared = self._stack.read(layer)
        outs = [part.attend(layer, q_HLD[:, part.flat], shared, self._store, scale, window) for part in self._parts]
        return outs[0] if len(outs) == 1 else torch.cat(outs)


class _Part:
    """Consecutive rows of a view whose scores exist at the same time."""

    def __init__(
        self,
        stack: PromptStack,
        groups: Sequence[int],
        first: int,
        flat: slice,
        filled: Sequence[int],
        lengths: Sequence[int],
        device: torch.device,
    ) -> None:
        self.flat = flat  # where its tokens stand on the L axis
        self._rows = (first, first + len(groups))
        self._ragged = Ragged(lengths, device)
        # As many cells as are allocated, as a rule: then they lie in one piece. What is not filled is finite and hidden.
        self._tokens = whole_blocks(max(f + n for f, n in zip(filled, lengths, strict=True)))
        # Single tokens of many rows meet a prompt in one product; long rows are products enough, each beside a copy of its own.
        self._own_prompts = None if max(lengths) == 1 else torch.tensor(groups, device=device)
        together = (groups, len(stack.blocks)) if self._own_prompts is None else (range(len(groups)), len(groups))
        self._layout = GroupLayout(*together, device)
        self._prompt_N1 = torch.tensor([[stack.lengths[g]] for g in groups], device=device)
        self._filled_N1 = torch.tensor([[f] for f in filled], device=device)
        self._width = stack.width
        self._bias_by_window: dict[int | None, Tensor] = {}

    def attend(
        self, layer: int, q_HLD: Tensor, shared: tuple[Tensor, Tensor], store: RowStore, scale: float, window: int | None
    ) -> Tensor:
        if window not in self._bias_by_window:
            hidden_NTX = self._hidden(window)
            self._bias_by_window[window] = torch.zeros_like(hidden_NTX, dtype=torch.float32).masked_fill_(hidden_NTX, -torch.inf)
        if self._own_prompts is not None:
            shared = (shared[0][self._own_prompts], shared[1][self._own_prompts])
        own = store.read(layer, *self._rows, self._tokens)
        bias_NTX = self._bias_by_window[window]
        return self._ragged.flat(attend_beside_prompt(self._ragged.pad(q_HLD), shared, own, self._layout, bias_NTX, scale))

    def _hidden(self, window: int | None) -> Tensor:
        """[N, T, P + S] in absolute positions: a key behind the prompt's padding or behind the query is out of sight."""
        device = self._prompt_N1.device
        in_prompt_P = torch.arange(self._width, device=device)
        beyond = torch.iinfo(torch.long).max  # a padded cell of the prompt stands after every query
        prompt_key_NP = torch.where(in_prompt_P < self._prompt_N1, in_prompt_P, beyond)
        own_key_NS = self._prompt_N1 + torch.arange(self._tokens, device=device)
        key_N1X = torch.cat([prompt_key_NP, own_key_NS], 1)[:, None]
        query_NT = self._prompt_N1 + self._filled_N1 + torch.arange(self._ragged.width, device=device)
        hidden = key_N1X > query_NT[:, :, None]
        return hidden if window is None else hidden | (key_N1X <= query_NT[:, :, None] - window)


class _SinglePart:
    """Consecutive rows of a view with one new token each; a compiled operation attends, and reads no more than there is."""

    def __init__(
        self, stack: PromptStack, groups: Sequence[int], first: int, flat: slice, filled: Sequence[int], kernels: CpuKernels
    ) -> None:
        self.flat = flat  # where its tokens stand on the L axis
        self._kernels = kernels
        self._rows = (first, first + len(groups))
        self._group_N = torch.tensor(groups)
        self._prompt_N = torch.tensor([stack.lengths[g] for g in groups])
        self._length_N = torch.tensor(filled) + 1

    def attend(
        self, layer: int, q_HLD: Tensor, shared: tuple[Tensor, Tensor], store: RowStore, scale: float, window: int | None
    ) -> Tensor:
        return self._kernels.attend(
            q_HLD.transpose(0, 1),
            shared,
            store.read(layer, *self._rows),
            group_N=self._group_N,
            prompt_length_N=self._prompt_N,
            length_N=self._length_N,
            scale=scale,
            window=window,
        )


def _at_once(filled: int, length: int, *, num_heads: int, num_prompt: int) -> int:
    """How many such rows have about BLOCK_SCORES scores."""
    return max(1, BLOCK_SCORES // (num_heads * length * (num_prompt + whole_blocks(filled + length))))


def _runs(filled: Sequence[int], lengths: Sequence[int], at_once: Callable[[int, int], int]) -> Iterator[slice]:
    """Cut the rows where single tokens and longer pieces meet, and among the longer ones where their scores become many."""
    start = 0
    for n in range(1, len(lengths) + 1):
        ends = n == len(lengths) or (lengths[n] == 1) != (lengths[start] == 1)
        if not ends and lengths[start] > 1:
            here = slice(start, n + 1)
            ends = n + 1 - start > at_once(max(filled[here]), max(lengths[here]))
        if ends:
            yield slice(start, n)
            start = n
