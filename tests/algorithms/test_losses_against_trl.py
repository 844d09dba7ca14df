"""Our losses against TRL's: the method that computes them, out of its source, with a stand-in for the trainer around it.

TRL is not imported, since that would need all that its trainer needs. `make .venv/.dev` installs the package for its files.
"""

from __future__ import annotations

import ast
import importlib.util
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ragen.algorithms.aggregation import denominator, token_weight
from ragen.algorithms.config import LossConfig
from ragen.algorithms.kl import kl_loss
from ragen.algorithms.losses import policy_term

LONGEST = 50  # tokens an episode may hold


@cache
def their_loss() -> Any:
    found = importlib.util.find_spec("trl")
    assert found is not None, "the package trl is not installed; `make test` brings it"
    assert found.submodule_search_locations
    path = Path(found.submodule_search_locations[0]) / "trainer" / "grpo_trainer.py"
    trainer = next(n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef) and n.name == "GRPOTrainer")
    method = next(n for n in trainer.body if isinstance(n, ast.FunctionDef) and n.name == "_compute_loss")
    space = {"torch": torch, "nanmin": torch.min, "nanmax": torch.max}
    exec(compile(ast.Module([method], []), str(path), "exec"), space)
    return space["_compute_loss"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B samples padded to T tokens."""

    new: Tensor
    old: Tensor
    reference: Tensor
    entropy: Tensor
    advantages: Tensor  # [B]
    mask: Tensor
    weight: Tensor  # from learner to engine


def draw(seed: int, spread: float, dtype: torch.dtype) -> Batch:
    g = torch.Generator().manual_seed(seed)
    B, T = 6, 40
    new = -torch.rand((B, T), generator=g, dtype=dtype) * 5

    def noise(scale: float) -> Tensor:
        return scale * torch.randn((B, T), generator=g, dtype=dtype)

    return Batch(
        new=new.requires_grad_(),
        old=new.detach() + noise(spread),
        reference=new.detach() + noise(0.5),
        entropy=noise(1.0).abs(),
        advantages=torch.randn(B, generator=g, dtype=dtype),
        mask=(torch.arange(T) < torch.randint(1, T + 1, (B, 1), generator=g)).long(),
        weight=noise(0.5).exp().clamp(max=2.0),
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """The same loss, set up in their words and in ours."""

    theirs: dict[str, Any]
    ours: LossConfig
    spread: float = 0.6  # of log pi_new - log pi_old
    kl_coef: float = 0.0
    kl_estimator: str = "k3"
    entropy_coef: float = 0.0
    weighted: bool = False


def by_trl(case: Case, b: Batch) -> Tensor:
    args = SimpleNamespace(
        use_bias_correction_kl=case.kl_estimator == "unbiased",
        delta=case.ours.dual_clip,
        sapo_temperature_pos=case.ours.temperature_pos,
        sapo_temperature_neg=case.ours.temperature_neg,
        steps_per_generation=1,
    )
    alone = SimpleNamespace(gather=lambda x: x, reduce=lambda x, reduction: x, num_processes=1, sync_gradients=True)
    bounds = {"epsilon_low": case.ours.clip_low, "epsilon_high": case.ours.clip_high, "importance_sampling_level": "token"}
    trainer = SimpleNamespace(
        args=args,
        accelerator=alone,
        model=SimpleNamespace(training=True),
        beta=case.kl_coef,
        entropy_coef=case.entropy_coef,
        _entropy_bonus_enabled=case.entropy_coef > 0,
        use_adaptive_entropy=False,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=case.weighted,
        vllm_importance_sampling_correction=True,
        current_gradient_accumulation_steps=1,
        max_completion_length=LONGEST,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (b.new, b.entropy, None),
        **(bounds | case.theirs),
    )
    prompt, ids = torch.zeros((len(b.new), 1), dtype=torch.long), torch.zeros(b.new.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": prompt,
        "prompt_mask": prompt,
        "completion_ids": ids,
        "completion_mask": b.mask,
        "advantages": b.advantages,
        "old_per_token_logps": b.old,
        "ref_per_token_logps": b.reference,
        "num_items_in_batch": b.mask.sum(),
        "importance_sampling_ratio": b.weight,
    }
    loss: Tensor = their_loss()(trainer, None, inputs)
    return loss


def by_us(case: Case, b: Batch) -> Tensor:
    sampled, lengths = b.mask.bool(), b.mask.sum(-1).tolist()
    owner_M = torch.arange(len(b.new)).repeat_interleave(b.mask.sum(-1))
    new_M, old_M, reference_M = b.new[sampled], b.old[sampled], b.reference[sampled]
    advantages_M = b.advantages[owner_M] * (b.weight[sampled] if case.weighted else 1.0)
    loss_M = policy_term(new_M, old_M, advantages_M, owner_M, case.ours).loss_M
    loss_M = loss_M - case.entropy_coef * b.entropy[sampled]
    loss_M = loss_M + case.kl_coef * kl_loss(new_M, old_M, reference_M, estimator=case.kl_estimator)
    aggregation = case.ours.aggregation
    weights = b.new.new_tensor([token_weight(aggregation, trajectory_tokens=n) for n in lengths])
    divisor = denominator(aggregation, num_tokens=lengths, trajectory_tokens=lengths, episode_tokens=LONGEST)
    return (loss_M * weights[owner_M]).sum() / divisor


BY_SAMPLE = "seq_mean_token_mean"
GSPO = LossConfig(name="gspo", clip_low=3e-4, clip_high=4e-4, aggregation=BY_SAMPLE)
WIDE_GSPO = LossConfig(name="gspo", clip_low=0.03, clip_high=0.04, aggregation=BY_SAMPLE)
SEQUENCE = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
CISPO = Case(theirs={"loss_type": "cispo", "epsilon_high": 5.0}, ours=LossConfig(name="cispo", clip_low=1.0, clip_high=4.0))

CASES = {
    "grpo": Case(theirs={"loss_type": "grpo"}, ours=LossConfig(aggregation=BY_SAMPLE)),
    "grpo-kl": Case(theirs={"loss_type": "grpo"}, ours=LossConfig(aggregation=BY_SAMPLE), kl_coef=0.04),
    "bnpo": Case(theirs={"loss_type": "bnpo"}, ours=LossConfig()),
    "dapo": Case(theirs={"loss_type": "dapo"}, ours=LossConfig()),
    "dapo-entropy": Case(theirs={"loss_type": "dapo"}, ours=LossConfig(), entropy_coef=0.01),
    "dapo-unbiased-kl": Case(theirs={"loss_type": "dapo"}, ours=LossConfig(), kl_coef=0.1, kl_estimator="unbiased"),
    "dapo-dual-clip": Case(theirs={"loss_type": "dapo"}, ours=LossConfig(dual_clip=3.0)),
    "dapo-engine": Case(theirs={"loss_type": "dapo"}, ours=LossConfig(), weighted=True),
    "dr-grpo": Case(theirs={"loss_type": "dr_grpo"}, ours=LossConfig(aggregation="constant")),
    "luspo": Case(theirs={"loss_type": "luspo"}, ours=LossConfig(aggregation="seq_mean_token_sum")),
    "gspo": Case(theirs=SEQUENCE, ours=GSPO, spread=0.001),
    "gspo-wide": Case(theirs=SEQUENCE, ours=WIDE_GSPO, spread=0.1),
    "cispo": CISPO,
    "sapo": Case(theirs={"loss_type": "sapo"}, ours=LossConfig(name="sapo", aggregation=BY_SAMPLE)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 2e-7), (torch.float32, 1e-5)])
def test_loss_and_gradient_are_those_of_trl(name: str, dtype: torch.dtype, atol: float) -> None:
    """Largest differences seen: 1e-14 in float64 (1e-7 for SAPO, whose temperatures TRL keeps in float32), 4e-6 in float32."""
    for seed in range(5):
        batch = draw(seed, CASES[name].spread, dtype)
        theirs, ours = by_trl(CASES[name], batch), by_us(CASES[name], batch)
        (their_slope,), (our_slope,) = (torch.autograd.grad(loss, batch.new) for loss in (theirs, ours))
        assert their_slope.abs().max() > 1e-3
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=0)
        torch.testing.assert_close(our_slope, their_slope, atol=atol, rtol=0)
