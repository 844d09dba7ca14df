"""The critic: what a state is worth, read off a language model by a value head.

The state before a sampled token is everything up to the token that precedes it, so its value is read where the policy's
log-prob of that token is read, over the same packs (ragen/training/packing.py). Formulas: docs/algorithms/critic.md.

Axes: M trained tokens of one pack, S trained tokens of one sample, D width of the hidden states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ragen.algorithms.critic_config import CriticConfig
from ragen.algorithms.value_loss import explained_variance, value_clipped_where, value_loss
from ragen.credit.samples import CriticSample
from ragen.credit.view import Values, blank_sample
from ragen.errors import ModelError, StorageError, TrainingError
from ragen.metrics import finite_only
from ragen.models.config import ModelConfig
from ragen.models.policy import POLICY_ADAPTER, Policy, load_policy
from ragen.models.value_head import ValueHead
from ragen.records import EpisodeKey, Sample, Segment, Trajectory
from ragen.training.checkpoint import load_optimizer_tensors, load_parameters, optimizer_tensors
from ragen.training.config import OptimizerConfig
from ragen.training.pack_size import PackSize
from ragen.training.packing import Pack, minibatches, named, pack
from ragen.training.provenance import verify_pack
from ragen.training.update import UpdateResult

CRITIC_ADAPTER = "critic"
FOLDER = "critic"  # inside a checkpoint
WEIGHTS, OPTIMIZER = "weights.safetensors", "optimizer.safetensors"
STREAM = 1  # sets the critic's random streams apart from the policy's

FloatS = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Body:
    """The model whose hidden states the value head reads, and what of it the critic trains: nothing if it is the trunk."""

    model: Policy
    adapter: str
    trained: dict[str, nn.Parameter]


@dataclass(kw_only=True)
class _Sums:
    """Over the trained tokens of one optimiser step."""

    tokens: int = 0
    loss: float = 0.0
    clipped: float = 0.0


@dataclass(kw_only=True)
class _Record(_Sums):
    """Of what was optimised in one update. Skipped optimiser steps leave no trace here."""

    grad_norms: list[float] = field(default_factory=list)


class Critic:
    """A value head over hidden states, the adapters or weights it trains beside the head, and their optimiser.

    Nothing that belongs to the policy is ever changed or given a gradient, and the policy's version does not move.
    """

    def __init__(
        self,
        body: Body,
        config: CriticConfig,
        optimizer: OptimizerConfig,
        *,
        run_seed: int,
        pack_size: PackSize | None = None,
    ) -> None:
        self.head = ValueHead(body.model.width, std=config.init_std, seed=_seed(run_seed), device=body.model.device)
        self._body = body
        self._config = config
        self._run_seed = run_seed
        self.pack_size = pack_size or PackSize()
        self._parameters = {f"body.{name}": p for name, p in body.trained.items()}
        self._parameters |= {f"head.{name}": p for name, p in self.head.named_parameters()}
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(),
            lr=config.lr,
            betas=(optimizer.beta1, optimizer.beta2),
            weight_decay=optimizer.weight_decay,
        )

    @property
    def num_epochs(self) -> int:
        """How often an update passes over its samples."""
        return self._config.num_epochs

    def trainable(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name, in a fixed order."""
        return dict(self._parameters)

    def check_window(self, max_context_tokens: int) -> None:
        """Raise ConfigError if trajectories may grow longer than the critic's model can read."""
        self._body.model.check_window(max_context_tokens)

    def values(self, trajectories: Sequence[Trajectory]) -> dict[EpisodeKey, Values]:
        """The value of the state before each trained token, and of the state after the last one where a limit cut it short.

        What has no future is worth exactly 0: a task that is over, or a budget that was announced.
        Raises TrainingError naming the trajectories with a value that is not finite.
        """
        limit = self._body.model.max_positions
        samples = [sample for trajectory in trajectories for sample in _to_read(trajectory, limit)]
        read: dict[EpisodeKey, list[FloatS]] = {trajectory.key: [] for trajectory in trajectories}
        assert len(read) == len(trajectories), f"{len(trajectories) - len(read)} trajectories occur twice"
        for sample, values_S in zip(samples, self.pack_size.attempt(lambda: self._read(samples)), strict=True):
            read[sample.trajectory.key].append(values_S)
        return {trajectory.key: _values(trajectory, read[trajectory.key]) for trajectory in trajectories}

    def update(
        self,
        samples: Sequence[Sample],
        lessons: Sequence[CriticSample],
        *,
        step: int,
        on_progress: Callable[[int], None] | None = None,
    ) -> UpdateResult:
        """Move the values towards their targets; beside each sample stands what `values` said of it and what it should have.

        An optimiser step whose loss or gradient is not finite changes nothing and is named in the result.
        """
        known: dict[int, FloatS] = {}
        for sample, lesson in zip(samples, lessons, strict=True):
            known[id(sample)] = np.stack([lesson.values[sample.mask], lesson.targets[sample.mask]])
        assert len(known) == len(samples), f"{len(samples) - len(known)} samples occur twice"
        record, culprits = _Record(), []
        with self._switched_on():
            for epoch in range(self._config.num_epochs):
                seed = (self._run_seed, step, epoch, STREAM)
                for minibatch in minibatches(samples, self._config.num_minibatches, seed=seed):
                    culprit = self._optimizer_step(minibatch, known, record)
                    culprits += [culprit] if culprit else []
                    if on_progress is not None:
                        on_progress(len(minibatch))
        metrics = _metrics(record, *np.concatenate([*known.values()], 1), num_skipped=len(culprits))
        return UpdateResult(metrics=metrics, num_applied=len(record.grad_norms), culprits=culprits)

    def save(self, checkpoint: Path) -> None:
        """Write everything that `load` needs into `critic/` of a checkpoint being written."""
        folder = checkpoint / FOLDER
        folder.mkdir()
        _write(folder / WEIGHTS, self._parameters)
        _write(folder / OPTIMIZER, optimizer_tensors(self._optimizer, self._parameters))

    def load(self, checkpoint: Path) -> None:
        """Go on from what `save` wrote, bit for bit. Raises StorageError if it is not there or of another critic."""
        folder = checkpoint / FOLDER
        if not folder.is_dir():
            raise StorageError(f"{checkpoint} holds no critic: a run that began without one cannot be resumed with one")
        load_parameters(self._parameters, load_file(folder / WEIGHTS), what=str(folder / WEIGHTS))
        load_optimizer_tensors(self._optimizer, self._parameters, load_file(folder / OPTIMIZER))

    @torch.no_grad()
    def _read(self, samples: Sequence[Sample]) -> list[FloatS]:
        """Per sample [S]: for each trained token the value of the state before it. Advantages are not looked at."""
        values: dict[int, FloatS] = {}
        with self._switched_on():
            for part in self._packs(samples):
                values_M, sample_M = self._score(part).cpu().numpy(), part.sample_M.cpu().numpy()
                values |= {id(sample): values_M[sample_M == index] for index, sample in enumerate(part.samples)}
        broken = [sample for sample in samples if not np.isfinite(values[id(sample)]).all()]
        if broken:
            raise TrainingError(f"the critic's value is not finite for {named(broken)}; a smaller algorithm.critic.lr may help")
        return [values[id(sample)] for sample in samples]

    def _switched_on(self) -> AbstractContextManager[None]:
        return self._body.model.adapter(self._body.adapter)

    def _packs(self, samples: Sequence[Sample]) -> list[Pack]:
        packs = pack(samples, max_tokens=self.pack_size.tokens, device=self._body.model.device)
        for part in packs:
            verify_pack(part)
        return packs

    def _score(self, part: Pack) -> Tensor:
        """Values [M] in float32. Gradients reach the head and what the critic trains, no further."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and bool(self._body.trained)):
            hidden_LD = self._body.model.hidden(part.ids_L, part.positions_L, part.view())
        values_M: Tensor = self.head(hidden_LD[part.predictor_M])
        return values_M

    def _optimizer_step(self, samples: list[Sample], known: dict[int, FloatS], record: _Record) -> str:
        """Take one optimiser step; return the names of the samples at fault if it had to be skipped, else an empty string."""
        done = self.pack_size.attempt(lambda: self._gradients(samples, known), undo=self._drop_gradients)
        if isinstance(done, str):
            return self._skip(done)
        norm = nn.utils.clip_grad_norm_(self._parameters.values(), self._config.grad_clip).item()
        if not math.isfinite(norm):
            return self._skip(f"critic's gradient norm {norm} over {named(samples)}")
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        record.tokens += done.tokens
        record.loss += done.loss
        record.clipped += done.clipped
        record.grad_norms.append(norm)
        return ""

    def _gradients(self, samples: list[Sample], known: dict[int, FloatS]) -> _Sums | str:
        """Leave the gradient of one optimiser step in the parameters; what it was made of, or the name of what is not finite."""
        self._drop_gradients()
        packs = self._packs(samples)
        sums = _Sums(tokens=sum(part.num_trained for part in packs))
        for part in packs:
            both_2M = torch.from_numpy(np.concatenate([known[id(sample)] for sample in part.samples], 1))
            old_M, target_M = both_2M.to(device=part.ids_L.device, dtype=torch.float32)
            values_M = self._score(part)
            loss_M = value_loss(values_M, old_M, target_M, clip=self._config.clip, huber_delta=self._config.huber_delta)
            if not bool(loss_M.isfinite().all()):
                at_fault = part.sample_M[~loss_M.isfinite()].unique().tolist()
                return f"value loss of {named([part.samples[i] for i in at_fault])}"
            (loss_M.sum() / sums.tokens).backward()
            sums.loss += loss_M.detach().sum().item()
            sums.clipped += value_clipped_where(values_M.detach(), old_M, target_M, clip=self._config.clip).sum().item()
        return sums

    def _drop_gradients(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def _skip(self, culprit: str) -> str:
        self._drop_gradients()
        return culprit


def load_critic(
    config: CriticConfig,
    policy: Policy,
    model: ModelConfig,
    optimizer: OptimizerConfig,
    *,
    run_seed: int,
    checkpoint: Path | None = None,
    pack_size: PackSize | None = None,
) -> Critic:
    """Build the critic of a policy that was loaded as `model`; with `checkpoint`, go on from the one saved there.

    Raises ModelError or StorageError if that cannot be.
    """
    match config.kind_beside(model):
        case "adapter":
            policy.add_adapter(CRITIC_ADAPTER, rank=config.lora_rank or model.lora_rank, seed=_seed(run_seed))
            body = Body(model=policy, adapter=CRITIC_ADAPTER, trained=policy.trainable(CRITIC_ADAPTER))
        case "trunk":
            body = Body(model=policy, adapter=POLICY_ADAPTER, trained={})
        case "model":
            other = _other_model(config, policy, model, _seed(run_seed))
            body = Body(model=other, adapter=POLICY_ADAPTER, trained=other.trainable())
        case _:
            raise ValueError(f"kind={config.kind!r}")
    critic = Critic(body, config, optimizer, run_seed=run_seed, pack_size=pack_size)
    if checkpoint is not None:
        critic.load(checkpoint)
    return critic


def _other_model(config: CriticConfig, policy: Policy, model: ModelConfig, seed: int) -> Policy:
    """A model of its own, tuned as the policy is. It reads the policy's ids, so both must mean the same by them."""
    rank = config.lora_rank or model.lora_rank
    alpha = max(1, round(model.lora_alpha * rank / model.lora_rank))
    other = load_policy(replace(model, name=config.model or model.name, lora_rank=rank, lora_alpha=alpha), seed=seed)
    if other.tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise ModelError(f"algorithm.critic.model={other.name!r}: must have the same tokenizer as the policy, {policy.name}")
    return other


