"""Rewards of one's own: functions of a trajectory, weighted and added to what the environment paid, or put in its place.

    def brevity(trajectory: Trajectory) -> float:
        return -0.001 * trajectory.num_sampled

    rewards.functions.brevity=my_rewards:brevity  rewards.weights.brevity=0.5  rewards.weights.environment=0

A function answers one number, which the last turn gets; a sequence with one number per turn; or None, in the place of either, to
abstain. What abstains adds nothing. A trajectory about which everything abstains has no return: it is left out of its group's
mean and of the loss, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from ragen.credit.plugin import import_function
from ragen.errors import ConfigError, TrainingError, boundary, near_match
from ragen.records import Group, Trajectory

ENVIRONMENT, FORMAT = "environment", "format"  # the parts that are there without any function

RewardFunction = Callable[[Trajectory], Any]  # float | None | Sequence[float | None]


@dataclass(kw_only=True)
class RewardsConfig:
    """Which rewards make up the return, beside the format penalty."""

    functions: dict[str, str] = field(default_factory=dict)  # name -> "module:function" of a trajectory; named in the metrics
    weights: dict[str, float] = field(default_factory=dict)  # of a function, or of "environment"; 1 where nothing is said

    def check(self) -> None:
        """Raise ConfigError for a name or weight that cannot act, or a function that cannot be imported."""
        for name in self.functions:
            if name in (ENVIRONMENT, FORMAT) or not name.isidentifier():
                raise ConfigError(
                    f"rewards.functions.{name}: must be a name of letters, digits and '_', other than {ENVIRONMENT} and {FORMAT}"
                )
        known = (ENVIRONMENT, *self.functions)
        for name in self.weights:
            if name not in known:
                raise ConfigError(
                    f"rewards.weights.{name}: there is no such reward{near_match(name, known)} (rewards: {', '.join(known)})"
                )
        if not any(self.weight(name) for name in known):
            raise ConfigError(f"rewards.weights: at least one must differ from 0 (rewards: {', '.join(known)})")
        self.load()

    @property
    def is_plain(self) -> bool:
        """True if the return is the environment's rewards plus format penalties, as they are."""
        return not self.functions and self.weight(ENVIRONMENT) == 1.0

    def weight(self, name: str) -> float:
        return self.weights.get(name, 1.0)

    def load(self) -> dict[str, RewardFunction]:
        """The functions by name, imported. Raises ConfigError, one line."""
        return {name: import_function(path, f"rewards.functions.{name}={path!r}") for name, path in self.functions.items()}


def score(groups: Sequence[Group], config: RewardsConfig) -> list[Group]:
    """The same groups, with `Turn.parts` filled in every trajectory and those without any verdict moved to `abstained`.

    Raises TrainingError, naming function and trajectory, if a function raises or answers something that is not a reward.
    """
    if config.is_plain:
        return list(groups)
    functions = config.load()
    scored = []
    for group in groups:
        kept: list[Trajectory] = []
        abstained = list(group.abstained)
        for trajectory in group.trajectories:
            judged = _mix(trajectory, functions, config)
            (abstained if judged is None else kept).append(judged or trajectory)
        scored.append(replace(group, trajectories=tuple(kept), abstained=tuple(abstained)))
    return scored


def _mix(trajectory: Trajectory, functions: Mapping[str, RewardFunction], config: RewardsConfig) -> Trajectory | None:
    """The trajectory with its weighted parts; None if nothing that has a weight says anything about it."""
    parts: dict[str, list[float]] = {ENVIRONMENT: [turn.reward for turn in trajectory.turns]}
    for name, function in functions.items():
        values = _judge(name, function, trajectory)
        if values is not None:
            parts[name] = values
    if not any(config.weight(name) for name in parts):
        return None
    turns = tuple(
        replace(
            turn,
            parts={FORMAT: turn.format_penalty, **{name: config.weight(name) * row[i] for name, row in parts.items()}},
        )
        for i, turn in enumerate(trajectory.turns)
    )
    return replace(trajectory, turns=turns)


def _judge(name: str, function: RewardFunction, trajectory: Trajectory) -> list[float] | None:
    """One number per turn; None if the function abstains."""
    key = trajectory.key
    where = f"reward {name!r} of {key.environment} step {key.step} group {key.group} member {key.member}"
    with boundary(TrainingError, where):
        answer = function(trajectory)
    num_turns = len(trajectory.turns)
    if answer is None or num_turns == 0:
        return None
    if _is_number(answer):
        return [0.0] * (num_turns - 1) + [float(answer)]
    values = answer.tolist() if isinstance(answer, np.ndarray) else answer
    if not isinstance(values, (list, tuple)) or not all(value is None or _is_number(value) for value in values):
        shown = " ".join(repr(answer).split())
        raise TrainingError(f"{where}: must be a finite number, None, or a list of them with one per turn, not {shown:.60}")
    if len(values) != num_turns:
        raise TrainingError(f"{where}: a list must hold one number per turn, {num_turns}, not {len(values)}")
    if all(value is None for value in values):
        return None
    return [0.0 if value is None else float(value) for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, (Real, np.bool_)) and math.isfinite(value)
