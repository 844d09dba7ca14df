"""What an aggregation must keep: how the losses of the tokens of an optimiser step become one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ragen.environments.checker.report import Report, require
from ragen.testing.run import OnFinding, run_checks


class Aggregation(Protocol):
    """`token_weight` and `denominator` of ragen/algorithms/aggregation.py, for one aggregation."""

    def token_weight(self, *, trajectory_tokens: int) -> float: ...

    def denominator(self, *, num_tokens: Sequence[int], trajectory_tokens: Sequence[int], episode_tokens: int) -> float: ...


def check_aggregation(aggregation: Aggregation, *, name: str = "aggregation", on_finding: OnFinding | None = None) -> Report:
    """Check how the loss of an optimiser step becomes one number."""
    return run_checks(aggregation, AGGREGATION_CHECKS.items(), name=name, on_finding=on_finding)


def no_samples(aggregation: Aggregation) -> str:
    """A step without a token is divided by something other than 0."""
    for nothing in ([], [0, 0]):
        found = aggregation.denominator(num_tokens=nothing, trajectory_tokens=[1] * len(nothing), episode_tokens=100)
        require(found > 0, f"a step without a token is divided by {found}")
    return "no tokens"


def whole_step(aggregation: Aggregation) -> str:
    """The denominator counts: that of a step is the sum of those of its parts, however it is cut and whatever is padded."""
    lengths = [1, 100, 7, 30]
    whole = aggregation.denominator(num_tokens=lengths, trajectory_tokens=lengths, episode_tokens=100)
    for cut in (1, 2, 3):
        parts = [
            aggregation.denominator(num_tokens=part, trajectory_tokens=part, episode_tokens=100)
            for part in (lengths[:cut], lengths[cut:])
        ]
        require(abs(sum(parts) - whole) < 1e-9 * whole, f"lengths {lengths}: {whole} in one piece, {parts} in two")
    return "one piece, or two"


def cut_trajectory(aggregation: Aggregation) -> str:
    """A trajectory in several token sequences weighs what it weighs in one."""
    one = aggregation.denominator(num_tokens=[12, 5], trajectory_tokens=[12, 5], episode_tokens=100)
    cut = aggregation.denominator(num_tokens=[4, 8, 5], trajectory_tokens=[12, 12, 5], episode_tokens=100)
    require(abs(one - cut) < 1e-9, f"the denominator is {one} for a trajectory in one sequence, {cut} in two")
    return "one sequence, or two"


def equal_losses(aggregation: Aggregation) -> str:
    """The same loss on every token of equally long trajectories comes out in proportion to it, whatever their number."""
    found = []
    for count in (1, 3):
        weight = aggregation.token_weight(trajectory_tokens=10)
        total = weight * 10 * count
        found.append(total / aggregation.denominator(num_tokens=[10] * count, trajectory_tokens=[10] * count, episode_tokens=40))
    require(abs(found[0] - found[1]) < 1e-9, f"a loss of 1 per token: {found[0]} for one trajectory, {found[1]} for three")
    return "one trajectory, or three"


AGGREGATION_CHECKS: Mapping[str, Callable[[Aggregation], str]] = {
    "no tokens": no_samples,
    "whole step": whole_step,
    "cut trajectory": cut_trajectory,
    "equal losses": equal_losses,
}
