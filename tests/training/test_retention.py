"""What is kept, and the warning before the disk is full; every number worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragen.training.retention import GIB, DiskWatch, best_step, keep_newest

ROWS: list[dict[str, float]] = [
    {"step": 0, "eval/b/success": 0.9},
    {"step": 2, "eval/b/success": 0.5},
    {"step": 3},
    {"step": 4, "eval/b/success": 0.7},
    {"step": 6, "eval/b/success": 0.7},
]


@pytest.mark.parametrize(
    ("direction", "saved", "best"),
    [
        ("max", [2, 3, 4, 6], 4),  # of equal ones the first
        ("max", [0, 4], 0),
        ("max", [2, 6], 6),
        ("min", [2, 3, 4, 6], 2),
        ("max", [3], None),
        ("min", [], None),
    ],
)
def test_the_best_is_the_first_of_the_best_among_those_that_are_saved(direction: str, saved: list[int], best: int | None) -> None:
    assert best_step(ROWS, "eval/b/success", direction=direction, saved=saved) == best


def test_a_metric_that_was_never_logged_has_no_best() -> None:
    assert best_step(ROWS, "eval/b/return", direction="max", saved=[2, 4]) is None


def test_the_newest_files_are_kept_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (8, 999_998, 999_999, 1_000_000):
        (tmp_path / f"step-{step:06d}.parquet").touch()
    keep_newest(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1000000.parquet", "step-999999.parquet"]
    keep_newest(tmp_path, 5)
    assert len(list(tmp_path.iterdir())) == 2


def watch(free: list[float], warnings: list[str], **settings: int | None) -> DiskWatch:
    """Of a run with checkpoints of 2 GiB, three of them kept; `free` GiB, one after the other."""
    given = {"checkpoint_bytes": 2 * GIB, "num_checkpoints": 3, "num_rollouts": None, **settings}
    return DiskWatch(
        folder=Path("runs/x"),
        warn=warnings.append,
        free=lambda folder: int(free.pop(0) * GIB),
        **given,  # type: ignore[arg-type]
    )


def test_a_warning_comes_once_and_while_there_is_still_time() -> None:
    """1 GiB a rollout. With 4 steps left and no checkpoint: 4 + 4 x 2 = 12 GiB; with 3 left and one saved: 3 + 3 x 2 = 9 GiB."""
    warnings: list[str] = []
    disk = watch([12.0, 8.9, 0.0], warnings)
    disk.after_rollout(GIB, num_left=4, num_there=1, num_saved=0)
    assert warnings == []
    disk.after_rollout(GIB, num_left=3, num_there=2, num_saved=1)
    disk.after_rollout(GIB, num_left=2, num_there=3, num_saved=1)
    (warning,) = warnings
    assert warning.startswith("runs/x: about 9 GiB are still to be written and 8.9 GiB are free; trainer.keep_rollouts")


def test_the_largest_rollout_so_far_stands_for_those_to_come() -> None:
    """3 x 2 GiB and one checkpoint in the making, 2 GiB, although the last rollout was small: 8 GiB."""
    warnings: list[str] = []
    disk = watch([20.0, 7.9], warnings)
    disk.after_rollout(2 * GIB, num_left=4, num_there=1, num_saved=3)
    disk.after_rollout(1, num_left=3, num_there=2, num_saved=3)
    assert len(warnings) == 1


def test_rollouts_that_make_room_for_each_other_need_none() -> None:
    """Two are kept and two are there: only the next checkpoint, 2 GiB, needs room."""
    warnings: list[str] = []
    disk = watch([2.0, 1.9], warnings, num_rollouts=2)
    disk.after_rollout(GIB, num_left=1000, num_there=2, num_saved=3)
    assert warnings == []
    disk.after_rollout(GIB, num_left=999, num_there=2, num_saved=3)
    assert len(warnings) == 1


def test_the_disk_that_is_asked_is_that_of_the_run(tmp_path: Path) -> None:
    disk = DiskWatch(folder=tmp_path, warn=pytest.fail, checkpoint_bytes=1, num_checkpoints=1, num_rollouts=1)
    assert disk.free(tmp_path) > 0