def _to_read(trajectory: Trajectory, max_positions: int | None) -> list[Sample]:
    """Its segments that hold a trained token; where a limit cut it short, the last one in any case, with one more behind its end.

    That token is a stand-in: it is never fed, and the state before it is the one in which the trajectory was cut off. An end
    beyond what the model can read is moved to the last token that it can.
    """
    if trajectory.truncated:
        last = trajectory.segments[-1]
        ids, mask, logprobs = (x[:max_positions] for x in (last.ids, last.mask, last.logprobs))
        one = np.zeros(1, dtype=np.float32)
        longer = Segment(ids=np.append(ids, ids[-1:]), mask=np.append(mask, True), logprobs=np.append(logprobs, one))
        trajectory = replace(trajectory, segments=(*trajectory.segments[:-1], longer))
    samples = [blank_sample(trajectory, index) for index in range(len(trajectory.segments))]
    return [sample for sample in samples if sample.mask.any()]


def _values(trajectory: Trajectory, read: Sequence[FloatS]) -> Values:
    """What was read of its samples as one; of a truncated trajectory the last number belongs to the stand-in."""
    values_S = np.concatenate([*read, np.zeros(0)])
    if not trajectory.truncated:
        return Values(tokens=values_S, after=0.0)
    return Values(tokens=values_S[:-1], after=float(values_S[-1]))


def _metrics(record: _Record, old_values: FloatS, targets: FloatS, *, num_skipped: int) -> dict[str, float]:
    """`old_values` and `targets` of all trained tokens: how well the critic foretold what it had not been trained on yet."""
    metrics: dict[str, float | None] = {
        "critic/value_mean": float(old_values.mean()),
        "critic/target_mean": float(targets.mean()),
        "critic/explained_variance": explained_variance(torch.from_numpy(old_values), torch.from_numpy(targets)),
        "critic/skipped": float(num_skipped),
    }
    if record.grad_norms:
        metrics |= {
            "critic/loss": record.loss / record.tokens,
            "critic/clip_frac": record.clipped / record.tokens,
            "critic/grad_norm": sum(record.grad_norms) / len(record.grad_norms),
        }
    return finite_only(metrics)


def _seed(run_seed: int) -> int:
    """Of the critic's first values: another stream than that of the policy's adapters."""
    return int(np.random.SeedSequence(run_seed, spawn_key=(STREAM,)).generate_state(1)[0])


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
