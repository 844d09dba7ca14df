"""Before the first optimiser step: samples in, the same samples out with the log-probs and advantages that the loss reads.

Every weight of a policy term is a factor of its advantage, since all losses are linear in the advantage for either sign of it.
Axes: M trained tokens of one pack, S trained tokens of one sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ragen.algorithms.aggregation import length_weights
from ragen.algorithms.config import LossConfig
from ragen.algorithms.importance import importance_weights
from ragen.records import EpisodeKey, Sample, Summary, Turn
from ragen.training.packing import Pack


def trajectory_tokens(samples: Sequence[Sample]) -> dict[EpisodeKey, int]:
    """Trained tokens of every trajectory, all its segments together."""
    counts: Counter[EpisodeKey] = Counter()
    for sample in samples:
        counts[sample.trajectory.key] += int(sample.mask.sum())
    return dict(counts)


def weighted(samples: Sequence[Sample], loss: LossConfig, tokens: Mapping[EpisodeKey, int]) -> list[Sample]:
    """Advantages times the length weight of their trajectory; all of them 0 where the policy term is switched off."""
    if not loss.task_term:
        return [replace(sample, advantages=np.zeros_like(sample.advantages)) for sample in samples]
    if not loss.length_weight:
        return list(samples)
    weights = dict(zip(tokens, length_weights([*tokens.values()]), strict=True))
    return [replace(s, advantages=s.advantages * np.float32(weights[s.trajectory.key])) for s in samples]


@torch.no_grad()
def with_own_logprobs(
    packs: Sequence[Pack], own_logprobs: Callable[[Pack], Tensor], loss: LossConfig
) -> tuple[list[Sample], dict[str, float]]:
    """The learner's log-probs in place of the engine's, and advantages times the weights that correct the difference.

    Samples come back prompt after prompt; the metrics say how large the difference is and what was corrected.
    """
    samples, gaps, weights, capped, masked = [], [], [], [], []
    for part in packs:
        own_M = own_logprobs(part)
        correction = importance_weights(
            own_M, part.old_logprob_M, part.sample_M, cap=loss.tis_cap, low=loss.tis_mask_low, high=loss.tis_mask_high
        )
        own, weight, owner = (x.cpu().numpy() for x in (own_M, correction.weight_M, part.sample_M))
        for index, sample in enumerate(part.samples):
            logprobs, advantages = sample.logprobs.copy(), sample.advantages.copy()
            logprobs[sample.mask] = own[owner == index]
            advantages[sample.mask] *= weight[owner == index]
            samples.append(replace(sample.with_logprobs(logprobs), advantages=advantages))
        gaps.append((own_M - part.old_logprob_M).abs())
        weights.append(correction.weight_M)
        capped.append(correction.capped_M)
        masked.append(correction.masked_M)
    metrics = (
        {} if not samples else {"update/engine_gap_mean": _mean(gaps), "update/engine_gap_max": max(g.max().item() for g in gaps)}
    )
    if samples and loss.tis_cap is not None:
        metrics |= {"update/tis_weight_mean": _mean(weights), "update/tis_capped_frac": _mean(capped)}
    if samples and (loss.tis_mask_low is not None or loss.tis_mask_high is not None):
        metrics["update/tis_masked_frac"] = _mean(masked)
    return samples, metrics


def version_lags(sample: Sample, version: int) -> NDArray[np.int64]:
    """[S]: by how many optimiser steps the policy that sampled each trained token is older than `version`."""
    lags = np.zeros(len(sample.ids), dtype=np.int64)
    written: list[Turn | Summary] = [*sample.trajectory.turns, *sample.trajectory.summaries]
    for part in written:
        if part.segment == sample.segment:
            lags[part.start : part.stop] = version - part.policy_version
    return lags[sample.mask]


def lag_metrics(samples: Sequence[Sample], version: int) -> dict[str, float]:
    if not samples:
        return {}
    lags = np.concatenate([version_lags(sample, version) for sample in samples])
    return {"update/version_lag_mean": float(lags.mean()), "update/version_lag_max": float(lags.max())}


def _mean(parts: Sequence[Tensor]) -> float:
    return torch.cat(list(parts)).double().mean().item()
