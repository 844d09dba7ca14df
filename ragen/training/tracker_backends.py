"""The optional trackers, each a thin shell over its package, which is imported when the tracker is made and not before.

Written against tensorboardX 2.6, wandb 0.31, trackio 0.43 and mlflow-skinny 3.17.
"""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ragen.errors import ConfigError
from ragen.files import write_text
from ragen.records import Trajectory
from ragen.training.shown import COLUMNS, as_messages, as_row, as_text


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What a tracker is told about a run when it starts."""

    folder: Path
    name: str
    config: Mapping[str, Any]  # resolved, plain values
    resumed_step: int | None = None  # the last step that counts; None for a new run
    resumed_metrics: Mapping[str, float] = field(default_factory=dict)  # what was logged of that step


class Tracker(Protocol):
    """Takes one mapping of finite numbers per step, and episodes to show. May raise anything: `Trackers` knows what matters."""

    def start(self, run: RunInfo) -> None: ...

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def show(self, name: str, episodes: Sequence[Trajectory], step: int) -> None: ...

    def finish(self) -> None: ...


class TensorBoardTracker:
    """TensorBoard event files in the run folder's `tensorboard/`; no TensorFlow needed."""

    def __init__(self, project: str) -> None:
        self._module = _import("tensorboardX", "SummaryWriter", extra="train")

    def start(self, run: RunInfo) -> None:
        folder, last = run.folder / "tensorboard", run.resumed_step
        # A killed process may have had its last step in metrics.jsonl and not yet, or not whole, here: then it is written again.
        repeats = last is not None and self._num_scalars(folder, last) < len(run.resumed_metrics)
        # purge_step tells the reader to forget this step and later ones, which are played again.
        purge = None if last is None else last + (not repeats)
        # Files are named by the second, and one that is there would be overwritten: a number tells them apart, and in order.
        suffix = f".{len(list(folder.glob('events.*'))):04d}"
        self._writer = self._module.SummaryWriter(str(folder), purge_step=purge, filename_suffix=suffix)
        if not purge:
            self._writer.add_text("config", f"```json\n{json.dumps(run.config, indent=2, default=str)}\n```", 0)
        if last is not None and repeats:
            self.log(run.resumed_metrics, last)

    def _num_scalars(self, folder: Path, step: int) -> int:
        """Numbers under a step in the files that are there. A record: length (8 bytes), checksum (4), itself, checksum (4)."""
        event, found = importlib.import_module("tensorboardX.proto.event_pb2").Event, 0
        for path in folder.glob("events.*"):
            data, at = path.read_bytes(), 0
            while at + 12 <= len(data) and (end := at + 12 + int.from_bytes(data[at : at + 8], "little")) + 4 <= len(data):
                read = event.FromString(data[at + 12 : end])
                found += sum(value.HasField("simple_value") for value in read.summary.value) if read.step == step else 0
                at = end + 4
        return found

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def show(self, name: str, episodes: Sequence[Trajectory], step: int) -> None:
        self._writer.add_text(f"episodes/{name}", "\n\n---\n\n".join(map(as_text, episodes)), step)

    def finish(self) -> None:
        self._writer.close()


class WandbTracker:
    """Weights & Biases. Account, server and offline mode come from its own settings (WANDB_API_KEY, WANDB_MODE, ...)."""

    def __init__(self, project: str) -> None:
        self._module = _import("wandb", "init", extra="wandb")
        self._project = project

    def start(self, run: RunInfo) -> None:
        self._run = self._module.init(
            project=self._project,
            name=run.name,
            id=_identity(run, "wandb"),
            resume="allow",
            dir=str(run.folder),
            config=dict(run.config),
        )
        # Its own step counter refuses to go back, which a resumed run does; an x axis of ours does not mind.
        self._run.define_metric("*", step_metric="step")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log({**metrics, "step": step})

    def show(self, name: str, episodes: Sequence[Trajectory], step: int) -> None:
        table = self._module.Table(columns=list(COLUMNS), data=[list(as_row(each)) for each in episodes])
        self._run.log({f"episodes/{name}": table, "step": step})

    def finish(self) -> None:
        self._run.finish()


