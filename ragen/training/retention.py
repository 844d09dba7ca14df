"""What a run keeps of what it writes, and whether the disk has room for what is still to come."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ragen.files import storage

GIB = 2**30
MAX, MIN = "max", "min"


def best_step(rows: Iterable[Mapping[str, float]], key: str, *, direction: str, saved: Collection[int]) -> int | None:
    """The saved step whose row of metrics holds the best `key`; of equal ones the first, None if no row of them has it."""
    sign = 1.0 if direction == MAX else -1.0
    values = [(sign * row[key], -row["step"]) for row in rows if key in row and row["step"] in saved]
    return -int(max(values)[1]) if values else None


def keep_newest(folder: Path, num_kept: int) -> None:
    """Delete all but the newest `num_kept` files `step-N.*` of a folder. Raises StorageError when the disk refuses."""
    by_number = sorted(folder.glob("step-*"), key=lambda path: int(path.stem.partition("-")[2]))
    with storage("delete from", folder):
        for path in by_number[:-num_kept]:
            path.unlink()


@dataclass(kw_only=True)
class DiskWatch:
    """Says once, while there is still time, that the rest of the run does not fit on its disk.

    The forecast takes every step still to come for as large as the largest so far, and one checkpoint more than are kept, since
    the new one is whole before the old one goes.
    """

    folder: Path
    warn: Callable[[str], None]
    checkpoint_bytes: int  # of one; an estimate until the first is saved
    num_checkpoints: int  # that are kept at the end
    num_rollouts: int | None  # that are kept at the end; None: all
    free: Callable[[Path], int] = field(default=lambda folder: shutil.disk_usage(folder).free)
    _rollout_bytes: int = 0
    _has_warned: bool = False

    def after_rollout(self, size: int, *, num_left: int, num_there: int, num_saved: int) -> None:
        """After a rollout file of `size` bytes was written: steps still to come, rollout files and checkpoints there are."""
        self._rollout_bytes = max(self._rollout_bytes, size)
        num_files = num_left if self.num_rollouts is None else min(num_left, max(0, self.num_rollouts - num_there))
        num_saves = max(0, self.num_checkpoints - num_saved) + 1
        needed = num_files * self._rollout_bytes + num_saves * self.checkpoint_bytes
        free = self.free(self.folder)
        if free < needed and not self._has_warned:
            self._has_warned = True
            self.warn(
                f"{self.folder}: about {needed / GIB:.2g} GiB are still to be written and {free / GIB:.2g} GiB are free; "
                "trainer.keep_rollouts and trainer.keep_checkpoints keep fewer, or make room before the disk is full"
            )
