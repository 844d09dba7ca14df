"""Critic-free estimators that judge a trajectory as a whole: one number, its return, on each of its tokens.

All compare the return R with more or less company. ARPO, BRPO and GRPO are one idea at three ranges (none, the batch, the group),
following the reward normalisation of RAGEN.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from ragen.credit.config import TAG, AdvantageConfig
from ragen.credit.credit import Credit
from ragen.credit.normalize import leave_one_out, normalize, within
from ragen.credit.view import TrajectoryView


def grpo(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A = (R - mean_g) / (std_g + 1e-6) over the members of the group g; with method=mean not divided.

    Source: Shao et al. 2024 (DeepSeekMath), outcome supervision; method=mean: Liu et al. 2025 (Dr. GRPO).
    Differs from the paper: the unbiased standard deviation is used, as published RAGEN does.
    """
    return _spread(views, within(_returns(views), [view.group for view in views], partial(normalize, method=config.method)))


def brpo(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A = (R - mean) / (std + 1e-6) over the batch, or over each environment tag by itself.

    A group in which all members did well is pushed up as a whole.
    Source: RAGEN, reward normalisation by batch or "inductive".
    """
    return _spread(views, within(_returns(views), batch_keys(views, config), partial(normalize, method=config.method)))


def arpo(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A = R, as it was earned.

    Source: RAGEN, reward normalisation "identity"; Williams 1992 (REINFORCE).
    """
    return _spread(views, _returns(views))


def rloo(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A = R minus the mean return of the other members: a baseline that its own sample does not move.

    Source: Kool et al. 2019; Ahmadian et al. 2024 (RLOO).
    """
    return _spread(views, within(_returns(views), [view.group for view in views], leave_one_out))


def reinforce_pp_baseline(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A = R - mean_g on every token, whitened afterwards over all tokens (see estimators.py).

    Source: Hu et al. 2025 (REINFORCE++ with baseline).
    Differs from the paper: its KL term is not part of the estimator; it comes with the token rewards or in the loss.
    """
    return _spread(views, within(_returns(views), [view.group for view in views], partial(normalize, method="mean")))


def batch_keys(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Hashable]:
    """Per view, what it shares with those that it is compared with beyond its group."""
    return [view.tag if config.grouping == TAG else None for view in views]


def _returns(views: Sequence[TrajectoryView]) -> list[float]:
    return [view.return_ for view in views]


def _spread(views: Sequence[TrajectoryView], advantages: Sequence[float]) -> list[Credit]:
    """The advantage of a trajectory on each of its tokens."""
    return [
        Credit(advantages=view.per_token([advantage] * len(view.lengths)))
        for view, advantage in zip(views, advantages, strict=True)
    ]
