"""An estimator under test: what it says of a rollout, and how two answers are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragen.credit.config import AdvantageConfig
from ragen.environments.checker.report import require
from ragen.records import Group, Sample
from ragen.testing.rollouts import Dice, Plan, Rollout, TurnPlan
from ragen.testing.run import NUM_SEEDS

Advantages = Mapping[tuple[int, int], NDArray[np.float32]]  # (group, member) -> [S]

CLOSE = 1e-4  # what a floor of 1e-6 under a spread, and float32, may move


class AssignCredit(Protocol):
    """`ragen.credit.samples.assign_credit`, or a copy of it."""

    def __call__(self, groups: list[Group], config: Any, *, values: Any) -> tuple[list[Sample], list[Any]]: ...


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An estimator with its settings, and what it promises."""

    config: AdvantageConfig
    promises: frozenset[str]
    assign: AssignCredit

    def advantages(self, rollout: Rollout) -> Advantages:
        """Of every trajectory that has a trained token."""
        values = rollout.values() if "critic" in self.promises else None
        samples, _ = self.assign(rollout.records(), self.config, values=values)
        found: dict[tuple[int, int], list[NDArray[np.float32]]] = {}
        for sample in samples:
            key = sample.trajectory.key
            found.setdefault((key.group, key.member), []).append(sample.advantages[sample.mask])
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def rollouts(self, **shape: Any) -> Iterator[tuple[Rollout, Advantages]]:
        """Random rollouts, and what the estimator says of them."""
        for seed in range(NUM_SEEDS):
            rollout = Dice(seed=seed).rollout(**shape)
            yield rollout, self.advantages(rollout)


Check = Callable[[Subject], str]


def require_same(expected: Advantages, found: Advantages, what: str, *, exact: bool = False) -> None:
    require(expected.keys() == found.keys(), f"{what}: other trajectories are trained")
    for name, numbers in expected.items():
        now = found[name]
        same = numbers.shape == now.shape and np.allclose(numbers, now, rtol=0 if exact else CLOSE, atol=0 if exact else CLOSE)
        require(same, f"{what}: the advantages of {who(name)} change from {numbers.tolist()} to {now.tolist()}")


def who(name: tuple[int, int]) -> str:
    return f"group {name[0]} member {name[1]}"


def scaled(plan: Plan, scale: float) -> Plan:
    changed = each_turn(plan, lambda turn: {"reward": turn.reward * scale})
    return replace(changed, values=tuple(value * scale for value in plan.values), after=plan.after * scale)


def each_turn(plan: Plan, change: Callable[[TurnPlan], dict[str, Any]]) -> Plan:
    return replace(plan, turns=tuple(replace(turn, **change(turn)) for turn in plan.turns))


def paying(plan: Plan, reward: float) -> Plan:
    """The same reward in every turn."""
    return each_turn(plan, lambda turn: {"reward": reward})
