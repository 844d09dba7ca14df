"""What a group is judged by: one number from its scored members. Pure functions on plain numbers.

Lost and abstained trajectories are no members: what was never scored moves no statistic.
A group of one has no spread: its score by std, variance, range or entropy_std is 0, never nan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

from ragen.credit.normalize import all_equal
from ragen.credit.view import MAX_RETURN, where
from ragen.errors import TrainingError
from ragen.records import Group, Trajectory


@dataclass(frozen=True, kw_only=True)
class Members:
    """The scored members of a group, in numbers. All per member, in the same order, but for `surprisals`."""

    returns: tuple[float, ...]  # raw: before any normalisation
    successes: tuple[bool, ...]
    lengths: tuple[int, ...]  # sampled tokens
    surprisals: tuple[float, ...]  # nats per sampled token; a member without one is left out

    @property
    def has_spread(self) -> bool:
        """Whether any two members differ in return by more than rounding; True only with two members or more."""
        return len(self.returns) > 1 and not all_equal(self.returns)


def members_of(group: Group) -> Members:
    """Raises TrainingError naming the trajectory whose return is not a number that can be compared."""
    for trajectory in group.trajectories:
        if not abs(trajectory.return_) <= MAX_RETURN:
            raise TrainingError(f"return {trajectory.return_} of {where(trajectory)}: must be a number within +-{MAX_RETURN:g}")
    return Members(
        returns=tuple(t.return_ for t in group.trajectories),
        successes=tuple(t.success for t in group.trajectories),
        lengths=tuple(t.num_sampled for t in group.trajectories),
        surprisals=tuple(_surprisal(t) for t in group.trajectories if t.num_sampled),
    )


def _surprisal(trajectory: Trajectory) -> float:
    """Mean negative engine log-prob of the sampled tokens: an unbiased estimate of the mean entropy they were sampled with.

    With top-p or top-k that is the entropy of the cut distribution. Never negative.
    """
    total = -sum(float(segment.logprobs[segment.mask].sum(dtype="float64")) for segment in trajectory.segments)
    return max(0.0, total / trajectory.num_sampled)  # a log-prob may exceed 0 by rounding


def return_std(members: Members) -> float:
    """Unbiased standard deviation of the returns; exactly 0 where they are equal up to rounding."""
    return stdev(members.returns) if members.has_spread else 0.0


def return_variance(members: Members) -> float:
    """Unbiased variance of the returns.

    Differs from published RAGEN: its "reward_variance" is the standard deviation, here `std`.
    """
    return variance(members.returns) if members.has_spread else 0.0


def return_range(members: Members) -> float:
    return max(members.returns) - min(members.returns) if members.has_spread else 0.0


def return_mean(members: Members) -> float:
    return fmean(members.returns)


def return_sum(members: Members) -> float:
    return float(sum(members.returns))


def entropy(members: Members) -> float:
    """Mean over members of the mean surprisal of their sampled tokens; 0 if nobody sampled any."""
    return fmean(members.surprisals) if members.surprisals else 0.0


def entropy_std(members: Members) -> float:
    """Unbiased standard deviation of that over members."""
    values = members.surprisals
    return stdev(values) if len(values) > 1 and not all_equal(values) else 0.0


def length(members: Members) -> float:
    """Mean number of sampled tokens."""
    return fmean(members.lengths)


def balance(members: Members) -> float:
    """4 p (1 - p) of the success rate p: 1 where every second member succeeds, 0 where all or none do.

    Source: Bae et al. 2025 (online difficulty filtering, arXiv 2504.03380): p (1 - p) bounds from below what a step can improve.
    """
    p = fmean(members.successes)
    return 4 * p * (1 - p)


SCORES: dict[str, Callable[[Members], float]] = {
    "std": return_std,
    "variance": return_variance,
    "range": return_range,
    "mean": return_mean,
    "sum": return_sum,
    "entropy": entropy,
    "entropy_std": entropy_std,
    "length": length,
    "balance": balance,
}
SPREADS = frozenset({"std", "variance", "range", "entropy_std", "balance"})  # 0 for a group of one
NEVER_NEGATIVE = frozenset(SCORES) - {"mean", "sum"}


def spread_ratio(variances: Sequence[float]) -> float:
    """Standard deviation over mean of the groups' return variances: how much groups differ in what they can teach.

    0 where all are alike, or there are fewer than two. Source: RAGEN-2 (arXiv 2604.06268), which finds that a filter by
    variance pays where this is high.
    """
    if len(variances) < 2 or all_equal(variances):
        return 0.0
    return stdev(variances) / fmean(variances)
