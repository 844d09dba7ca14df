"""Episodes as text in the trackers: what each of them is handed, and that one which fails never ends a run.

wandb 0.31, trackio 0.43 and mlflow-skinny 3.17 take it so. They are stood in for here, since the tests do not install them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ragen.records import Trajectory
from ragen.training import trackers as module
from ragen.training.shown import COLUMNS, as_text
from ragen.training.tracker_backends import BACKENDS, RunInfo
from ragen.training.trackers import Trackers, TrackingConfig
from tests.support.finished import Episode, Played
from tests.training.test_trackers import events

EPISODES = [Episode(seed=seed, turns=(Played(text=f"reply {seed}"),)).made() for seed in (1, 3)]


class Recording:
    """Takes down what it is told to show; may fail at it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.shown: list[tuple[str, int, int]] = []
        self._fails = fails

    def start(self, run: RunInfo) -> None: ...

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def show(self, name: str, episodes: Sequence[Trajectory], step: int) -> None:
        self.shown.append((name, len(episodes), step))
        if self._fails:
            raise OSError("no route to host")

    def finish(self) -> None: ...


@pytest.mark.parametrize("fails", [False, True])
def test_episodes_go_to_every_tracker_beside_our_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    recordings = {"wandb": Recording(fails=fails), "mlflow": Recording()}
    for name, recording in recordings.items():
        monkeypatch.setitem(module.BACKENDS, name, lambda project, made=recording: made)
    warnings: list[str] = []
    made = Trackers(TrackingConfig(backends=["wandb", "mlflow"]), warn=warnings.append)
    made.start(RunInfo(folder=tmp_path, name="bandit", config={}))
    made.show("validation", EPISODES, 4)
    assert [each.shown for each in recordings.values()] == [[("validation", 2, 4)]] * 2
    assert warnings == (["tracker wandb failed; the run goes on: OSError: no route to host"] if fails else [])
    assert not (tmp_path / "metrics.jsonl").read_text()


def test_tensorboard_has_the_text_under_its_step(tmp_path: Path) -> None:
    made = Trackers(TrackingConfig(), warn=pytest.fail)
    made.start(RunInfo(folder=tmp_path, name="bandit", config={}))
    made.show("quick-greedy", EPISODES, 7)
    made.finish()
    texts = [
        (event.step, value.tensor.string_val[0].decode())
        for event in events(tmp_path / "tensorboard")
        for value in event.summary.value
        if value.tag.startswith("episodes/quick-greedy")
    ]
    assert texts == [(7, "\n\n---\n\n".join(map(as_text, EPISODES)))]


class Run:
    """The run object of wandb and of trackio."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def define_metric(self, *args: Any, **kwargs: Any) -> None: ...

    def log(self, data: dict[str, Any], **kwargs: Any) -> None:
        self.logged.append((data, kwargs))


def started(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, **attributes: Any) -> Any:
    """The tracker `name` over a stand-in for its package."""
    package = types.ModuleType(name)
    vars(package).update(attributes)
    monkeypatch.setitem(sys.modules, name, package)
    tracker = BACKENDS[name]("ragen")
    tracker.start(RunInfo(folder=folder, name="bandit", config={}))
    return tracker


def test_wandb_gets_a_table_with_a_row_an_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    tracker = started(monkeypatch, tmp_path, "wandb", init=lambda **_: run, Table=lambda **given: given)
    tracker.show("validation", EPISODES, 4)
    (logged, _) = run.logged[0]
    assert logged["step"] == 4
    table = logged["episodes/validation"]
    assert table["columns"] == list(COLUMNS)
    assert [row[1] for row in table["data"]] == ["1", "3"]


def test_trackio_gets_a_trace_an_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    tracker = started(monkeypatch, tmp_path, "trackio", init=lambda **_: run, Trace=lambda **given: given)
    tracker.show("validation", EPISODES, 4)
    logged, options = run.logged[0]
    assert options == {"step": 4}
    assert list(logged) == ["episodes/validation/1", "episodes/validation/2"]
    assert logged["episodes/validation/2"]["messages"][-1] == {"role": "assistant", "content": "reply 3"}
    assert list(logged["episodes/validation/2"]["metadata"]) == list(COLUMNS[:-1])


def test_mlflow_gets_a_file_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[str, str, str]] = []
    client = SimpleNamespace(
        get_experiment_by_name=lambda name: SimpleNamespace(experiment_id="0"),
        create_run=lambda *args, **kwargs: SimpleNamespace(info=SimpleNamespace(run_id="r1")),
        log_text=lambda run_id, text, file: kept.append((run_id, text, file)),
    )
    tracker = started(monkeypatch, tmp_path, "mlflow", MlflowClient=lambda: client)
    tracker.show("validation", EPISODES, 4)
    ((run_id, text, file),) = kept
    assert (run_id, file) == ("r1", "episodes/validation/step-000004.md")
    assert "reply 1" in text
    assert "reply 3" in text
