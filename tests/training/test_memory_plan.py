"""How large a pack may be: arithmetic by hand, limits read from files as the kernel writes them, counts on a small policy."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import psutil
import pytest
import torch

from ragen.training.memory_plan import (
    GIB,
    LARGEST_PACK,
    OVERHEAD,
    SMALLEST_PACK,
    MemoryPlan,
    UpdateCost,
    cache_bytes,
    free_bytes,
    highest_gib,
    peak_bytes,
    plan_memory,
    reset_peak,
)
from ragen.training.memory_probe import measure_cost, random_pack, saved_bytes
from ragen.training.scoring import score
from tests.support.learners import same_tensors, small_policy, weights

CPU = torch.device("cpu")
COST = UpdateCost(per_token=1000, per_trained=100, at_once=5000)
GROUP_V2 = {"memory.max": "8000", "memory.current": "5000", "memory.stat": "anon 3000\ninactive_file 700\n"}
GROUP_V1 = {
    "memory/memory.limit_in_bytes": "9000",
    "memory/memory.usage_in_bytes": "4000",
    "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 200\n",
}


def plan(*, budget: float, free: int = 10 * GIB, pack_tokens: int | None = None, continuation: int = 10) -> MemoryPlan:
    """A prompt of 20 tokens, 50 trained parameters, 300 bytes reserved."""
    return plan_memory(
        COST,
        prompt=20,
        continuation=continuation,
        num_trained=50,
        reserved_bytes=300,
        budget=budget,
        free_bytes=free,
        pack_tokens=pack_tokens,
    )


def test_a_pack_costs_its_prompt_once_and_its_continuations_by_the_token() -> None:
    # (20 + 64) x 1000 + 64 x 100 + 5000
    assert COST.of_pack(prompt=20, continuation=10, pack_tokens=64) == 95_400


def test_one_continuation_that_is_longer_than_a_pack_is_what_counts() -> None:
    # (20 + 500) x 1000 + 500 x 100 + 5000
    assert COST.of_pack(prompt=20, continuation=500, pack_tokens=64) == 575_000


def test_a_cached_token_has_a_key_and_a_value_per_layer_and_head() -> None:
    # SmolLM2-135M: 30 layers, 3 heads of 64, bfloat16: 2 x 30 x 3 x 64 x 2 = 23040 bytes a token
    assert cache_bytes(num_layers=30, num_kv_heads=3, head_width=64, itemsize=2, num_tokens=1000) == 23_040_000


def test_the_largest_pack_is_taken_where_memory_is_plenty() -> None:
    chosen = plan(budget=0.7)
    assert (chosen.pack_tokens, chosen.fits) == (LARGEST_PACK, True)
    # (20 + 1024) x 1000 + 1024 x 100 + 5000 = 1151400; 12 bytes for each of 50 parameters; 300 reserved
    assert chosen.forecast_bytes == int(OVERHEAD * 1_151_400) + 600 + 300
    assert chosen.budget_bytes == int(0.7 * 10 * GIB)


@pytest.mark.parametrize(("tokens", "activations"), [(512, 588_200), (128, 165_800)])
def test_packs_are_halved_until_they_fit(tokens: int, activations: int) -> None:
    """The budget is what the pack needs to the byte; one byte less halves it again."""
    needed = int(OVERHEAD * activations) + 900
    assert plan(budget=1, free=needed).pack_tokens == tokens
    assert plan(budget=1, free=needed - 1).pack_tokens == tokens // 2


def test_a_budget_above_one_is_gib_whatever_is_free() -> None:
    assert plan(budget=2.5, free=100).budget_bytes == int(2.5 * GIB)


def test_where_nothing_fits_the_smallest_pack_is_taken_and_the_plan_says_so() -> None:
    chosen = plan(budget=0.5, free=1000)
    assert (chosen.pack_tokens, chosen.fits) == (SMALLEST_PACK, False)
    assert "it may run out" in str(chosen)
    assert "it may run out" not in str(plan(budget=0.7))


def test_a_pack_size_that_is_given_stands_even_if_it_does_not_fit() -> None:
    """A resumed run keeps the size it began with, whatever is free now: another would change the last bits."""
    chosen = plan(budget=0.5, free=1000, pack_tokens=256)
    assert (chosen.pack_tokens, chosen.fits) == (256, False)
    assert plan(budget=0.7, pack_tokens=256).pack_tokens == 256


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (GROUP_V2, 3700),  # 8000 - 5000 + 700 of cached files
        (GROUP_V1, 5200),  # 9000 - 4000 + 200
        ({**GROUP_V2, "memory.current": "9000"}, 0),  # over the limit for a moment
    ],
)
def test_a_container_has_what_its_control_group_leaves(files: dict[str, str], free: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert free_bytes(CPU, cgroup=tmp_path) == free


def test_without_a_limit_of_a_control_group_the_machine_decides(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n", encoding="utf-8")
    (tmp_path / "memory.current").write_text("5000\n", encoding="utf-8")
    total = psutil.virtual_memory().total
    assert 0 < free_bytes(CPU, cgroup=tmp_path) <= total


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak")
def test_the_peak_is_counted_anew_after_a_reset() -> None:
    """Pages are mapped by hand, since an allocator may give out again what it has kept from earlier tests."""
    size = 64 * 2**20

    def hold() -> None:
        with mmap.mmap(-1, size) as pages:
            pages.write(b"x" * 4096 * (size // 4096))

    reset_peak(CPU)
    before = peak_bytes(CPU)
    hold()
    high = peak_bytes(CPU)
    reset_peak(CPU)
    assert high - before > 0.9 * size
    assert high - peak_bytes(CPU) > 0.9 * size


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_what_is_counted_on_small_packs_foretells_larger_ones(tuning: str) -> None:
    """To 5 %, of what autograd itself keeps for packs of other shapes than those that were counted."""
    policy = small_policy(tuning)
    before = weights(policy)
    cost = measure_cost(policy, lambda part: score(policy, part, 1.0), scores_at_once=0)
    for prompt, count, length in ((200, 8, 40), (50, 20, 48)):
        part = random_pack(policy, prompt, count, length)
        kept = saved_bytes(policy, lambda part=part: score(policy, part, 1.0))  # type: ignore[misc]
        assert cost.of_pack(prompt=prompt, continuation=length, pack_tokens=count * length) == pytest.approx(kept, rel=0.05)
    assert same_tensors(weights(policy), before)
    assert all(parameter.grad is None for parameter in policy.trainable().values())


def test_the_scores_of_a_chunk_are_four_float32_copies() -> None:
    policy = small_policy()
    cost, none = (measure_cost(policy, lambda part: score(policy, part, 1.0), scores_at_once=scores) for scores in (1000, 0))
    assert cost.at_once - none.at_once == 4 * 4 * 1000


def test_the_highest_memory_is_told_in_gib_and_outlives_a_peak_that_is_forgotten() -> None:
    """This process has torch loaded: more than 0.1 and, for a test, less than 64."""
    before = highest_gib()
    assert 0.1 < before < 64
    held = torch.ones(2**26)  # 256 MiB
    del held
    risen = highest_gib()
    reset_peak(torch.device("cpu"))
    assert highest_gib() >= risen >= before


def test_layers_computed_again_keep_their_inputs_and_one_of_them_at_a_time() -> None:
    """Ten layers that keep 500 bytes a token, 100 of them an input of 10 each: 10 x 10 + 50."""
    cost = UpdateCost(per_token=500.0, per_trained=7.0, at_once=3).recomputed(num_layers=10, input_bytes=10)
    assert cost == UpdateCost(per_token=150.0, per_trained=7.0, at_once=3)


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_layers_computed_again_give_the_same_gradients_bit_for_bit_and_keep_less(tuning: str) -> None:
    def kept_and_gradients(recompute: bool) -> tuple[int, list[torch.Tensor]]:
        policy = small_policy(tuning)
        if recompute:
            assert policy.recompute_layers() == policy.config.num_hidden_layers
        part = random_pack(policy, 30, 3, 20)
        kept = saved_bytes(policy, lambda: score(policy, part, 1.0))
        torch.stack([term.sum() for term in score(policy, part, 1.0)]).sum().backward()
        gradients = [parameter.grad for parameter in policy.trainable().values()]
        return kept, [gradient for gradient in gradients if gradient is not None]

    (kept, gradients), (kept_again, gradients_again) = kept_and_gradients(False), kept_and_gradients(True)
    assert kept_again < kept / 2
    assert len(gradients) == len(gradients_again) > 0
    assert all(torch.equal(a, b) for a, b in zip(gradients, gradients_again, strict=True))
