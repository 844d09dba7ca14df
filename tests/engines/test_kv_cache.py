from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ragen.engines import kv_cache as module
from ragen.engines.kv_cache import GROWTH, DecodeView, PromptBlock, PromptStack, RowStore, copied

H, K, D = 4, 2, 8
SCALE = 0.3


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def block(length: int, seed: int = 0, layers: int = 2) -> PromptBlock:
    kv = [random(2, K, length, D, seed=100 * seed + layer) for layer in range(layers)]
    return PromptBlock(ids=tuple(range(length)), kv=kv, last_hidden_D=torch.zeros(D))


def write(store: RowStore, layer: int, row: int, start: int, kv: Tensor) -> None:
    """Put [2, K, n, D] at positions start.. of a row."""
    n = kv.shape[2]
    store.write(layer, torch.full((n,), row), torch.arange(start, start + n), kv[0], kv[1])


def read(store: RowStore, layer: int, row: int, tokens: int) -> Tensor:
    return torch.stack(store.read(layer, row, row + 1, tokens))[:, 0]


def test_a_store_grows_in_rows_and_tokens_and_keeps_what_it_holds() -> None:
    store = RowStore(block(3), max_cells=10_000)
    assert (store.num_rows, store.capacity) == (0, 0)
    store.reserve(2, 5)
    assert (store.num_rows, store.capacity) == (2, GROWTH)
    kept = [random(2, K, 5, D, seed=layer) for layer in range(2)]
    for layer in range(2):
        write(store, layer, 1, 0, kept[layer])
    store.reserve(1, 1)
    assert (store.num_rows, store.capacity) == (2, GROWTH)
    store.reserve(4, GROWTH + 1)
    assert (store.num_rows, store.capacity) == (4, 2 * GROWTH)
    for layer in range(2):
        assert torch.equal(read(store, layer, 1, 5), kept[layer])
        assert torch.equal(read(store, layer, 3, 2 * GROWTH), torch.zeros(2, K, 2 * GROWTH, D))  # never left as it was found


def test_a_row_can_be_moved_taken_out_put_back_and_wiped() -> None:
    store = RowStore(block(3), max_cells=10_000)
    store.reserve(3, 10)
    first, second = random(2, K, 6, D, seed=1), random(2, K, 4, D, seed=2)
    for layer in range(2):
        write(store, layer, 0, 0, first + layer)
        write(store, layer, 2, 0, second + layer)
    kept = store.take_out(0, 6)
    store.move(2, 0, 4)
    assert torch.equal(read(store, 1, 0, 4), second + 1)
    store.wipe(2)
    assert read(store, 0, 2, 10).abs().sum() == 0
    store.put_back(2, kept)  # a copy: the move has not reached it
    assert torch.equal(read(store, 0, 2, 6), first)
    assert torch.equal(read(store, 1, 2, 6), first + 1)


def test_layers_may_differ_in_heads_and_width() -> None:
    like = PromptBlock(ids=(1,), kv=[torch.ones(2, 1, 1, 4), torch.ones(2, 3, 1, 2)], last_hidden_D=torch.zeros(1))
    store = RowStore(like, max_cells=10_000)
    store.reserve(2, 1)
    store.write(1, torch.tensor([0]), torch.tensor([0]), torch.ones(3, 1, 2), torch.ones(3, 1, 2))
    store.put_back(1, store.take_out(0, 1))
    assert store.read(1, 1, 2, 1)[0].shape == (1, 3, 1, 2)
    assert store.read(1, 1, 2, 1)[0].sum() == 6


def test_prompts_of_different_lengths_are_stacked_behind_each_other_and_padded_with_zeros() -> None:
    blocks = [block(3, 1), block(5, 2)]
    stack = PromptStack(blocks)
    assert (stack.lengths, stack.width) == ([3, 5], 5)
    keys, values = stack.read(1)
    assert torch.equal(keys[0, :, :3], blocks[0].kv[1][0])
    assert keys[0, :, 3:].abs().sum() == 0
    assert torch.equal(values[1], blocks[1].kv[1][1])


@dataclass(frozen=True, kw_only=True)
class Row:
    group: int
    filled: int
    new: int


def attend_one_by_one(q_TD: Tensor, k_XD: Tensor, v_XD: Tensor, window: int | None) -> Tensor:
    """The last T of X positions attend causally; one head, one query at a time, in float64."""
    q_TD, k_XD, v_XD = q_TD.double(), k_XD.double(), v_XD.double()
    X, T = len(k_XD), len(q_TD)
    out = []
    for t in range(T):
        last = X - T + t
        first = 0 if window is None else max(0, last - window + 1)
        weights = torch.softmax(k_XD[first : last + 1] @ q_TD[t] * SCALE, 0)
        out.append(weights @ v_XD[first : last + 1])
    return torch.stack(out)


