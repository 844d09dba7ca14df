"""Two runs are the same if everything but seconds and memory is; whatever else is changed is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ragen.faults.same_run import differences
from ragen.training.checkpoint import STATE
from tests.support.runs import run, small_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(small_config(tmp_path_factory.mktemp("same")))[0].folder


def copy_of(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / "copy"))


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def rewrite(folder: Path, changed: list[dict[str, float]]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))


def test_the_same_run_with_other_seconds_and_other_memory_is_the_same(folder: Path, tmp_path: Path) -> None:
    copy = copy_of(folder, tmp_path)
    timed = ("time/step_s", "memory/peak_gib", "rollout/tokens_per_s")
    rewrite(copy, [{key: value + 1 if key in timed else value for key, value in row.items()} for row in rows(copy)])
    (copy / "log.txt").write_text("another day")
    assert differences(folder, copy) == []


def next_float(copy: Path) -> None:
    changed = rows(copy)
    changed[1]["update/loss"] += 1e-12
    rewrite(copy, changed)


def one_byte(name: str) -> Callable[[Path], None]:
    def change(copy: Path) -> None:
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)

    return change


def state(copy: Path) -> None:
    path = copy / "checkpoints" / "step-000002" / STATE
    manifest = path.parents[1] / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"policy_version": 4', '"policy_version": 5'))
    assert path.read_text() != text
    import hashlib

    held = json.loads(manifest.read_text())
    held["files"][STATE] = {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    manifest.write_text(json.dumps(held))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a metric's last digits": (next_float, "step 1: update/loss of 1 metrics"),
    "a step that was logged twice": (
        lambda copy: rewrite(copy, [*rows(copy), rows(copy)[-1]]),
        "metrics of steps [0, 1, 2] against",
    ),
    "a rollout that is missing": (
        lambda copy: (copy / "rollouts/step-000001.parquet").unlink(),
        "rollouts: step-000001.parquet on",
    ),
    "a bit of a rollout": (one_byte("rollouts/step-000002.parquet"), "rollouts/step-000002.parquet"),
    "a bit of the weights": (
        one_byte("checkpoints/step-000002/model.safetensors"),
        "step-000002: model.safetensors does not match",
    ),
    "a counter": (state, f"step-000002/{STATE}: policy_version"),
    "a checkpoint": (
        lambda copy: shutil.rmtree(copy / "checkpoints/step-000001"),
        "checkpoints: ['step-000001', 'step-000002'] against",
    ),
    "a file of a killed process": (lambda copy: (copy / "eval/.x.json.tmp").touch(), "left behind: eval/.x.json.tmp"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_named(folder: Path, tmp_path: Path, change: str) -> None:
    copy = copy_of(folder, tmp_path)
    act, expected = CHANGES[change]
    act(copy)
    (found,) = differences(folder, copy)
    assert found.startswith(expected)
