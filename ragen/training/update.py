"""The update phase: samples in, changed weights out. One optimiser step per minibatch, one denominator per optimiser step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ragen.algorithms.aggregation import denominator, token_weight
from ragen.algorithms.config import AlgorithmConfig
from ragen.algorithms.kl import KlController, kl_estimate, kl_loss
from ragen.algorithms.losses import policy_term
from ragen.credit.view import FloatS, blank_sample
from ragen.metrics import finite_only
from ragen.models.policy import Policy
from ragen.records import EpisodeKey, FloatT, Sample, Trajectory
from ragen.training.checkpoint import load_optimizer_tensors, optimizer_tensors
from ragen.training.config import OptimizerConfig
from ragen.training.pack_size import PackSize
from ragen.training.packing import Pack, by_prompt, minibatches, named, pack
from ragen.training.preparation import lag_metrics, trajectory_tokens, weighted, with_own_logprobs
from ragen.training.provenance import verify_pack
from ragen.training.scoring import kl_to_start, reference_logprobs, score
from ragen.training.update_metrics import PassSums, Record, pass_sums


@dataclass(kw_only=True)
class UpdateResult:
    """What one update did. `culprits` names the samples behind each optimiser step that was skipped."""

    metrics: dict[str, float]
    num_applied: int
    culprits: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """How the token losses of one optimiser step become one number."""

    trajectory_tokens: Mapping[EpisodeKey, int]  # of the whole update
    denominator: float


class Learner:
    """Owns the optimiser and the weight of the KL term. Log-probs are taken at the temperature the rollout was sampled with.

    `truncated`: the rollout was sampled with top-p or top-k. The engine's log-probs are then those of a cut distribution, all
    larger than the policy's own, and ratios against them would start near top_p instead of 1. So the update begins by taking
    the old log-probs from the policy itself. `episode_tokens`: sampled tokens that an episode may hold at most, over all its
    turns; needed for the aggregation `constant` alone.
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
        episode_tokens: int | None = None,
        pack_size: PackSize | None = None,
    ) -> None:
        assert algorithm.loss.aggregation != "constant" or episode_tokens, "the longest episode must be known"
        self.policy = policy
        self.kl = KlController(algorithm.kl)
        self._algorithm = algorithm
        self._settings = optimizer
        self._temperature = temperature
        self._run_seed = run_seed
        self._truncated = truncated
        self._episode_tokens = episode_tokens
        self.pack_size = pack_size or PackSize()
        self._parameters = policy.trainable()
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(),
            lr=optimizer.lr,
            betas=(optimizer.beta1, optimizer.beta2),
            weight_decay=optimizer.weight_decay,
        )
        self.num_optimizer_steps = 0
        self._priced: float | None = None  # KL per token that the rewards of this step have paid for

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
        record, culprits = Record(), []
        metrics: dict[str, float | None] = {
            "update/kl_start": self.pack_size.attempt(lambda: self._kl_to_start(samples, kl_groups)),
            "update/advantage_std": _advantage_std(samples),
            **lag_metrics(samples, self.policy.version),
        }
        prepared, gap_metrics = self.pack_size.attempt(lambda: self._prepare(samples))
        tokens = trajectory_tokens(prepared)
        for epoch in range(self._algorithm.num_epochs):
            for minibatch in self._minibatches(prepared, step, epoch):
                culprit = self._optimizer_step(minibatch, tokens, record, on_progress)
                if culprit:
                    culprits.append(culprit)
        metrics |= record.metrics() | (gap_metrics or record.gap_metrics())
        if self._truncated:  # the engine's log-probs are not of the learner's distribution: their gap says nothing of the engine
            metrics |= {"update/engine_gap_mean": None, "update/engine_gap_max": None}
        if record.passes:
            metrics["update/learning_rate"] = self._optimizer.param_groups[0]["lr"]
            metrics["update/tokens_per_s"] = record.num_tokens / (time.perf_counter() - started)
        metrics |= self._kl_metrics(record)
        metrics["update/skipped"] = float(len(culprits))
        metrics["update/out_of_memory"] = float(self.pack_size.take_count())
        return UpdateResult(metrics=finite_only(metrics), num_applied=len(record.grad_norms), culprits=culprits)

    @torch.no_grad()
    def kl_rewards(self, trajectories: Sequence[Trajectory]) -> dict[EpisodeKey, FloatS]:
        """The price of leaving the start policy: per trajectory -coef x KL estimate [S] of its trained tokens, in order of time.

        For algorithm.kl.place=reward, before advantages are computed. The update that follows adapts the weight.
        """
        samples = [sample for trajectory in trajectories for sample in _untaught(trajectory)]
        estimates = self.pack_size.attempt(lambda: self._kl_estimates(samples))
        kl: dict[EpisodeKey, FloatT] = {trajectory.key: np.zeros(0, dtype=np.float32) for trajectory in trajectories}
        for sample in samples:
            kl[sample.trajectory.key] = np.concatenate([kl[sample.trajectory.key], estimates[id(sample)]])
        rewards = {key: -self.kl.coef * kl_S.astype(np.float64) for key, kl_S in kl.items()}
        self._priced = float(np.concatenate([*kl.values()]).mean()) if samples else None
        return rewards

    def _kl_estimates(self, samples: Sequence[Sample]) -> dict[int, FloatT]:
        """Of every trained token [S] under its sample's id()."""
        estimates: dict[int, FloatT] = {}
        for part in self._packs(samples):
            old_M = self.score(part)[0] if self._truncated else part.old_logprob_M
            kl_M = kl_estimate(old_M, self._reference_logprobs(part), estimator=self.kl.config.estimator).cpu().numpy()
            owner_M = part.sample_M.cpu().numpy()
            estimates |= {id(sample): kl_M[owner_M == index] for index, sample in enumerate(part.samples)}
        return estimates

    def score(self, part: Pack) -> tuple[Tensor, Tensor]:
        """Log-prob of every trained token and entropy of its distribution, both [M] in float32."""
        return score(self.policy, part, self._temperature)

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimiser's tensors by parameter name."""
        return optimizer_tensors(self._optimizer, self._parameters)

    def load_optimizer_state(self, tensors: dict[str, Tensor], *, num_optimizer_steps: int) -> None:
        load_optimizer_tensors(self._optimizer, self._parameters, tensors)
        self.num_optimizer_steps = num_optimizer_steps

    def state_dict(self) -> dict[str, float]:
        """What else a checkpoint must hold, as JSON: the weight of the KL term and the pack size, which may have been adapted."""
        return {f"kl_{key}": value for key, value in self.kl.state_dict().items()} | {"pack_tokens": self.pack_size.tokens}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.kl.load_state_dict({key.removeprefix("kl_"): value for key, value in state.items() if key.startswith("kl_")})
        self.pack_size.tokens = int(state["pack_tokens"])

    def _packs(self, samples: Sequence[Sample]) -> list[Pack]:
        packs = pack(samples, max_tokens=self.pack_size.tokens, device=self.policy.device)
        for part in packs:
            verify_pack(part)
        return packs

    def _prepare(self, samples: Sequence[Sample]) -> tuple[list[Sample], dict[str, float]]:
        """The samples as the loss reads them, and the gap between engine and learner where that has been measured."""
        loss = self._algorithm.loss
        metrics: dict[str, float] = {}
        if self._truncated or loss.corrects_engine:
            samples, metrics = with_own_logprobs(self._packs(samples), lambda part: self.score(part)[0], loss)
        return weighted(samples, loss, trajectory_tokens(samples)), metrics

    def _minibatches(self, samples: Sequence[Sample], step: int, epoch: int) -> list[list[Sample]]:
        return minibatches(samples, self._algorithm.num_minibatches, seed=(self._run_seed, step, epoch))

    def _optimizer_step(
        self,
        samples: list[Sample],
        tokens: Mapping[EpisodeKey, int],
        record: Record,
        on_progress: Callable[[int], None] | None,
    ) -> str:
        """Take one optimiser step; return the names of the samples at fault if it had to be skipped, else an empty string."""
        passes = self.pack_size.attempt(lambda: self._gradients(samples, tokens), undo=self._drop_gradients)
        if on_progress is not None:
            on_progress(len(samples))
        if isinstance(passes, str):
            self._drop_gradients()
            return passes
        norm = torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.grad_clip).item()
        if not math.isfinite(norm):
            self._drop_gradients()
            return f"gradient norm {norm} over {named(samples)}"
        record.add(passes, norm)
        self._set_learning_rate()
        self._optimizer.step()
        self._drop_gradients()
        self.num_optimizer_steps += 1
        self.policy.version += 1
        return ""

    def _gradients(self, samples: list[Sample], tokens: Mapping[EpisodeKey, int]) -> list[PassSums] | str:
        """Leave the gradient of one optimiser step in the parameters; the passes it was made of, or what is not finite."""
        self._drop_gradients()
        packs = self._packs(samples)
        scale = self._scale([sample for part in packs for sample in part.samples], tokens)
        passes = []
        for part in packs:
            done = self._backward(part, scale)
            if isinstance(done, str):
                return done
            passes.append(done)
        return passes

    def _drop_gradients(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def _scale(self, samples: Sequence[Sample], tokens: Mapping[EpisodeKey, int]) -> _Scale:
        divisor = denominator(
            self._algorithm.loss.aggregation,
            num_tokens=[int(sample.mask.sum()) for sample in samples],
            trajectory_tokens=[tokens[sample.trajectory.key] for sample in samples],
            episode_tokens=self._episode_tokens,
        )
        return _Scale(trajectory_tokens=tokens, denominator=divisor)

    def _backward(self, part: Pack, scale: _Scale) -> PassSums | str:
        """Add the gradient of one pack; return what it was made of, or the name of what is not finite."""
        algorithm, loss = self._algorithm, self._algorithm.loss
        new_M, entropy_M = self.score(part)
        term = policy_term(new_M, part.old_logprob_M, part.advantage_M, part.sample_M, loss)
        kl_M = torch.zeros_like(new_M)
        if self.kl.in_loss:
            kl_M = kl_loss(new_M, part.old_logprob_M, self._reference_logprobs(part), estimator=self.kl.config.estimator)
        coef = self.kl.coef if self.kl.in_loss else 0.0
        regularizer_M = coef * kl_M - algorithm.entropy_coef * entropy_M
        if not loss.regularize_zero_advantage:
            regularizer_M = regularizer_M.where(part.advantage_M != 0, 0.0)
        loss_M = term.loss_M + regularizer_M
        if not bool(loss_M.isfinite().all()):
            at_fault = part.sample_M[~loss_M.isfinite()].unique().tolist()
            return f"loss of {named([part.samples[i] for i in at_fault])}"
        weights = [
            token_weight(loss.aggregation, trajectory_tokens=scale.trajectory_tokens[s.trajectory.key]) for s in part.samples
        ]
        total = (loss_M * new_M.new_tensor(weights)[part.sample_M]).sum() / scale.denominator
        total.backward()
        if not all(bool(p.grad.isfinite().all()) for p in self._parameters.values() if p.grad is not None):
            return f"gradient of {named(part.samples)}"
        return pass_sums(loss=total, term=term, entropy_M=entropy_M, kl_M=kl_M, new_M=new_M, old_M=part.old_logprob_M)

    @torch.no_grad()
    def _reference_logprobs(self, part: Pack) -> Tensor:
        return reference_logprobs(self.policy, part, self._temperature)

    def _kl_to_start(self, samples: Sequence[Sample], num_prompts: int) -> float | None:
        """Over the first `num_prompts` prompts of the rollout."""
        measured = [sample for members in by_prompt(samples)[:num_prompts] for sample in members]
        return kl_to_start(self.policy, self._packs(measured), self._temperature)

    def _set_learning_rate(self) -> None:
        share = min(1.0, (self.num_optimizer_steps + 1) / max(1, self._settings.warmup_steps))
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.lr * share

    def _kl_metrics(self, record: Record) -> dict[str, float | None]:
        """The KL that was paid for and its weight in this update; adapts the weight for the next."""
        if not self.kl.coef:
            return {}
        measured = record.mean("kl_loss") if self.kl.in_loss else self._priced
        metrics = {"update/kl_loss": measured, "update/kl_coef": self.kl.coef}
        self._priced = None
        if measured is not None:
            self.kl.adapt(measured)
        return metrics


def _untaught(trajectory: Trajectory) -> list[Sample]:
    """Every segment of a trajectory that has a trained token, in order of time, before anything is known of advantages."""
    samples = [blank_sample(trajectory, index) for index in range(len(trajectory.segments))]
    return [sample for sample in samples if sample.mask.any()]


def _advantage_std(samples: Sequence[Sample]) -> float | None:
    """Over the samples, of the advantage of their first trained token."""
    if not samples:
        return None
    return torch.tensor([s.advantages[s.mask.argmax()] for s in samples], dtype=torch.float64).std(correction=0).item()
