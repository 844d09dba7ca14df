"""Rewards of one's own: functions of a finished trajectory, answering a number, a list with one per turn, or None to abstain."""

from ragen.records import Trajectory


def brevity(trajectory: Trajectory) -> float:
    """Every sampled token costs."""
    return -0.001 * trajectory.num_sampled


def no_repeats(trajectory: Trajectory) -> list[float]:
    """A turn that repeats an earlier action costs."""
    seen: set[str] = set()
    values = []
    for turn in trajectory.turns:
        values.append(-1.0 if seen & set(turn.executed) else 0.0)
        seen |= set(turn.executed)
    return values


def quick_solution(trajectory: Trajectory) -> float | None:
    """Judges solved episodes alone: the fewer turns, the better."""
    return 1.0 / len(trajectory.turns) if trajectory.success else None
