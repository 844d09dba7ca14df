from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ragen.models import packed_attention
from ragen.models.attention import GroupLayout, PackedView, Ragged, attend
from tests.support.architectures import ARCHITECTURES, architecture, load, plain_logits, plain_model

H, K, D = 4, 2, 8  # two query heads per key/value head
SCALE = 0.3


def naive(q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, window: int | None, scale: float = SCALE) -> Tensor:
    """Causal attention of one sequence [T, H, D], one query at a time, straight from the definition."""
    T = q_HTD.shape[1]
    out = torch.empty(T, H, D, dtype=q_HTD.dtype)
    for head in range(H):
        k_TD, v_TD = k_KTD[head // (H // K)], v_KTD[head // (H // K)]
        for t in range(T):
            first = 0 if window is None else max(0, t - window + 1)
            weights = torch.softmax(k_TD[first : t + 1] @ q_HTD[head, t] * scale, 0)
            out[t, head] = weights @ v_TD[first : t + 1]
    return out


def random_qkv(length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(heads, length, D, generator=generator, dtype=torch.float64) for heads in (H, K, K))  # type: ignore[return-value]


def parts(prompt: int, lengths: Sequence[int]) -> list[list[int]]:
    """Per continuation, where its sequence's tokens (prompt first) stand on the flat axis."""
    starts = [prompt + sum(lengths[:n]) for n in range(len(lengths))]
    return [[*range(prompt), *range(start, start + n)] for start, n in zip(starts, lengths, strict=True)]


PACKS = st.tuples(st.integers(1, 9), st.lists(st.integers(1, 7), max_size=4), st.none() | st.integers(1, 12), st.integers(0, 100))


@given(pack=PACKS)
def test_a_packed_row_attends_like_separate_sequences(pack: tuple[int, list[int], int | None, int]) -> None:
    prompt, lengths, window, seed = pack
    q, k, v = random_qkv(prompt + sum(lengths), seed)
    out = PackedView(prompt, lengths, device="cpu").attend(0, q, k, v, SCALE, window)
    # the scores go through float32 on the way to the softmax
    torch.testing.assert_close(out[:prompt], naive(q[:, :prompt], k[:, :prompt], v[:, :prompt], window), atol=1e-6, rtol=0)
    for at in parts(prompt, lengths):
        expected = naive(q[:, at], k[:, at], v[:, at], window)
        torch.testing.assert_close(out[at], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("lengths", [(4, 4, 4), (5, 1, 3), ()])
def test_packed_gradients_are_the_sums_of_those_of_separate_sequences(lengths: tuple[int, ...], window: int | None) -> None:
    """The prompt serves all continuations, so its keys and values gather the gradients of all of them."""
    prompt = 4
    packed = [x.requires_grad_() for x in random_qkv(prompt + sum(lengths), 1)]
    apart = [x.detach().clone().requires_grad_() for x in packed]
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(prompt + sum(lengths), H, D, generator=generator, dtype=torch.float64)

    out = PackedView(prompt, lengths, device="cpu").attend(0, *packed, SCALE, window)
    (out * weight).sum().backward()
    q, k, v = apart
    total = (naive(q[:, :prompt], k[:, :prompt], v[:, :prompt], window) * weight[:prompt]).sum()
    for at in parts(prompt, lengths):
        total = total + (naive(q[:, at], k[:, at], v[:, at], window) * weight[at])[prompt:].sum()
    total.backward()
    for ours, expected in zip(packed, apart, strict=True):
        torch.testing.assert_close(ours.grad, expected.grad, atol=1e-6, rtol=0)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("lengths", [(40, 40), (37, 2, 18), ()])
def test_queries_in_blocks_give_what_all_at_once_give(
    lengths: tuple[int, ...], window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 16 queries: only their scores exist at a time."""
    prompt, outcomes = 35, []
    for block_scores in (1, 2**30):
        monkeypatch.setattr(packed_attention, "BLOCK_SCORES", block_scores)
        qkv = [x.requires_grad_() for x in random_qkv(prompt + sum(lengths), 4)]
        out = PackedView(prompt, lengths, device="cpu").attend(0, *qkv, SCALE, window)
        (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
        outcomes.append([out, *(x.grad for x in qkv)])
    for blocks, whole in zip(*outcomes, strict=True):
        torch.testing.assert_close(blocks, whole, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_packed_model_gives_the_scores_and_gradients_of_separate_forward_passes(name: str) -> None:
    prompt, lengths = 11, (9, 3, 1)
    generator = torch.Generator().manual_seed(3)
    ids_L = torch.randint(3, 400, (prompt + sum(lengths),), generator=generator)
    places = parts(prompt, lengths)
    at_L = torch.tensor([*range(prompt), *(prompt + i for n in lengths for i in range(n))])
    policy, plain = load(name), plain_model(architecture(name))

    logits_LV = policy.logits(policy.hidden(ids_L, at_L, PackedView(prompt, lengths, device="cpu")))
    expected = [plain_logits(plain, ids_L[at].tolist()) for at in places]
    for at, scores in zip(places, expected, strict=True):
        torch.testing.assert_close(logits_LV[at], scores, atol=1e-4, rtol=0)

    def loss(scores_TV: Tensor, ids_T: Tensor) -> Tensor:
        """Of the continuation alone: its first token is predicted by the prompt's last."""
        return -scores_TV[prompt - 1 : -1].log_softmax(-1).gather(1, ids_T[prompt:, None]).sum()

    sum((loss(logits_LV[at], ids_L[at]) for at in places), torch.zeros(())).backward()
    plain.zero_grad()
    for at in places:
        loss(plain(input_ids=ids_L[at][None], use_cache=False).logits[0], ids_L[at]).backward()
    ours = {key: p.grad for key, p in policy.module.named_parameters()}
    theirs = {key: p.grad for key, p in plain.named_parameters()}
    assert ours.keys() == theirs.keys()
    for key, gradient in theirs.items():
        assert gradient is not None
        assert gradient.abs().max() > 0, key  # everything is trained
        torch.testing.assert_close(ours[key], gradient, atol=2e-4, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")


def test_kept_keys_and_values_are_those_of_each_layer_in_order() -> None:
    q, k, v = random_qkv(5, 0)
    view = PackedView(5, device="cpu", keep=True)
    view.attend(0, q, k, v, SCALE, None)
    view.attend(1, q, 2 * k, 3 * v, SCALE, None)
    assert [tuple(kv.shape) for kv in view.kept] == [(2, K, 5, D)] * 2
    assert torch.equal(view.kept[1][0], 2 * k)
    assert torch.equal(view.kept[1][1], 3 * v)
    with pytest.raises(AssertionError, match=r"\(4, 2\)"):
        view.attend(4, q, k, v, SCALE, None)  # a layer was left out: later look-ups by number would go astray


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_padding_and_flattening_rows_is_a_round_trip(lengths: list[int]) -> None:
    ragged = Ragged(lengths, "cpu")
    flat_HLD = torch.arange(2 * sum(lengths) * 3, dtype=torch.float32).view(2, sum(lengths), 3)
    rows = ragged.pad(flat_HLD)
    assert rows.shape == (len(lengths), 2, max(lengths), 3)
    assert ragged.is_rectangle == (len(set(lengths)) == 1)
    start = 0
    for row, length in zip(rows, lengths, strict=True):
        assert torch.equal(row[:, :length], flat_HLD[:, start : start + length])
        start += length
    assert torch.equal(ragged.flat(rows), flat_HLD.transpose(0, 1))


@given(groups=st.lists(st.integers(0, 3), min_size=1, max_size=7))
def test_gathering_rows_by_prompt_and_scattering_them_is_a_round_trip(groups: list[int]) -> None:
    """Also when a prompt has no row, and when the rows of a prompt are not neighbours."""
    layout = GroupLayout(groups, 4, "cpu")
    x_NKMD = torch.arange(len(groups) * 2 * 3 * 5, dtype=torch.float32).view(len(groups), 2, 3, 5)
    gathered = layout.gather(x_NKMD)
    assert gathered.shape == (4, 2, layout.width * 3, 5)
    for group in set(groups):
        members = [row for row, g in enumerate(groups) if g == group]
        of_group = gathered[group].unflatten(1, (layout.width, 3))
        for place, row in enumerate(members):
            assert torch.equal(of_group[:, place], x_NKMD[row])
    assert torch.equal(layout.scatter(gathered), x_NKMD)


def call(**change: Any) -> tuple[Tensor, None]:
    q, k, v = random_qkv(3, 0)
    fields: dict[str, Any] = {
        "module": SimpleNamespace(layer_idx=0),
        "query": q[None],
        "key": k[None],
        "value": v[None],
        "attention_mask": None,
        "kv_view": PackedView(3, device="cpu"),
    }
    return attend(**(fields | change))


def test_the_registered_function_scales_by_the_width_of_a_head_unless_told_otherwise() -> None:
    q, k, v = random_qkv(3, 0)
    out, weights = call()
    assert weights is None
    torch.testing.assert_close(out[0], naive(q, k, v, None, D**-0.5))
    torch.testing.assert_close(call(scaling=0.7)[0][0], naive(q, k, v, None, 0.7))
    torch.testing.assert_close(call(sliding_window=2)[0][0], naive(q, k, v, 2, D**-0.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_view": None}, "called through Policy"),
        ({"query": torch.zeros(2, H, 3, D)}, "one flat row"),
        ({"softcap": 30.0}, "soft-capping"),
        ({"dropout": 0.1}, "dropout"),
    ],
)
def test_what_the_attention_cannot_do_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**change)


def test_a_model_called_without_a_view_says_how_it_is_called() -> None:
    policy = load("llama")
    with pytest.raises(ValueError, match="called through Policy"):
        policy.module(input_ids=torch.tensor([[3, 4]]))
