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
from ragen.algorithms.losses import clipped_surrogate, clipped_where, entropy, kl_estimate, log_ratio
from ragen.metrics import finite_only
from ragen.models.policy import Policy
from ragen.records import Sample
from ragen.training.checkpoint import load_optimizer_tensors, optimizer_tensors
from ragen.training.config import OptimizerConfig
from ragen.training.packing import Pack, pack

MAX_PACK_TOKENS = 4096  # continuation tokens in one forward pass
LOSS_CHUNK = 1024  # trained tokens whose scores over the vocabulary exist at the same time


@dataclass(kw_only=True)
class UpdateResult:
    """What one update did. `culprits` names the samples behind each optimiser step that was skipped."""

    metrics: dict[str, float]
    num_applied: int
    culprits: list[str] = field(default_factory=list)


@dataclass
class _Sums:
    """Running sums over the trained tokens of an update; `first` holds those of the first epoch's untouched policy."""

    tokens: int = 0
    policy_loss: float = 0.0
    entropy: float = 0.0
    kl_loss: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    gap: float = 0.0
    gap_max: float = 0.0
    gap_tokens: int = 0
    grad_norms: list[float] = field(default_factory=list)


class Learner:
    """Owns the optimiser. The policy's log-probs are taken at the temperature the rollout was sampled with."""

    def __init__(
        self, policy: Policy, algorithm: AlgorithmConfig, optimizer: OptimizerConfig, *, temperature: float, run_seed: int
    ) -> None:
        self.policy = policy
        self._algorithm = algorithm
        self._settings = optimizer
        self._temperature = temperature
        self._run_seed = run_seed
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
        sums, culprits, applied = _Sums(), [], 0
        kl_start = self._kl_to_start(samples, kl_groups)
        for epoch in range(self._algorithm.num_epochs):
            for minibatch in self._minibatches(samples, step, epoch):
                culprit = self._optimizer_step(minibatch, sums, first_pass=applied == 0, on_progress=on_progress)
                if culprit:
                    culprits.append(culprit)
                else:
                    applied += 1
        metrics = self._metrics(sums, samples, time.perf_counter() - started)
        metrics |= {"update/kl_start": kl_start, "update/skipped": float(len(culprits))}
        return UpdateResult(metrics=finite_only(metrics), num_applied=applied, culprits=culprits)

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimiser's tensors by parameter name."""
        return optimizer_tensors(self._optimizer, self._parameters)

    def load_optimizer_state(self, tensors: dict[str, Tensor], *, num_optimizer_steps: int) -> None:
        load_optimizer_tensors(self._optimizer, self._parameters, tensors)
        self.num_optimizer_steps = num_optimizer_steps

    def _minibatches(self, samples: Sequence[Sample], step: int, epoch: int) -> list[list[Sample]]:
        """Cut the samples into near-equal parts, whole prompts together as far as that goes, in an order of the run's seed."""
        prompts: dict[bytes, list[Sample]] = {}
        for sample in samples:
            prompts.setdefault(sample.trajectory.ids[: sample.trajectory.prompt_length].tobytes(), []).append(sample)
        order = np.random.default_rng((self._run_seed, step, epoch)).permutation(len(prompts))
        units = list(prompts.values())
        ordered = [sample for unit in order for sample in units[unit]]
        bounds = np.linspace(0, len(ordered), self._algorithm.num_minibatches + 1).round().astype(int)
        parts = [ordered[a:b] for a, b in pairwise(bounds)]
        return [part for part in parts if part]

    def _optimizer_step(
        self, samples: list[Sample], sums: _Sums, *, first_pass: bool, on_progress: Callable[[int], None] | None
    ) -> str:
        """Take one optimiser step; return the names of the samples at fault if it had to be skipped, else an empty string."""
        self._optimizer.zero_grad(set_to_none=True)
        packs = pack(samples, max_tokens=MAX_PACK_TOKENS, device=self.policy.device)
        denominator = sum(p.num_trained for p in packs)
        for part in packs:
            culprit = self._backward(part, denominator, sums, first_pass=first_pass)
            if culprit:
                self._optimizer.zero_grad(set_to_none=True)
                return culprit
            if on_progress is not None:
                on_progress(len(part.samples))
        norm = torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.grad_clip).item()
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            return f"gradient norm {norm} over {_names(samples)}"
        sums.grad_norms.append(norm)
        self._set_learning_rate()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.num_optimizer_steps += 1
        self.policy.version += 1
        return ""

    def _backward(self, part: Pack, denominator: int, sums: _Sums, *, first_pass: bool) -> str:
        """Add the gradient of one pack; return what is not finite, if anything."""
        algorithm = self._algorithm
        new_M, entropy_M = self.score(part)
        clip = {"clip_low": algorithm.clip_low, "clip_high": algorithm.clip_high}
        policy_M = clipped_surrogate(new_M, part.old_logprob_M, part.advantage_M, **clip)
        loss_M = policy_M - algorithm.entropy_coef * entropy_M
        if algorithm.kl_coef:
            kl_M = kl_estimate(new_M, self._reference_logprobs(part), estimator=algorithm.kl_estimator)
            loss_M = loss_M + algorithm.kl_coef * kl_M
            sums.kl_loss += kl_M.sum().item()
        if not bool(loss_M.isfinite().all()):
            at_fault = part.sample_M[~loss_M.isfinite()].unique().tolist()
            return f"loss of {_names([part.samples[i] for i in at_fault])}"
        (loss_M.sum() / denominator).backward()
        if not all(bool(p.grad.isfinite().all()) for p in self._parameters.values() if p.grad is not None):
            return f"gradient of {_names(part.samples)}"
        with torch.no_grad():
            _add(sums, part, new_M, policy_M, entropy_M, clip, first_pass=first_pass)
        return ""

    def score(self, part: Pack) -> tuple[Tensor, Tensor]:
        """Log-prob of every trained token and entropy of its distribution, both [M] in float32.

        Only the positions that predict a trained token go through the output layer, LOSS_CHUNK at a time.
        """
        hidden_LD = self.policy.hidden(part.ids_L, part.positions_L, part.view())
        logprobs, entropies = [], []
        for rows_C, target_C in zip(part.predictor_M.split(LOSS_CHUNK), part.target_M.split(LOSS_CHUNK), strict=True):
            log_softmax_CV = (self.policy.logits(hidden_LD[rows_C]) / self._temperature).log_softmax(-1)
            logprobs.append(log_softmax_CV.gather(1, target_C[:, None])[:, 0])
            entropies.append(entropy(log_softmax_CV))
        return torch.cat(logprobs), torch.cat(entropies)

    @torch.no_grad()
    def _reference_logprobs(self, part: Pack) -> Tensor:
        with self.policy.reference() as reference:
            hidden_LD = reference.hidden(part.ids_L, part.positions_L, part.view())
            logits_MV = reference.logits(hidden_LD[part.predictor_M]) / self._temperature
            return logits_MV.log_softmax(-1).gather(1, part.target_M[:, None])[:, 0]

    @torch.no_grad()
    def _kl_to_start(self, samples: Sequence[Sample], num_groups: int) -> float | None:
        """k3 estimate of KL(policy || start policy) per token, over the first `num_groups` prompts of the rollout."""
        packs = pack(samples, max_tokens=MAX_PACK_TOKENS, device=self.policy.device)[:num_groups]
        if not packs:
            return None
        terms = [kl_estimate(self.score(part)[0], self._reference_logprobs(part), estimator="k3") for part in packs]
        return torch.cat(terms).mean().item()

    def _set_learning_rate(self) -> None:
        share = min(1.0, (self.num_optimizer_steps + 1) / max(1, self._settings.warmup_steps))
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.lr * share

    def _metrics(self, sums: _Sums, samples: Sequence[Sample], seconds: float) -> dict[str, float | None]:
        tokens = max(1, sums.tokens)
        policy_loss, mean_entropy = sums.policy_loss / tokens, sums.entropy / tokens
        kl_loss = sums.kl_loss / tokens
        algorithm = self._algorithm
        return {
            "update/loss": policy_loss - algorithm.entropy_coef * mean_entropy + algorithm.kl_coef * kl_loss,
            "update/policy_loss": policy_loss,
            "update/entropy": mean_entropy,
            "update/ratio_mean": sums.ratio / tokens,
            "update/ratio_max": sums.ratio_max,
            "update/clip_low_frac": sums.clipped_low / tokens,
            "update/clip_high_frac": sums.clipped_high / tokens,
            "update/engine_gap_mean": sums.gap / sums.gap_tokens if sums.gap_tokens else None,
            "update/engine_gap_max": sums.gap_max if sums.gap_tokens else None,
            "update/grad_norm": sum(sums.grad_norms) / len(sums.grad_norms) if sums.grad_norms else None,
            "update/learning_rate": self._optimizer.param_groups[0]["lr"],
            "update/tokens": float(sums.tokens),
            "update/advantage_std": float(np.std([s.advantages[-1] for s in samples])),
            "update/tokens_per_s": sums.tokens / seconds,
        }


