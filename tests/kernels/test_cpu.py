"""The compiled operations against the same in torch, in float64 where it is their arithmetic that counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ragen.kernels import compile as compile_module
from ragen.kernels.compile import NotCompiled, library
from ragen.kernels.cpu import CpuKernels, kernels
from ragen.models.cache import cache_folder

FORMATS = (torch.float32, torch.bfloat16)


@pytest.fixture(scope="module")
def compiled() -> CpuKernels:
    try:
        return kernels(cache_folder() / "kernels")
    except NotCompiled as reason:
        pytest.skip(f"nothing is compiled here: {reason}")


def random(*shape: int, dtype: torch.dtype, seed: int = 0, spread: float = 1.0) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)


def assert_rounded(ours: Tensor, exact: Tensor) -> None:
    """`ours` is what `exact` (float64) rounds to, give or take the last place."""
    rtol = 1e-5 if ours.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(ours.double(), exact, rtol=rtol, atol=rtol / 10)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_add_norm_adds_in_place_and_normalises_the_sum(compiled: CpuKernels, dtype: torch.dtype, rows: int) -> None:
    x, delta, scale = random(rows, 48, dtype=dtype), random(rows, 48, dtype=dtype, seed=1), random(48, dtype=dtype, seed=2)
    expected = x + delta
    out = compiled.add_norm(x, delta, scale, 1e-5)
    assert torch.equal(x, expected)
    wide = expected.double()
    assert_rounded(out, wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * scale.double())
    assert torch.equal(compiled.add_norm(x, None, scale, 1e-5), out)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("spread", [1.0, 60.0])
def test_silu_mul_gates_one_half_with_the_other(compiled: CpuKernels, dtype: torch.dtype, spread: float) -> None:
    gate_up = random(7, 96, dtype=dtype, spread=spread)  # up to about 200 either way: e^200 is no float32
    gate, up = gate_up.double().chunk(2, -1)
    assert_rounded(compiled.silu_mul(gate_up), F.silu(gate) * up)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
def test_rotate_turns_queries_and_keys_and_leaves_values(
    compiled: CpuKernels, dtype: torch.dtype, normed: bool, rotated: bool
) -> None:
    heads, kv_heads, width = 3, 1, 64
    qkv = random(6, heads + 2 * kv_heads, width, dtype=dtype)
    cos, sin = random(6, width, dtype=dtype, seed=1), random(6, width, dtype=dtype, seed=2)
    scales = (random(width, dtype=dtype, seed=3), random(width, dtype=dtype, seed=4))
    expected = qkv.double()
    turned = expected[:, : heads + kv_heads]
    if normed:
        per_head = torch.stack([scales[0]] * heads + [scales[1]] * kv_heads).double()
        turned = turned / (turned.square().mean(-1, keepdim=True) + 1e-6).sqrt() * per_head
        turned = turned.to(dtype).double()  # it is stored in between
    if rotated:
        first, second = turned.chunk(2, -1)
        turned = turned * cos.double()[:, None] + torch.cat([-second, first], -1) * sin.double()[:, None]
    values = qkv[:, heads + kv_heads :].clone()
    compiled.rotate(
        qkv,
        heads,
        kv_heads,
        cos_sin_LD=(cos, sin) if rotated else None,
        scales_D=scales if normed else None,
        eps=1e-6,
    )
    assert torch.equal(qkv[:, heads + kv_heads :], values)
    rtol, atol = (1e-5, 1e-5) if dtype == torch.float32 else (2**-7, 0.02)
    torch.testing.assert_close(qkv[:, : heads + kv_heads].double(), turned, rtol=rtol, atol=atol)


@settings(max_examples=40)
@given(
    queries=st.sampled_from([1, 2, 3, 5, 8]),
    kv_heads=st.integers(1, 2),
    width=st.sampled_from([32, 64, 96]),
    prompts=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50)), min_size=1, max_size=6),
    window=st.none() | st.integers(1, 60),
    dtype=st.sampled_from(FORMATS),
    seed=st.integers(0, 5),
)
def test_attend_is_attention_over_the_prompt_and_what_is_the_rows_own(
    queries: int,
    kv_heads: int,
    width: int,
    prompts: list[int],
    rows: list[tuple[int, int]],
    window: int | None,
    dtype: torch.dtype,
    seed: int,
) -> None:
    try:
        compiled = kernels(cache_folder() / "kernels")
    except NotCompiled as reason:
        pytest.skip(f"nothing is compiled here: {reason}")
    group = [which % len(prompts) for which, _ in rows]
    heads = queries * kv_heads
    # what nobody may read is not a number
    prompt_kv = [torch.full((len(prompts), kv_heads, 40, width), torch.nan, dtype=dtype) for _ in range(2)]
    own_kv = [torch.full((len(rows), kv_heads, 64, width), torch.nan, dtype=dtype) for _ in range(2)]
    for which in range(2):
        for g, length in enumerate(prompts):
            prompt_kv[which][g, :, :length] = random(kv_heads, length, width, dtype=dtype, seed=seed + 10 * g + which)
        for n, (_, length) in enumerate(rows):
            own_kv[which][n, :, :length] = random(kv_heads, length, width, dtype=dtype, seed=seed + 100 * n + 50 + which)
    wider = random(len(rows), heads + 2, width, dtype=dtype, seed=seed)
    out = compiled.attend(
        wider[:, :heads],
        (prompt_kv[0], prompt_kv[1]),
        (own_kv[0], own_kv[1]),
        group_N=torch.tensor(group),
        prompt_length_N=torch.tensor([prompts[g] for g in group]),
        length_N=torch.tensor([length for _, length in rows]),
        scale=width**-0.5,
        window=window,
    )
    for n, (g, (_, length)) in enumerate(zip(group, rows, strict=True)):
        keys, values = (
            torch.cat([prompt_kv[which][g, :, : prompts[g]], own_kv[which][n, :, :length]], 1).double() for which in range(2)
        )
        seen = slice(-window if window is not None else None, None)
        scores = wider[n, :heads].double().unflatten(0, (kv_heads, queries)) @ keys[:, seen].transpose(1, 2) * width**-0.5
        exact = (scores.softmax(-1) @ values[:, seen]).flatten(0, 1)
        bound = 1e-5 if dtype == torch.float32 else 0.03  # bfloat16 queries are scaled before they are rounded
        torch.testing.assert_close(out[n].double(), exact, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", FORMATS)
def test_keep_puts_each_token_in_its_place(compiled: CpuKernels, dtype: torch.dtype) -> None:
    qkv = random(4, 7, 32, dtype=dtype)  # 3 query heads, 2 of keys, 2 of values
    keys, values = torch.zeros(3, 2, 8, 32, dtype=dtype), torch.zeros(3, 2, 8, 32, dtype=dtype)
    row, at = torch.tensor([2, 0, 0, 1]), torch.tensor([7, 0, 1, 3])
    compiled.keep(qkv[:, 3:5], qkv[:, 5:], keys, values, row, at)
    expected_keys, expected_values = torch.zeros_like(keys), torch.zeros_like(values)
    expected_keys[row, :, at], expected_values[row, :, at] = qkv[:, 3:5], qkv[:, 5:]
    assert torch.equal(keys, expected_keys)
    assert torch.equal(values, expected_values)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("rows", [1, 4, 6, 33])
def test_adapt_adds_each_adapter_to_its_own_columns(compiled: CpuKernels, dtype: torch.dtype, rows: int) -> None:
    columns = [(0, 32), (48, 64)]  # between them a layer without an adapter
    x, down = random(rows, 48, dtype=dtype), random(10, 48, dtype=dtype, seed=1)
    up = torch.zeros(10, 64, dtype=dtype)
    for block, (begin, end) in enumerate(columns):
        up[5 * block : 5 * block + 5, begin:end] = random(5, end - begin, dtype=dtype, seed=2 + block)
    out = random(rows, 64, dtype=dtype, seed=5)
    exact = out.double() + x.double() @ down.double().t() @ up.double()
    compiled.adapt(x, down, up, out, columns)
    bound = 1e-4 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(out.double(), exact, rtol=bound, atol=bound * 10)


def test_the_number_of_threads_changes_no_bit(compiled: CpuKernels) -> None:
    def outcome() -> list[Tensor]:
        x = random(33, 64, dtype=torch.bfloat16)
        normed = compiled.add_norm(x, None, random(64, dtype=torch.bfloat16, seed=1), 1e-5)
        kv = (random(1, 1, 30, 64, dtype=torch.bfloat16, seed=2), random(1, 1, 30, 64, dtype=torch.bfloat16, seed=3))
        own = (random(33, 1, 16, 64, dtype=torch.bfloat16, seed=4), random(33, 1, 16, 64, dtype=torch.bfloat16, seed=5))
        lengths = {"group_N": torch.zeros(33, dtype=torch.long), "prompt_length_N": torch.full((33,), 30)}
        out = compiled.attend(normed[:, None], kv, own, **lengths, length_N=torch.full((33,), 9), scale=0.125, window=None)
        return [normed, out, compiled.silu_mul(normed)]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = outcome()
        torch.set_num_threads(3)
        three = outcome()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, three, strict=True))


@pytest.fixture
def small_source(compiled: CpuKernels, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that takes no seconds, for how a library is made and kept: what the real one does is tried above."""
    source = tmp_path_factory.mktemp("source") / "small.c"
    source.write_text("int ragen_answer(void) { return 42; }\n", encoding="utf-8")
    monkeypatch.setattr(compile_module, "SOURCE", source)


