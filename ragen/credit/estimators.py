"""Advantage estimators by name, and what surrounds each of them: where rewards stand, whitening, a look at the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ragen.credit import gae, outcome, turns
from ragen.credit.config import END, AdvantageConfig
from ragen.credit.credit import Credit, Estimator
from ragen.credit.normalize import whiten
from ragen.credit.outcome import batch_keys
from ragen.credit.plugin import import_function
from ragen.credit.view import TrajectoryView
from ragen.errors import TrainingError, boundary

ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        "gae": gae.gae,
        "turn_gae": gae.turn_gae,
        "bi_level_gae": gae.bi_level_gae,
        "grpo": outcome.grpo,
        "brpo": outcome.brpo,
        "arpo": outcome.arpo,
        "rloo": outcome.rloo,
        "reinforce_pp": turns.reinforce_pp,
        "reinforce_pp_baseline": outcome.reinforce_pp_baseline,
        "return_batch_norm": turns.return_batch_norm,
        "turn_rloo": turns.turn_rloo,
        "gigpo": turns.gigpo,
    }
)


def estimate(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """The credit of each trajectory, in the order of the views.

    `rewards_at=end` moves the rewards before the estimator sees them; whitening comes after it and leaves the critic's targets
    alone. Raises TrainingError if an estimator of one's own raises, or answers something of another shape.
    """
    if config.rewards_at == END:
        views = [view.with_reward_at_end() for view in views]
    if config.is_plugin:
        return _ask_plugin(views, config)
    credits = ESTIMATORS[config.estimator](views, config)
    return _whitened(views, credits, config) if config.whiten and "whiten" in config.reads else credits


def _whitened(views: Sequence[TrajectoryView], credits: Sequence[Credit], config: AdvantageConfig) -> list[Credit]:
    keys = batch_keys(views, config)
    whitened = list(credits)
    for key in dict.fromkeys(keys):
        places = [i for i, other in enumerate(keys) if other == key]
        for i, advantages in zip(places, whiten([credits[i].advantages for i in places]), strict=True):
            whitened[i] = replace(credits[i], advantages=advantages)
    return whitened


def _ask_plugin(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    where = f"algorithm.advantage.estimator={config.estimator!r}"
    function = import_function(config.estimator, where)
    with boundary(TrainingError, where):
        credits = list(function(views, config))
    if len(credits) != len(views):
        raise TrainingError(f"{where}: must answer one Credit per trajectory, {len(views)}, not {len(credits)}")
    for view, credit in zip(views, credits, strict=True):
        if not isinstance(credit, Credit):
            raise TrainingError(f"{where}: must answer a list of ragen.credit.credit.Credit, not of {type(credit).__name__}")
        for name, answer in (("advantages", credit.advantages), ("targets", credit.targets)):
            shape = getattr(answer, "shape", None)
            if answer is not None and shape != (view.num_tokens,):
                raise TrainingError(
                    f"{where}: {name} must be an array [S={view.num_tokens}] with one number per token, not {shape}"
                )
    return credits
