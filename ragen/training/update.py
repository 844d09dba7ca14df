"""The update phase: samples in, changed weights out. One optimiser step per minibatch, one denominator per optimiser step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ragen.algorithms.config import AlgorithmConfig
from ragen.algorithms.losses import clipped_surrogate, clipped_where, entropy, kl_divergence, kl_estimate, log_ratio
from ragen.metrics import finite_only
from ragen.models.policy import Policy
from ragen.records import Sample
from ragen.training.checkpoint import load_optimizer_tensors, optimizer_tensors
from ragen.training.config import OptimizerConfig
from ragen.training.packing import Pack, by_prompt, pack

MAX_PACK_TOKENS = 1024  # continuation tokens in one forward pass
LOSS_CHUNK = 512  # trained tokens whose scores over the vocabulary exist at the same time


@dataclass(kw_only=True)
class UpdateResult:
    """What one update did. `culprits` names the samples behind each optimiser step that was skipped."""

    metrics: dict[str, float]
    num_applied: int
    culprits: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """Sums and maxima over the trained tokens of one pack."""

    tokens: int
    policy_loss: float
    entropy: float
    kl_loss: float
    ratio: float
    ratio_max: float
    clipped_low: float
    clipped_high: float
    gap: float
    gap_max: float


@dataclass(kw_only=True)
class _Record:
    """What was optimised in one update. Skipped optimiser steps leave no trace here."""

    passes: list[_Pass] = field(default_factory=list)
    untouched: list[_Pass] = field(default_factory=list)  # those before the first optimiser step: engine against learner
    grad_norms: list[float] = field(default_factory=list)

    def mean(self, name: str) -> float:
        """Of a sum per trained token."""
        return float(sum(getattr(p, name) for p in self.passes)) / sum(p.tokens for p in self.passes)


class Learner:
    """Owns the optimiser. The policy's log-probs are taken at the temperature the rollout was sampled with.

    `truncated`: the rollout was sampled with top-p or top-k. The engine's log-probs are then those of a cut distribution, all
    larger than the policy's own, and ratios against them would start near top_p instead of 1. So the update begins by taking
    the old log-probs from the policy itself.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: AlgorithmConfig,
        optimizer: OptimizerConfig,
        *,
        temperature: float,
        run_seed: int,
        truncated: bool = False,
    ) -> None:
        self.policy = policy
        self._algorithm = algorithm
        self._settings = optimizer
        self._temperature = temperature
        self._run_seed = run_seed
        self._truncated = truncated
        self._parameters = policy.trainable()
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(),
            lr=optimizer.lr,
            betas=(optimizer.beta1, optimizer.beta2),
            weight_decay=optimizer.weight_decay,
        )
        self.num_optimizer_steps = 0

    @property
    def num_epochs(self) -> int:
        """How often an update passes over its samples."""
        return self._algorithm.num_epochs

    def update(
        self, samples: Sequence[Sample], *, step: int, kl_groups: int = 0, on_progress: Callable[[int], None] | None = None
    ) -> UpdateResult:
        """Optimise the policy on the samples of one rollout. `on_progress` is told how many samples have been processed.

        An optimiser step whose loss or gradient is not finite changes nothing: neither weights, optimiser state nor version.
        """
        started = time.perf_counter()
        record, culprits = _Record(), []
        kl_start = self._kl_to_start(samples, kl_groups)
        if self._truncated:
            samples = self._rescored(samples)
        for epoch in range(self._algorithm.num_epochs):
            for minibatch in self._minibatches(samples, step, epoch):
                culprit = self._optimizer_step(minibatch, record, on_progress)
                if culprit:
                    culprits.append(culprit)
        metrics: dict[str, float | None] = {
            **self._metrics(record, time.perf_counter() - started),
            "update/kl_start": kl_start,
            "update/skipped": float(len(culprits)),
            "update/advantage_std": _advantages(samples).std(correction=0).item(),
        }
        return UpdateResult(metrics=finite_only(metrics), num_applied=len(record.grad_norms), culprits=culprits)

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimiser's tensors by parameter name."""
        return optimizer_tensors(self._optimizer, self._parameters)

    def load_optimizer_state(self, tensors: dict[str, Tensor], *, num_optimizer_steps: int) -> None:
        load_optimizer_tensors(self._optimizer, self._parameters, tensors)
        self.num_optimizer_steps = num_optimizer_steps

    def _minibatches(self, samples: Sequence[Sample], step: int, epoch: int) -> list[list[Sample]]:
        """Cut the samples into near-equal parts, whole prompts together as far as that goes, in an order of the run's seed."""
        prompts = by_prompt(samples)
        order = np.random.default_rng((self._run_seed, step, epoch)).permutation(len(prompts))
        ordered = [sample for place in order for sample in prompts[place]]
        bounds = np.linspace(0, len(ordered), self._algorithm.num_minibatches + 1).round().astype(int)
        parts = [ordered[a:b] for a, b in pairwise(bounds)]
        return [part for part in parts if part]

    def _optimizer_step(self, samples: list[Sample], record: _Record, on_progress: Callable[[int], None] | None) -> str:
        """Take one optimiser step; return the names of the samples at fault if it had to be skipped, else an empty string."""
        self._optimizer.zero_grad(set_to_none=True)
        packs = pack(samples, max_tokens=MAX_PACK_TOKENS, device=self.policy.device)
        denominator = sum(p.num_trained for p in packs)
        passes = []
        for part in packs:
            done = self._backward(part, denominator)
            if isinstance(done, str):
                self._optimizer.zero_grad(set_to_none=True)
                return done
            passes.append(done)
            if on_progress is not None:
                on_progress(len(part.samples))
        norm = torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.grad_clip).item()
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            return f"gradient norm {norm} over {_names(samples)}"
        if not record.grad_norms:
            record.untouched = passes
        record.passes += passes
        record.grad_norms.append(norm)
        self._set_learning_rate()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.num_optimizer_steps += 1
        self.policy.version += 1
        return ""

    def _backward(self, part: Pack, denominator: int) -> _Pass | str:
        """Add the gradient of one pack; return what it was made of, or the name of what is not finite."""
        algorithm = self._algorithm
        new_M, entropy_M = self.score(part)
        clip = {"clip_low": algorithm.clip_low, "clip_high": algorithm.clip_high}
        policy_M = clipped_surrogate(new_M, part.old_logprob_M, part.advantage_M, **clip)
        kl_M = torch.zeros_like(new_M)
        if algorithm.kl_coef:
            kl_M = kl_estimate(new_M, self._reference_logprobs(part), estimator=algorithm.kl_estimator)
        loss_M = policy_M - algorithm.entropy_coef * entropy_M + algorithm.kl_coef * kl_M
        if not bool(loss_M.isfinite().all()):
            at_fault = part.sample_M[~loss_M.isfinite()].unique().tolist()
            return f"loss of {_names([part.samples[i] for i in at_fault])}"
        (loss_M.sum() / denominator).backward()
        if not all(bool(p.grad.isfinite().all()) for p in self._parameters.values() if p.grad is not None):
            return f"gradient of {_names(part.samples)}"
        with torch.no_grad():
            ratio_M = log_ratio(new_M, part.old_logprob_M).exp()
            low_M, high_M = clipped_where(new_M, part.old_logprob_M, part.advantage_M, **clip)
            gap_M = (new_M - part.old_logprob_M).abs()
            return _Pass(
                tokens=part.num_trained,
                policy_loss=policy_M.sum().item(),
                entropy=entropy_M.sum().item(),
                kl_loss=kl_M.sum().item(),
                ratio=ratio_M.sum().item(),
                ratio_max=ratio_M.max().item(),
                clipped_low=low_M.sum().item(),
                clipped_high=high_M.sum().item(),
                gap=gap_M.sum().item(),
                gap_max=gap_M.max().item(),
            )

    def score(self, part: Pack) -> tuple[Tensor, Tensor]:
        """Log-prob of every trained token and entropy of its distribution, both [M] in float32."""
        return _score(self.policy, part, self._temperature)

    @torch.no_grad()
    def _reference_logprobs(self, part: Pack) -> Tensor:
        with self.policy.reference() as reference:
            return _score(reference, part, self._temperature)[0]

    @torch.no_grad()
    def _kl_to_start(self, samples: Sequence[Sample], num_prompts: int) -> float | None:
        """KL(policy || start policy) per sampled token, over the first `num_prompts` prompts of the rollout.

        Summed over the vocabulary: an estimate from the sampled token alone is ruled by the rare token that the policy has
        all but given up.
        """
        measured = [sample for members in by_prompt(samples)[:num_prompts] for sample in members]
        terms = []
        for part in pack(measured, max_tokens=MAX_PACK_TOKENS, device=self.policy.device):
            own_MD = _predictors(self.policy, part)
            with self.policy.reference() as reference:
                start_MD = _predictors(reference, part)
            for own_CD, start_CD in zip(own_MD.split(LOSS_CHUNK), start_MD.split(LOSS_CHUNK), strict=True):
                own_CV = (self.policy.logits(own_CD) / self._temperature).log_softmax(-1)
                with self.policy.reference() as reference:
                    start_CV = (reference.logits(start_CD) / self._temperature).log_softmax(-1)
                terms.append(kl_divergence(own_CV, start_CV))
        return torch.cat(terms).mean().item() if terms else None

    @torch.no_grad()
    def _rescored(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with the policy's own log-probs in place of the engine's, prompt after prompt."""
        rescored = []
        for part in pack(samples, max_tokens=MAX_PACK_TOKENS, device=self.policy.device):
            own_M, sample_M = self.score(part)[0].cpu().numpy(), part.sample_M.cpu().numpy()
            for index, sample in enumerate(part.samples):
                logprobs = sample.logprobs.copy()
                logprobs[sample.mask] = own_M[sample_M == index]
                rescored.append(sample.with_logprobs(logprobs))
        return rescored

    def _set_learning_rate(self) -> None:
        share = min(1.0, (self.num_optimizer_steps + 1) / max(1, self._settings.warmup_steps))
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.lr * share

    def _metrics(self, record: _Record, seconds: float) -> dict[str, float]:
        passes, untouched, norms = record.passes, record.untouched, record.grad_norms
        if not passes:
            return {"update/tokens": 0.0}
        tokens = sum(p.tokens for p in passes)
        algorithm = self._algorithm
        regularizer = algorithm.kl_coef * record.mean("kl_loss") - algorithm.entropy_coef * record.mean("entropy")
        metrics = {
            "update/loss": record.mean("policy_loss") + regularizer,
            "update/policy_loss": record.mean("policy_loss"),
            "update/entropy": record.mean("entropy"),
            "update/ratio_mean": record.mean("ratio"),
            "update/ratio_max": max(p.ratio_max for p in passes),
            "update/clip_low_frac": record.mean("clipped_low"),
            "update/clip_high_frac": record.mean("clipped_high"),
            "update/grad_norm": sum(norms) / len(norms),
            "update/learning_rate": self._optimizer.param_groups[0]["lr"],
            "update/tokens": float(tokens),
            "update/tokens_per_s": tokens / seconds,
        }
        if not self._truncated:  # else the engine's log-probs are not of the learner's distribution
            metrics["update/engine_gap_mean"] = sum(p.gap for p in untouched) / sum(p.tokens for p in untouched)
            metrics["update/engine_gap_max"] = max(p.gap_max for p in untouched)
        return metrics


def _score(policy: Policy, part: Pack, temperature: float) -> tuple[Tensor, Tensor]:
    """Only the positions that predict a trained token go through the output layer, LOSS_CHUNK at a time."""
    hidden_MD = _predictors(policy, part)
    logprobs, entropies = [], []
    for hidden_CD, target_C in zip(hidden_MD.split(LOSS_CHUNK), part.target_M.split(LOSS_CHUNK), strict=True):
        log_softmax_CV = (policy.logits(hidden_CD) / temperature).log_softmax(-1)
        logprobs.append(log_softmax_CV.gather(1, target_C[:, None])[:, 0])
        entropies.append(entropy(log_softmax_CV))
    return torch.cat(logprobs), torch.cat(entropies)


def _predictors(policy: Policy, part: Pack) -> Tensor:
    """The final hidden states [M, D] from which the trained tokens are predicted."""
    return policy.hidden(part.ids_L, part.positions_L, part.view())[part.predictor_M]


def _advantages(samples: Sequence[Sample]) -> Tensor:
    """One number per sample: the advantage of its first trained token."""
    return torch.tensor([s.advantages[s.mask.argmax()] for s in samples], dtype=torch.float64)


def _names(samples: Sequence[Sample]) -> str:
    keys = [sample.trajectory.key for sample in samples]
    named = ", ".join(f"{k.environment} group {k.group} member {k.member} (task seed {k.task_seed})" for k in keys[:4])
    return named + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