@pytest.mark.usefixtures("small_source")
def test_a_library_is_made_once_and_only_whole(tmp_path: Path) -> None:
    assert library(tmp_path).ragen_answer() == 42
    made = [path.name for path in tmp_path.iterdir()]
    assert sorted(Path(name).suffix for name in made) == [".sha256", ".so"]
    stamps = [(tmp_path / name).stat().st_mtime_ns for name in made]
    library.__wrapped__(tmp_path)
    assert [(tmp_path / name).stat().st_mtime_ns for name in made] == stamps


@pytest.mark.usefixtures("small_source")
def test_a_torn_library_is_made_again_and_one_that_others_may_write_is_not_loaded(tmp_path: Path) -> None:
    """Loaded as it is, half a library ends the process with SIGBUS."""
    library(tmp_path)
    (made,) = tmp_path.glob("*.so")
    whole = made.read_bytes()
    made.unlink()  # it is mapped into this process
    made.write_bytes(whole[: len(whole) // 2])
    library.__wrapped__(tmp_path)
    assert made.read_bytes() == whole
    made.chmod(0o666)
    with pytest.raises(NotCompiled, match="others may write"):
        library.__wrapped__(tmp_path)


def test_where_there_is_no_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(NotCompiled, match="no GCC"):
        library(tmp_path)


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    compiled: CpuKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "cc"
    fake.write_text('#!/bin/sh\ncase "$*" in *-dM*) exit 0;; esac\necho "cpu.c:1: error: out of order" >&2\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    with pytest.raises(NotCompiled, match="out of order"):
        library(tmp_path / "kernels")
    assert list((tmp_path / "kernels").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(NotCompiled, match="kernels"):
        library(tmp_path / "kernels")


def test_a_process_without_gnu_openmp_keeps_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(NotCompiled, match="only on Linux"):
        library(tmp_path)
