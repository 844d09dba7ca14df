"""What a resumed run plays again is moved out of its way first, so that a run folder never tells two stories of one step.

`superseded/after-step-000005/` (`-2`, `-3`, ... for the next time) then holds, under the names they had, the checkpoints,
rollouts and evaluations of later steps, the rows of metrics.jsonl, and the settings of those steps; nothing is deleted. The
settings come last: a folder without them is one in whose making the process was killed, and is finished by the next resume.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ragen.files import aside, move, storage, write_text
from ragen.training.checkpoint import CHECKPOINTS
from ragen.training.trackers import METRICS_FILE, read_metrics

SUPERSEDED = "superseded"
ROLLOUTS = "rollouts"
CONFIG_FILE = "config.yaml"
EARLIER_CONFIGS = "earlier_configs"  # each under the last step that it was in force for
_STEP = re.compile(r"step-(\d{6,})(?=\D|$)")


def set_aside_later(run: Path, step: int) -> Path | None:
    """Move everything of the steps after `step` away; returns where it lies now, None if there was nothing.

    Killed at any moment, the folder can be resumed: the newest checkpoints go first, so those that are left never stand before
    metrics or rollouts that have gone already. Raises StorageError when the disk refuses.
    """
    later = list(_later_files(run, step))
    rows = [row for row in read_metrics(run) if row["step"] > step]
    name, parent = f"after-step-{step:06d}", run / SUPERSEDED
    unfinished = sorted(path for path in parent.glob("after-step-*") if not (path / CONFIG_FILE).exists())
    target = next((path for path in unfinished if path.name.startswith(name)), None)
    if target is None and (later or rows):
        target = _free(parent, name)
    for path in unfinished:
        if path != target:
            _finish(run, path)
    if target is None:
        return None
    with storage("move what is played again to", target):
        for path in later:
            move(path, target / path.relative_to(run))
        if rows:
            write_text(target / METRICS_FILE, "".join(json.dumps(row) + "\n" for row in rows))
        _finish(run, target)
    return target


def _finish(run: Path, folder: Path) -> None:
    """The last thing that comes into a folder; what a killed process has left half-written there goes."""
    aside(folder / METRICS_FILE).unlink(missing_ok=True)
    write_text(folder / CONFIG_FILE, (run / CONFIG_FILE).read_text(encoding="utf-8"))


def _later_files(run: Path, step: int) -> Iterator[Path]:
    for folder in (CHECKPOINTS, "eval", ROLLOUTS, EARLIER_CONFIGS):
        found = [(int(match[1]), path) for path in (run / folder).glob("step-*") if (match := _STEP.match(path.name))]
        yield from (path for number, path in sorted(found, reverse=True) if number > step)


def _free(parent: Path, name: str) -> Path:
    number = 1
    while (path := parent / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path
