"""From samples to flat token rows: every prompt once, its continuations behind it, and where the trained tokens stand.

Axes: L flat tokens of one pack, M trained tokens of one pack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ragen.models.attention import PackedView
from ragen.records import Sample


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Samples that start with the same prompt, as one forward pass sees them."""

    samples: tuple[Sample, ...]
    ids_L: Tensor
    positions_L: Tensor
    prompt_length: int
    lengths: tuple[int, ...]  # continuation tokens that are fed to the model, per sample that has any
    predictor_M: Tensor  # index into L of the token whose output predicts the trained one
    target_M: Tensor  # id of the trained token
    old_logprob_M: Tensor  # what the engine recorded for it
    advantage_M: Tensor
    sample_M: Tensor  # index into `samples`

    def view(self) -> PackedView:
        return PackedView(self.prompt_length, self.lengths, device=self.ids_L.device)

    @property
    def num_trained(self) -> int:
        return len(self.target_M)


def by_prompt(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples that start with the same prompt together, in order of first appearance."""
    prompts: dict[bytes, list[Sample]] = {}
    for sample in samples:
        prompts.setdefault(sample.ids[: sample.prompt_length].tobytes(), []).append(sample)
    return list(prompts.values())


def minibatches(samples: Sequence[Sample], count: int, *, seed: tuple[int, ...]) -> list[list[Sample]]:
    """Cut samples into `count` near-equal parts, whole prompts together as far as that goes, in an order drawn from `seed`.

    Fewer parts where there are fewer samples; none is empty.
    """
    prompts = by_prompt(samples)
    order = np.random.default_rng(seed).permutation(len(prompts))
    ordered = [sample for place in order for sample in prompts[place]]
    bounds = np.linspace(0, len(ordered), count + 1).round().astype(int)
    parts = [ordered[a:b] for a, b in pairwise(bounds)]
    return [part for part in parts if part]


def named(samples: Sequence[Sample]) -> str:
    """Which trajectories the samples come from, for a message: the first four by environment, group, member and seed."""
    keys = [sample.trajectory.key for sample in samples]
    names = ", ".join(f"{k.environment} group {k.group} member {k.member} (task seed {k.task_seed})" for k in keys[:4])
    return names + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")


def pack(samples: Sequence[Sample], *, max_tokens: int, device: torch.device | str) -> list[Pack]:
    """Gather samples by prompt into packs of at most `max_tokens` continuation tokens.

    A sample that is longer by itself gets a pack of its own. Every sample has at least one trained token.
    """
    return [_pack(part, device) for members in by_prompt(samples) for part in _cut(members, max_tokens)]


def _cut(samples: list[Sample], max_tokens: int) -> Iterator[list[Sample]]:
    part: list[Sample] = []
    width = 0
    for sample in samples:
        length = len(sample.ids) - sample.prompt_length
        width = max(width, length)
        if part and width * (len(part) + 1) > max_tokens:  # attention pads a pack to its longest continuation
            yield part
            part, width = [], length
        part.append(sample)
    yield part


def _pack(samples: list[Sample], device: torch.device | str) -> Pack:
    P = samples[0].prompt_length
    ids = [samples[0].ids[:P]]
    positions = [np.arange(P)]
    predictors, targets, old, advantages, owner, lengths = [], [], [], [], [], []
    start = P  # where the next continuation begins on the L axis
    for index, sample in enumerate(samples):
        assert sample.prompt_length == P, (sample.prompt_length, P)
        trained = sample.mask.nonzero()[0]  # on the sample's own T axis
        fed = sample.ids[P : trained[-1]]  # the last trained token is predicted, never fed
        predictors.append(np.where(trained == P, P - 1, start + trained - P - 1))
        targets.append(sample.ids[trained])
        old.append(sample.logprobs[trained])
        advantages.append(sample.advantages[trained])
        owner.append(np.full(len(trained), index))
        if len(fed):
            ids.append(fed)
            positions.append(np.arange(P, P + len(fed)))
            lengths.append(len(fed))
            start += len(fed)

    def on_device(parts: list[np.ndarray], dtype: torch.dtype) -> Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device=device, dtype=dtype)

    return Pack(
        samples=tuple(samples),
        ids_L=on_device(ids, torch.long),
        positions_L=on_device(positions, torch.long),
        prompt_length=P,
        lengths=tuple(lengths),
        predictor_M=on_device(predictors, torch.long),
        target_M=on_device(targets, torch.long),
        old_logprob_M=on_device(old, torch.float32),
        advantage_M=on_device(advantages, torch.float32),
        sample_M=on_device(owner, torch.long),
    )