class TrackioTracker:
    """Trackio: a local dashboard (`trackio show`). It keeps its data under TRACKIO_DIR, not in the run folder."""

    def __init__(self, project: str) -> None:
        self._module = _import("trackio", "init", extra="trackio")
        self._project = project

    def start(self, run: RunInfo) -> None:
        self._run = self._module.init(
            project=self._project,
            name=f"{run.name}-{_identity(run, 'trackio')}",  # a run is known by its name alone
            resume="allow",
            config=dict(run.config),
            auto_log_gpu=False,  # samples the machine in a thread of its own
            auto_log_cpu=False,
            embed=False,
        )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)

    def show(self, name: str, episodes: Sequence[Trajectory], step: int) -> None:
        traces = {}
        for number, each in enumerate(episodes, start=1):
            facts = dict(zip(COLUMNS[:-1], as_row(each), strict=False))
            traces[f"episodes/{name}/{number}"] = self._module.Trace(messages=as_messages(each), metadata=facts)
        self._run.log(traces, step=step)

    def finish(self) -> None:
        self._module.finish()


class MlflowTracker:
    """MLflow, at its own MLFLOW_TRACKING_URI. Through the client, which leaves the library's global "active run" alone."""

    def __init__(self, project: str) -> None:
        self._module = _import("mlflow", "MlflowClient", extra="mlflow")
        self._project = project

    def start(self, run: RunInfo) -> None:
        self._client = self._module.MlflowClient()
        known = _read_identity(run, "mlflow")
        if known is not None:
            self._run_id = known
            self._client.update_run(known, status="RUNNING")
            return
        experiment = self._client.get_experiment_by_name(self._project)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(self._project)
        self._run_id = self._client.create_run(experiment_id, run_name=run.name).info.run_id
        _write_identity(run, "mlflow", self._run_id)
        for key, value in _leaves(run.config):
            self._client.log_param(self._run_id, key, value)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for key, value in metrics.items():
            self._client.log_metric(self._run_id, key, value, step=step)

    def show(self, name: str, episodes: Sequence[Trajectory], step: int) -> None:
        text = "\n\n---\n\n".join(map(as_text, episodes)) + "\n"
        self._client.log_text(self._run_id, text, f"episodes/{name}/step-{step:06d}.md")

    def finish(self) -> None:
        self._client.set_terminated(self._run_id)


BACKENDS: dict[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
    "trackio": TrackioTracker,
    "mlflow": MlflowTracker,
}


def _import(package: str, attribute: str, *, extra: str) -> Any:
    """Import an optional package; `attribute` tells the package from a folder of the same name, which imports just as well."""
    try:
        module = importlib.import_module(package)
        getattr(module, attribute)
    except (ImportError, AttributeError) as error:
        name = "tensorboard" if package == "tensorboardX" else package
        raise ConfigError(
            f"tracking.backends: {name!r} needs the package {package}: pip install 'ragen-rl[{extra}]', or leave {name!r} out"
        ) from error
    return module


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values of nested mappings under dotted keys, in order."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _identity(run: RunInfo, tracker: str) -> str:
    """The tracker's own id of this run: drawn once, kept in the run folder, so that a resumed run goes on under it."""
    identity = _read_identity(run, tracker)
    if identity is None:
        identity = secrets.token_hex(4)
        _write_identity(run, tracker, identity)
    return identity


def _read_identity(run: RunInfo, tracker: str) -> str | None:
    path = run.folder / f".{tracker}-id"
    return path.read_text(encoding="utf-8") if run.resumed_step is not None and path.exists() else None


def _write_identity(run: RunInfo, tracker: str, identity: str) -> None:
    write_text(run.folder / f".{tracker}-id", identity)
