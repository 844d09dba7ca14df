"""Killed at every single file operation: what a step writes is then whole or absent, and the next attempt finds its way.

Each case is a forked child that is ended, with no exit of any with or finally block taken, before its n-th operation that changes
the disk: opening for writing, flushing, renaming, deleting. kill -9 of whole runs: tests/faults.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from ragen.rollout.recorder import read_rollout, write_rollout
from ragen.training.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from ragen.training.superseded import set_aside_later
from ragen.training.trackers import RunInfo, Trackers, TrackingConfig, read_metrics
from tests.support.samples import make_group

CHANGING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
KILLED = 99

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # the child does nothing but files


def killed_at(moment: int, action: Callable[[], None]) -> bool:
    """Run `action` in a child that ends before its operation of this number, counted from 0; whether it got so far."""
    child = os.fork()
    if child == 0:
        _run_and_die(moment, action)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, KILLED), f"the child failed: {code}"
    return code == KILLED


def _run_and_die(moment: int, action: Callable[[], None]) -> NoReturn:
    left = [moment]

    def count() -> None:
        if left[0] == 0:
            os._exit(KILLED)
        left[0] -= 1

    def hook(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes or event in CHANGING:
            count()

    def fsync(descriptor: int, honest: Callable[[int], None] = os.fsync) -> None:
        count()
        honest(descriptor)

    try:
        os.fsync = fsync
        sys.addaudithook(hook)
        action()
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)


def moments(action: Callable[[], None], *, at_least: int) -> Iterator[int]:
    """Kill at operation 0, 1, 2, ... and yield after each, until the action gets through; so many there must have been."""
    moment = 0
    while killed_at(moment, action):
        yield moment
        moment += 1
    assert moment >= at_least, "the operations were not seen"


def write_model(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")


def save(root: Path, step: int) -> None:
    moments = {"w/exp_avg": torch.ones(3) * step}
    save_checkpoint(root, step, write_model=write_model, optimizer=moments, state={"done": step}, keep=1)


def test_killed_anywhere_in_a_save_the_newest_whole_checkpoint_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    """Bug-log rows 73 and 74, keeping one: at no moment is there none. The next save leaves no trace of the killed one."""
    seen = []
    for moment in itertools.count():
        root = tmp_path / str(moment)
        save(root, 1)
        if not killed_at(moment, lambda root=root: save(root, 2)):  # type: ignore[misc]
            break
        latest = latest_checkpoint(root)
        assert latest is not None
        checkpoint = load_checkpoint(latest)
        assert checkpoint.state == {"done": checkpoint.step}
        assert checkpoint.optimizer["w/exp_avg"].tolist() == [checkpoint.step] * 3
        seen.append(checkpoint.step)
        save(root, 3)
        assert [path.name for path in root.iterdir()] == ["step-000003"]
    assert seen == sorted(seen)
    assert seen.count(1) >= 10  # opened, flushed and renamed, before the new one stands
    assert seen.count(2) >= 5  # then the older one is deleted file by file


def test_killed_anywhere_a_rollout_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "rollouts" / "step-000001.parquet"
    for _ in moments(lambda: write_rollout(path, [make_group(1.0, 0.0)]), at_least=3):
        if path.exists():
            assert len(read_rollout(path)) == 2
            path.unlink()
    assert len(read_rollout(path)) == 2
    assert list(path.parent.iterdir()) == [path]


def test_killed_anywhere_in_resuming_and_logging_no_step_is_there_twice_and_none_is_missing(tmp_path: Path) -> None:
    """Steps 0 to 4 are logged; a run resumed at step 2 logs 3 and 4 again, over and over until it gets through."""
    rows = "".join(f'{{"step": {step}, "x": 1.0}}\n' for step in range(5))
    (tmp_path / "config.yaml").write_text("name: run\n")
    (tmp_path / "metrics.jsonl").write_text(rows + '{"step": 5, "x')  # the last line was torn by an earlier kill

    def resume() -> None:
        set_aside_later(tmp_path, 2)
        made = Trackers(TrackingConfig(backends=[]), warn=pytest.fail)
        made.start(RunInfo(folder=tmp_path, name="run", config={}, resumed_step=2))
        for step in (3, 4):
            made.log({"x": 2.0}, step)

    for _ in moments(resume, at_least=10):
        steps = [row["step"] for row in read_metrics(tmp_path)]
        assert steps in ([0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4])
    assert [(row["step"], row["x"]) for row in read_metrics(tmp_path)] == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)]
    kept = [read_metrics(folder) for folder in (tmp_path / "superseded").iterdir() if (folder / "metrics.jsonl").exists()]
    assert [{"step": 3, "x": 1.0}, {"step": 4, "x": 1.0}] in kept  # those of the first time are not lost
