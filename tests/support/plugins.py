"""Estimators, losses and filters of one's own, right and wrong, by import path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ragen.credit.config import AdvantageConfig
from ragen.credit.credit import Credit
from ragen.credit.outcome import grpo
from ragen.credit.view import TrajectoryView
from ragen.records import Group


def half_grpo(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """Right: half of what GRPO says."""
    return [Credit(advantages=credit.advantages / 2) for credit in grpo(views, config)]


def reward_minus_value(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """Right, with a critic: what is still to come minus the value."""
    credits = []
    for view in views:
        assert view.values is not None
        to_come = view.rewards_per_token()[::-1].cumsum()[::-1] + view.bootstrap
        credits.append(Credit(advantages=to_come - view.values, targets=to_come))
    return credits


reward_minus_value.needs_critic = True  # type: ignore[attr-defined]


def one_for_all(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """Wrong: one answer for the whole batch (bug-log row 32)."""
    return [Credit(advantages=np.zeros(views[0].num_tokens))]


def one_number(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """Wrong: a number where there is one per token."""
    return [Credit(advantages=np.ones(1)) for _ in views]


def plain_numbers(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Any]:
    """Wrong: not wrapped."""
    return [view.return_ for view in views]


def raises(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    raise KeyError("bonus")


def not_a_number(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """Wrong: the spread of a lone member is no number (bug-log rows 17 and 19)."""
    return [Credit(advantages=np.full(view.num_tokens, np.nan)) for view in views]


def zscore_of_everything(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """Wrong: no guard against returns that are equal, or a batch of one."""
    returns = np.array([view.return_ for view in views], dtype=np.float32)
    normalized = (returns - returns.mean()) / (returns.std(ddof=1) + np.float32(1e-6))
    return [Credit(advantages=np.full(view.num_tokens, a, np.float64)) for view, a in zip(views, normalized, strict=True)]


def reinforce(new_M: Tensor, old_M: Tensor, advantages_M: Tensor, owner_M: Tensor) -> Tensor:
    """Right: the plain policy gradient."""
    return -advantages_M * new_M


def gains(new_M: Tensor, old_M: Tensor, advantages_M: Tensor, owner_M: Tensor) -> Tensor:
    """Wrong: what is to grow, where a loss is to shrink."""
    return advantages_M * new_M


def squared_ratio(new_M: Tensor, old_M: Tensor, reference_M: Tensor) -> Tensor:
    """Right: half of the squared log-ratio."""
    return (new_M - reference_M).square() / 2


def widest(groups: Sequence[Group]) -> list[int]:
    """Right: the two groups whose returns lie furthest apart."""
    ranges = [np.ptp([trajectory.return_ for trajectory in group.trajectories] or [0.0]) for group in groups]
    return sorted(sorted(range(len(groups)), key=lambda i: -ranges[i])[:2])


def first(groups: Sequence[Group]) -> list[int]:
    """Wrong: the first two, whatever they are."""
    return list(range(len(groups)))[:2]
