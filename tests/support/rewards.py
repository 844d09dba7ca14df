"""Reward functions for tests, found by import path as a person's own are."""

from __future__ import annotations

from typing import Any

from ragen.records import Trajectory

ANSWERS: list[Any] = []  # what `planted` answers for each member of a group; an exception is raised


def answer(*answers: Any) -> None:
    """Lay out what `planted` will answer, member by member."""
    ANSWERS[:] = answers


def planted(trajectory: Trajectory) -> Any:
    found = ANSWERS[trajectory.key.member]
    if isinstance(found, Exception):
        raise found
    return found


def one(trajectory: Trajectory) -> float:
    return 1.0


def brevity(trajectory: Trajectory) -> float:
    """A hundredth less for every sampled token."""
    return -0.01 * trajectory.num_sampled


def per_turn(trajectory: Trajectory) -> list[float | None]:
    """Abstains about the first turn, then 1, 2, ..."""
    return [None, *range(1, len(trajectory.turns))]