def _add(
    sums: _Sums, part: Pack, new_M: Tensor, policy_M: Tensor, entropy_M: Tensor, clip: dict[str, float], *, first_pass: bool
) -> None:
    ratio_M = log_ratio(new_M, part.old_logprob_M).exp()
    low_M, high_M = clipped_where(new_M, part.old_logprob_M, part.advantage_M, **clip)
    sums.tokens += part.num_trained
    sums.policy_loss += policy_M.sum().item()
    sums.entropy += entropy_M.sum().item()
    sums.ratio += ratio_M.sum().item()
    sums.ratio_max = max(sums.ratio_max, ratio_M.max().item())
    sums.clipped_low += low_M.sum().item()
    sums.clipped_high += high_M.sum().item()
    if first_pass:  # nothing has moved yet: what differs is the engine against the learner
        gap_M = (new_M - part.old_logprob_M).abs()
        sums.gap += gap_M.sum().item()
        sums.gap_max = max(sums.gap_max, gap_M.max().item())
        sums.gap_tokens += part.num_trained


def _names(samples: Sequence[Sample]) -> str:
    keys = [sample.trajectory.key for sample in samples]
    named = ", ".join(f"{k.environment} group {k.group} member {k.member} (task seed {k.task_seed})" for k in keys[:4])
    return named + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
