"""A run's numbers reach the disk once each, whatever happens, and an optional tracker never kills a run."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from ragen.errors import ConfigError, StorageError
from ragen.records import Trajectory
from ragen.training import trackers as module
from ragen.training.trackers import RunInfo, Trackers, TrackingConfig, read_metrics


def only_file(tmp_path: Path, *, resumed_step: int | None = None) -> Trackers:
    """The trackers of a run that keeps nothing but metrics.jsonl, started."""
    made = Trackers(TrackingConfig(backends=[]), warn=pytest.fail)
    made.start(RunInfo(folder=tmp_path, name="bandit", config={}, resumed_step=resumed_step))
    return made


def steps(tmp_path: Path) -> list[float]:
    return [row["step"] for row in read_metrics(tmp_path)]


def test_each_step_is_one_line_of_plain_json(tmp_path: Path) -> None:
    made = only_file(tmp_path)
    made.log({"rollout/success": 0.5, "update/loss": -1.25}, 1)
    made.log({"rollout/success": 0.75}, 2)
    made.finish()
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 1, "rollout/success": 0.5, "update/loss": -1.25}\n{"step": 2, "rollout/success": 0.75}\n'
    )


def test_a_number_that_is_not_finite_is_absent(tmp_path: Path) -> None:
    """Invariant I4; bug-log row 96."""
    made = only_file(tmp_path)
    made.log({"a": float("nan"), "b": float("inf"), "c": None, "d": 0.0}, 1)
    assert read_metrics(tmp_path) == [{"step": 1, "d": 0.0}]


def test_resuming_drops_the_steps_that_are_played_again(tmp_path: Path) -> None:
    made = only_file(tmp_path)
    for step in range(8):
        made.log({"x": float(step)}, step)
    resumed = only_file(tmp_path, resumed_step=5)
    resumed.log({"x": 60.0}, 6)
    resumed.log({"x": 70.0}, 7)
    assert steps(tmp_path) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [row["x"] for row in read_metrics(tmp_path)][-3:] == [5.0, 60.0, 70.0]


def test_a_line_cut_short_by_a_kill_is_dropped_on_resume(tmp_path: Path) -> None:
    only_file(tmp_path).log({"x": 1.0}, 1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "x": 0.')
    assert steps(tmp_path) == [1]
    only_file(tmp_path, resumed_step=1).log({"x": 2.0}, 2)
    assert steps(tmp_path) == [1, 2]


def test_a_new_run_starts_with_an_empty_file(tmp_path: Path) -> None:
    only_file(tmp_path).log({"x": 1.0}, 1)
    only_file(tmp_path)
    assert read_metrics(tmp_path) == []


def test_a_spoiled_line_is_named_by_file_and_number(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n[]\n')
    with pytest.raises(StorageError, match=r"metrics\.jsonl: line 2 is not a step's metrics"):
        read_metrics(tmp_path)


def test_a_folder_without_metrics_has_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []


def test_a_metrics_file_that_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    made = only_file(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"metrics\.jsonl: cannot write"):
        made.log({"x": 1.0}, 1)


# --- optional trackers


class Recording:
    """A tracker that remembers what it was told, and fails in the named verbs."""

    def __init__(self, *fails_in: str) -> None:
        self.fails_in = fails_in
        self.calls: list[tuple[object, ...]] = []

    def _note(self, verb: str, *told: object) -> None:
        self.calls.append((verb, *told))
        if verb in self.fails_in:
            raise OSError("no route to host")

    def start(self, run: RunInfo) -> None:
        self._note("start", run.name)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._note("log", dict(metrics), step)

    def show(self, name: str, episodes: Sequence[Trajectory], step: int) -> None:
        self._note("show", name, len(episodes), step)

    def finish(self) -> None:
        self._note("finish")


def with_fake(monkeypatch: pytest.MonkeyPatch, tracker: Recording) -> tuple[Trackers, list[str]]:
    monkeypatch.setitem(module.BACKENDS, "wandb", lambda project: tracker)
    warnings: list[str] = []
    return Trackers(TrackingConfig(backends=["wandb"]), warn=warnings.append), warnings


def test_an_optional_tracker_is_told_the_finite_numbers_of_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Recording()
    made, warnings = with_fake(monkeypatch, tracker)
    made.start(RunInfo(folder=tmp_path, name="bandit", config={}))
    made.log({"a": 1.0, "b": float("nan")}, 3)
    made.finish()
    assert tracker.calls == [("start", "bandit"), ("log", {"a": 1.0}, 3), ("finish",)]
    assert warnings == []


def test_a_tracker_that_fails_is_named_once_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, warnings = with_fake(monkeypatch, Recording("log", "finish"))
    made.start(RunInfo(folder=tmp_path, name="bandit", config={}))
    for step in (1, 2, 3):
        made.log({"x": 1.0}, step)
    made.finish()
    assert warnings == ["tracker wandb failed; the run goes on: OSError: no route to host"]
    assert steps(tmp_path) == [1, 2, 3]


def test_a_tracker_that_cannot_start_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Recording("start")
    made, warnings = with_fake(monkeypatch, tracker)
    made.start(RunInfo(folder=tmp_path, name="bandit", config={}))
    made.log({"x": 1.0}, 1)
    made.finish()
    assert [call[0] for call in tracker.calls] == ["start"]
    assert warnings == ["tracker wandb could not start and is left out: OSError: no route to host"]


def test_finishing_before_the_start_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Recording()
    made, _ = with_fake(monkeypatch, tracker)
    made.finish()
    assert tracker.calls == []


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("wandb", "wandb", "wandb"),
        ("trackio", "trackio", "trackio"),
        ("mlflow", "mlflow", "mlflow"),
        ("tensorboard", "tensorboardX", "train"),
    ],
)
def test_a_missing_package_is_one_line_with_the_install_command(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug-log row 88: optional packages blocked from import."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        Trackers(TrackingConfig(backends=[name]), warn=pytest.fail)
    assert f"'{name}' needs the package {package}" in str(caught.value)
    assert f"pip install 'ragen-rl[{extra}]'" in str(caught.value)


def test_a_folder_that_happens_to_be_called_wandb_is_not_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """wandb leaves a folder `wandb/` where it runs, which Python imports as an empty package."""
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    with pytest.raises(ConfigError, match="needs the package wandb"):
        Trackers(TrackingConfig(backends=["wandb"]), warn=pytest.fail)


# --- tensorboard


def events(folder: Path) -> list[Event]:
    """All events of all files, by name, decoded by hand: length (8 bytes), its checksum (4), data, its checksum (4)."""
    found = []
    for path in sorted(folder.glob("events.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            body = data[at + 12 : at + 12 + size]
            assert int.from_bytes(data[at + 12 + size : at + 16 + size], "little") == masked_crc32c(body)
            found.append(Event.FromString(body))
            at += 16 + size
    return found


def test_tensorboard_files_hold_the_numbers_under_their_steps(tmp_path: Path) -> None:
    made = Trackers(TrackingConfig(), warn=pytest.fail)
    made.start(RunInfo(folder=tmp_path, name="bandit", config={"trainer": {"steps": 16}}))
    made.log({"rollout/success": 0.5, "update/entropy": 2.0}, 1)
    made.log({"rollout/success": 0.75}, 2)
    made.finish()
    values = [
        (event.step, value.tag, value.simple_value) for event in events(tmp_path / "tensorboard") for value in event.summary.value
    ]
    assert [v for v in values if "config" not in v[1]] == [
        (1, "rollout/success", 0.5),
        (1, "update/entropy", 2.0),
        (2, "rollout/success", 0.75),
    ]


@pytest.mark.parametrize("killed", [True, False])
def test_tensorboard_forgets_what_is_played_again_and_lacks_no_step(tmp_path: Path, killed: bool) -> None:
    """Twice within a second, which names the files alike. Killed between metrics.jsonl and TensorBoard, it lacks step 5."""
    first = Trackers(TrackingConfig(), warn=pytest.fail)
    first.start(RunInfo(folder=tmp_path, name="bandit", config={}))
    for step in (4, 6, 7) if killed else (4, 5, 6, 7):
        first.log({"x": float(step)}, step)
    first.finish()
    rows = "".join(f'{{"step": {step}, "x": {float(step)}}}\n' for step in (4, 5, 6, 7))
    (tmp_path / "metrics.jsonl").write_text(rows)
    (only,) = (tmp_path / "tensorboard").iterdir()
    only.write_bytes(only.read_bytes() + (99).to_bytes(8, "little") + b"torn")
    second = Trackers(TrackingConfig(), warn=pytest.fail)
    second.start(RunInfo(folder=tmp_path, name="bandit", config={}, resumed_step=5))
    second.log({"x": 60.0}, 6)
    second.finish()
    only.write_bytes(only.read_bytes()[:-12])
    assert remembered(events(tmp_path / "tensorboard")) == {4: 4.0, 5: 5.0, 6: 60.0}
    assert steps(tmp_path) == [4, 5, 6]


def remembered(found: list[Event]) -> dict[int, float]:
    """What TensorBoard shows of series x: a session that starts at a step makes it forget that one and all later ones."""
    values: dict[int, float] = {}
    for event in found:
        if event.session_log.status == event.session_log.START:
            values = {step: value for step, value in values.items() if step < event.step}
        for value in event.summary.value:
            if value.tag == "x":
                assert event.step not in values, "a step twice"
                values[event.step] = value.simple_value
    return values


# --- settings


def test_the_default_tracker_is_tensorboard_and_passes_its_check() -> None:
    config = TrackingConfig()
    config.check()
    assert config.backends == ["tensorboard"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            TrackingConfig(backends=["wanbd"]),
            r"tracking\.backends: 'wanbd' must be one of tensorboard, wandb, trackio, mlflow; did you mean 'wandb'\?",
        ),
        (TrackingConfig(backends=["mlflow", "mlflow"]), r"tracking\.backends=.*twice"),
        (TrackingConfig(project=""), r"tracking\.project"),
    ],
)
def test_an_impossible_setting_is_refused(config: TrackingConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.check()