PROMPT_LENGTHS = (1, 4, 7)
ROWS = st.lists(
    st.builds(lambda g, f, n: Row(group=g, filled=f, new=n), st.integers(0, 2), st.integers(0, 5), st.integers(1, 4)),
    min_size=1,
    max_size=6,
)


@given(
    rows=ROWS,
    first=st.integers(0, 2),
    window=st.none() | st.integers(1, 10),
    seed=st.integers(0, 99),
    at_once=st.sampled_from([1, 2, 6]),
)
def test_new_tokens_see_their_prompt_their_row_and_themselves(
    rows: Sequence[Row], first: int, window: int | None, seed: int, at_once: int
) -> None:
    """Against one head and one query at a time. What other rows and earlier tenants of the store left is out of sight.

    So it is when long rows are attended a few at a time (`at_once`), each beside its own copy of the prompt.
    """
    width = max(row.new for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_SCORES", at_once * H * width * (max(PROMPT_LENGTHS) + GROWTH))
        view, store, earlier, blocks = seen(rows, first, seed)
    total = sum(row.new for row in rows)
    q, k, v = (random(heads, total, D, seed=seed + i) for i, heads in enumerate((H, K, K)))
    out_LHD = view.attend(1, q, k, v, SCALE, window)

    start = 0
    for n, row in enumerate(rows):
        here = slice(start, start + row.new)
        prompt = PROMPT_LENGTHS[row.group]
        assert view.positions_L[here].tolist() == list(range(prompt + row.filled, prompt + row.filled + row.new))
        new_kv = torch.stack([k[:, here], v[:, here]])
        whole = torch.cat([blocks[row.group].kv[1], earlier[n], new_kv], 2)
        for head in range(H):
            expected = attend_one_by_one(q[head, here], *whole[:, head // (H // K)], window)
            torch.testing.assert_close(out_LHD[here, head].double(), expected, atol=1e-5, rtol=0)
        assert torch.equal(read(store, 1, first + n, row.filled + row.new), torch.cat([earlier[n], new_kv], 2))
        start += row.new


def seen(rows: Sequence[Row], first: int, seed: int) -> tuple[DecodeView, RowStore, list[Tensor], list[PromptBlock]]:
    """A view of these rows from `first` on, the store behind it, what each row had stored before, and the prompts."""
    blocks = [block(length, seed=n) for n, length in enumerate(PROMPT_LENGTHS)]
    store = RowStore(blocks[0], max_cells=10_000)
    store.reserve(first + len(rows), 12)
    earlier = [random(2, K, row.filled, D, seed=seed + 7 * n) for n, row in enumerate(rows)]
    for n in range(len(rows)):
        write(store, 1, first + n, 0, torch.full((2, K, 12, D), 50.0))  # a tenant from before
        write(store, 1, first + n, 0, earlier[n])
    view = DecodeView(
        store,
        PromptStack(blocks),
        [row.group for row in rows],
        first=first,
        filled=[row.filled for row in rows],
        lengths=[row.new for row in rows],
        num_heads=H,
    )
    return view, store, earlier, blocks


def test_a_prompt_without_a_running_row_in_the_stack_changes_nothing() -> None:
    blocks = [block(4, seed=n) for n in range(3)]
    q, k, v = (random(heads, 2, D, seed=i) for i, heads in enumerate((H, K, K)))

    def decode(stack: PromptStack, groups: list[int]) -> Tensor:
        store = RowStore(blocks[0], max_cells=10_000)
        store.reserve(2, 3)
        return DecodeView(store, stack, groups, first=0, filled=[0, 0], lengths=[1, 1], num_heads=H).attend(
            0, q, k, v, SCALE, None
        )

    torch.testing.assert_close(decode(PromptStack(blocks), [2, 0]), decode(PromptStack([blocks[2], blocks[0]]), [0, 1]))


def test_every_row_needs_a_token_to_feed() -> None:
    store = RowStore(block(2), max_cells=10_000)
    store.reserve(2, 3)
    with pytest.raises(AssertionError, match=r"\[1, 0\]"):
        DecodeView(store, PromptStack([block(2)]), [0, 0], first=0, filled=[0, 0], lengths=[1, 0], num_heads=H)


@pytest.mark.parametrize("lengths", [(3, 3), (1, 5, 2), (0, 0)])
def test_copies_lie_in_one_piece_of_memory_and_share_none_with_what_was_copied(lengths: tuple[int, ...]) -> None:
    whole = [torch.arange(2.0 * 2 * 6 * 4).view(2, 2, 6, 4) + layer for layer in range(len(lengths))]
    layers = [kv[:, :, :length] for kv, length in zip(whole, lengths, strict=True)]
    expected = [layer.clone() for layer in layers]
    copies = copied(layers)
    for kv in whole:
        kv.fill_(-1)
    assert all(torch.equal(copy, wanted) for copy, wanted in zip(copies, expected, strict=True))
    assert len({copy.untyped_storage().data_ptr() for copy in copies}) == 1
