"""Where a run's numbers go: always a JSON-lines file of our own, and whatever else a person asks for.

A tracker is four verbs: made, `start`, `log`, `finish`. The JSON-lines file must work, or the run stops; an optional tracker that
fails (no network, no account, full disk) is named once and the run goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ragen.errors import ConfigError, RagenError, StorageError, boundary, near_match
from ragen.files import storage, write_text
from ragen.metrics import finite_only
from ragen.records import Trajectory
from ragen.training.tracker_backends import BACKENDS, RunInfo, Tracker

__all__ = ["JsonLinesTracker", "RunInfo", "Tracker", "Trackers", "TrackingConfig", "read_metrics"]

METRICS_FILE = "metrics.jsonl"


@dataclass(kw_only=True)
class TrackingConfig:
    """Trackers beside `metrics.jsonl`, which is always written."""

    backends: list[str] = field(default_factory=lambda: ["tensorboard"])  # of tensorboard, wandb, trackio, mlflow
    project: str = "ragen"  # the project (mlflow: experiment) under which wandb, trackio and mlflow file the run

    def check(self) -> None:
        """Raise ConfigError for an unknown or repeated tracker."""
        for name in self.backends:
            if name not in BACKENDS:
                known = ", ".join(BACKENDS)
                raise ConfigError(f"tracking.backends: {name!r} must be one of {known}{near_match(name, BACKENDS)}")
        if len(set(self.backends)) < len(self.backends):
            raise ConfigError(f"tracking.backends={self.backends}: names a tracker twice")
        if not self.project:
            raise ConfigError("tracking.project='': must not be empty")


class JsonLinesTracker:
    """`metrics.jsonl`: one line a step, on the disk before the next step begins."""

    def start(self, run: RunInfo) -> None:
        """Begin the file, or cut it back to the resumed step, so that no step is there twice and none is missing."""
        self._path = run.folder / METRICS_FILE
        last = run.resumed_step
        kept = [] if last is None else [row for row in read_metrics(run.folder) if row["step"] <= last]
        write_text(self._path, "".join(_line(row) for row in kept))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        with storage("write", self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(_line({"step": step, **metrics}))
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> None:
        """Nothing is left open between steps."""


def read_metrics(run_folder: Path) -> list[dict[str, float]]:
    """The rows of a run's `metrics.jsonl`, each with its `step`; empty if there is no file.

    A last line cut short by a killed process is left out. Raises StorageError for any other line that is not a row.
    """
    path = run_folder / METRICS_FILE
    if not path.exists():
        return []
    with storage("read", path):
        # What follows the last newline is either nothing or a line that never got written whole.
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            row["step"] = int(row["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{path}: line {number} is not a step's metrics ({type(error).__name__}: {error}); remove that line"
            ) from error
        rows.append(row)
    return rows


class Trackers:
    """All trackers of a run as one. Making it imports their packages, so a missing one is known before a model loads."""

    def __init__(self, config: TrackingConfig, *, warn: Callable[[str], None]) -> None:
        """`warn` is told, in one line, of an optional tracker that fails. Raises ConfigError for one that is not installed."""
        self._warn = warn
        self._warned: set[str] = set()
        self._num_failures = 0  # since the line before
        self._metrics_file = JsonLinesTracker()
        self._made: dict[str, Tracker] = {name: BACKENDS[name](config.project) for name in config.backends}
        self._started: dict[str, Tracker] = {}

    def start(self, run: RunInfo) -> None:
        """Open every tracker; an optional one that cannot start is left out. Raises StorageError if the disk refuses ours."""
        self._metrics_file.start(run)
        last = [row for row in read_metrics(run.folder) if row["step"] == run.resumed_step]
        run = replace(run, resumed_metrics={key: value for row in last for key, value in row.items() if key != "step"})
        self._started = {
            name: tracker
            for name, tracker in self._made.items()
            if self._tolerate(name, "could not start and is left out", partial(tracker.start, run))
        }

    def log(self, metrics: Mapping[str, float | None], step: int) -> None:
        """Log a step's numbers; absent and non-finite ones are dropped. Raises StorageError if the disk refuses ours.

        Failures of optional trackers since the line before are among them.
        """
        finite = finite_only(metrics)
        if self._num_failures:
            finite["tracking/failures"] = float(self._num_failures)
            self._num_failures = 0
        self._metrics_file.log(finite, step)
        for name, tracker in self._started.items():
            self._tolerate(name, "failed; the run goes on", partial(tracker.log, finite, step))

    def show(self, name: str, episodes: Sequence[Trajectory], step: int) -> None:
        """Show episodes as text, under a name of their own, in the trackers beside our file."""
        for tracker_name, tracker in self._started.items():
            self._tolerate(tracker_name, "failed; the run goes on", partial(tracker.show, name, episodes, step))

    def finish(self) -> None:
        """Close every tracker that was started; called in every exit."""
        self._metrics_file.finish()
        for name, tracker in self._started.items():
            self._tolerate(name, "could not finish", tracker.finish)

    def _tolerate(self, name: str, outcome: str, action: Callable[[], None]) -> bool:
        """Run `action` of an optional tracker and say whether it went well; a tracker is warned of once, not at every step."""
        try:
            with boundary(StorageError, f"tracker {name} {outcome}"):
                action()
        except RagenError as error:
            self._num_failures += 1
            if name not in self._warned:
                self._warned.add(name)
                self._warn(str(error))
            return False
        return True


def _line(row: Mapping[str, float]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"
