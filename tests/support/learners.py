"""A small policy and a learner over it, and what stock transformers says about the same tokens."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from ragen.algorithms.config import AlgorithmConfig
from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.records import Sample, Trajectory
from ragen.training.config import OptimizerConfig
from ragen.training.update import Learner
from tests.support.models import tiny_llama
from tests.support.samples import make_sample


def small_policy(tuning: str = "full", *, with_reference: bool = False) -> Policy:
    """The two-layer Llama, float32, trained in full or by LoRA adapters."""
    model = ModelConfig(name=str(tiny_llama()), tuning=tuning, dtype="float32")
    return load_policy(model, with_reference=with_reference)


def make_learner(
    policy: Policy,
    *,
    temperature: float = 1.0,
    lr: float = 1e-3,
    run_seed: int = 0,
    warmup_steps: int = 0,
    truncated: bool = False,
    episode_tokens: int | None = None,
    **algorithm: Any,
) -> Learner:
    """A learner with one minibatch and no entropy bonus unless asked otherwise."""
    settings = AlgorithmConfig(**{"num_minibatches": 1, "entropy_coef": 0.0, **algorithm})
    optimizer = OptimizerConfig(lr=lr, warmup_steps=warmup_steps)
    run = {"temperature": temperature, "run_seed": run_seed, "truncated": truncated, "episode_tokens": episode_tokens}
    return Learner(policy, settings, optimizer, **run)


@functools.cache
def _stock_model() -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_llama(), dtype=torch.float32, attn_implementation="eager")


@torch.no_grad()
def stock_logprobs(ids: Sequence[int], temperature: float = 1.0) -> np.ndarray:
    """Log-prob [T] of each id given those before it, by transformers' own model and attention; 0 for the first."""
    logits_TV = _stock_model()(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0].float() / temperature
    logprobs = logits_TV.log_softmax(-1)[:-1].gather(1, torch.tensor(list(ids))[1:, None])[:, 0]
    return np.concatenate([[0.0], logprobs.numpy()]).astype(np.float32)


def on_policy(*samples: Sample, temperature: float = 1.0) -> list[Sample]:
    """The same samples with the log-probs that the untrained small policy gives to their tokens."""
    return [Sample(trajectory=_rescored(s.trajectory, temperature), advantages=s.advantages) for s in samples]


def _rescored(trajectory: Trajectory, temperature: float) -> Trajectory:
    logprobs = np.where(
        trajectory.segments[0].mask, stock_logprobs(trajectory.segments[0].ids.tolist(), temperature), 0.0
    ).astype(np.float32)
    return replace(trajectory, segments=(replace(trajectory.segments[0], logprobs=logprobs),))


def random_samples(count: int, *, seed: int = 0, lengths: Sequence[int] = (5, 9, 2, 12), prompts: int = 2) -> list[Sample]:
    """Samples of one or two turns over a few prompts, advantages drawn around 0, log-probs those of the small policy."""
    random = np.random.default_rng(seed)

    def draw(n: int) -> list[int]:
        return [int(i) for i in random.integers(3, 400, n)]

    heads = [draw(4 + p) for p in range(prompts)]
    made = []
    for i in range(count):
        n = lengths[i % len(lengths)]
        segments = [draw(n)] if i % 2 else [draw(n), draw(3), draw(n)]
        made.append(make_sample(heads[i % prompts], *segments, advantage=float(random.normal()), group=i % prompts, member=i))
    return on_policy(*made)


def weights(policy: Policy) -> dict[str, Tensor]:
    """A copy of everything that could be trained or should not be."""
    return {name: p.detach().clone() for name, p in policy.module.named_parameters()}


def same_tensors(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
