"""How much broken infrastructure a step stands, and what of it is played anew."""

from __future__ import annotations

import math
from collections import Counter

from ragen.errors import TrainingError
from ragen.records import Trajectory
from ragen.rollout.config import RolloutConfig


class Faults:
    """Counts the infrastructure failures of `total` trajectories that are played together, and grants replacements.

    The limits are shares of the step that they belong to: of `num_step` trajectories, `total` unless given.

    The run stops once more than `max_failed_frac` of the step's trajectories have met a failure. One that was replaced counts
    like any other: replacing mends the data, not what is broken. Replacements are granted until they are `max_replacements_frac`
    of the step's trajectories (both rounded down), and no group gets more of them than it has members: an initial state that
    cannot be played at all leaves the others their share. A replacement that fails may be replaced in turn.
    """

    def __init__(self, total: int, config: RolloutConfig, num_step: int | None = None) -> None:
        self._total = total
        self._num_step = num_step or total
        self._max_failed_frac = config.max_failed_frac
        self._replacements_left = _share(config.max_replacements_frac, self._num_step)
        self._num_replaced: Counter[tuple[str, int]] = Counter()  # by tag and group
        self._num_failed = 0  # trajectories of the plan that met a failure
        self._first = ""

    def may_replace(self, failed: Trajectory, group_size: int) -> bool:
        """Count a failure; True if the trajectory may be played anew, and then it has to be.

        Raises TrainingError, naming the first failure of the step, if this was one too many.
        """
        key = failed.key
        self._first = self._first or failed.error
        if key.attempt == 0:
            self._num_failed += 1
            if self._num_failed > _share(self._max_failed_frac, self._num_step):
                limit = f"more than rollout.max_failed_frac={self._max_failed_frac} allows"
                raise TrainingError(f"{self._num_failed} of {self._total} trajectories failed, {limit}; the first: {self._first}")
        group = (key.environment, key.group)
        if not self._replacements_left or self._num_replaced[group] >= group_size:
            return False
        self._replacements_left -= 1
        self._num_replaced[group] += 1
        return True

    def report(self, num_scored: int) -> str:
        """What happened in a step of which so many trajectories are scored, in one line; empty if nothing failed."""
        if not self._num_failed:
            return ""
        anew, missing = self._num_replaced.total(), self._total - num_scored
        replacements = "1 replacement" if anew == 1 else f"{anew} replacements"
        became = f", {missing} are left out after {replacements}" if anew else " and are left out"
        return f"{self._num_failed} of {self._total} trajectories failed{became}; the first: {self._first}"


def _share(frac: float, total: int) -> int:
    """frac of total, rounded down; 0.29 of 100 is 29, though 0.29 * 100 is a little less."""
    return math.floor(frac * total + 1e-9)
