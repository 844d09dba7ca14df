"""Group -> Sample: the credit of every trained token, put where the token stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragen.credit.config import AdvantageConfig
from ragen.credit.credit import Credit
from ragen.credit.estimators import estimate
from ragen.credit.view import FloatS, Values, make_views, trained_masks, where
from ragen.errors import TrainingError
from ragen.records import EpisodeKey, FloatT, Group, MaskT, Sample, Trajectory


@dataclass(frozen=True, kw_only=True)
class CriticSample:
    """What the critic learns from one sample; 0 where nothing is trained."""

    values: FloatT  # [T], what it said when the rollout was played
    targets: FloatT  # [T], what it should have said


def make_samples(
    groups: Sequence[Group],
    config: AdvantageConfig,
    *,
    values: Mapping[EpisodeKey, Values] | None = None,
    token_rewards: Mapping[EpisodeKey, FloatS] | None = None,
) -> list[Sample]:
    """One sample per segment of every scored trajectory that holds a trained token, with its advantages. See `assign_credit`."""
    return assign_credit(groups, config, values=values, token_rewards=token_rewards)[0]


def assign_credit(
    groups: Sequence[Group],
    config: AdvantageConfig,
    *,
    values: Mapping[EpisodeKey, Values] | None = None,
    token_rewards: Mapping[EpisodeKey, FloatS] | None = None,
) -> tuple[list[Sample], list[CriticSample]]:
    """The samples of a step, and beside each of them what the critic learns from it (an empty list without a critic).

    `values` is what the critic says of each scored trajectory, `token_rewards` [S] what its trained tokens earn beside the
    rewards of their turns. A segment without a trained token gives no sample, but the return of its trajectory counts in the
    group: it was scored. Raises TrainingError naming the trajectory whose return or advantage cannot be trained on.
    """
    assert values is not None or not config.needs_critic, f"{config.estimator} needs values"
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    views = make_views(groups, values=values, token_rewards=token_rewards)
    samples: list[Sample] = []
    critic: list[CriticSample] = []
    for trajectory, view, credit in zip(trajectories, views, estimate(views, config), strict=True):
        _check_finite(trajectory, credit, config)
        masks = trained_masks(trajectory)
        advantages = _scatter(credit.advantages, masks)
        for index, mask in enumerate(masks):
            if mask.any():
                samples.append(Sample(trajectory=trajectory, segment=index, advantages=advantages[index]))
        if credit.targets is not None and view.values is not None:
            pairs = zip(_scatter(view.values, masks), _scatter(credit.targets, masks), masks, strict=True)
            critic += [CriticSample(values=values_T, targets=targets_T) for values_T, targets_T, mask in pairs if mask.any()]
    return samples, critic


def _scatter(numbers: FloatS, masks: Sequence[MaskT]) -> list[FloatT]:
    """From the S axis of a trajectory to the T axis of each of its segments."""
    parts = np.split(numbers.astype(np.float32), np.cumsum([mask.sum() for mask in masks])[:-1])
    scattered = [np.zeros(mask.shape, dtype=np.float32) for mask in masks]
    for target, mask, part in zip(scattered, masks, parts, strict=True):
        target[mask] = part
    return scattered


def _check_finite(trajectory: Trajectory, credit: Credit, config: AdvantageConfig) -> None:
    for name, numbers in (("advantage", credit.advantages), ("target of the critic", credit.targets)):
        if numbers is not None and not (np.abs(numbers) < np.finfo(np.float32).max).all():
            raise TrainingError(f"{name} by {config.estimator} of {where(trajectory)}: must be a finite number in float32")
