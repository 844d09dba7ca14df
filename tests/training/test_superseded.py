"""What a resumed run plays again: moved away whole, and in an order in which a kill leaves a folder that can be resumed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ragen.errors import StorageError
from ragen.training.superseded import set_aside_later


def a_run(folder: Path, steps: int) -> dict[str, str]:
    """A file of every kind for each step, and the last evaluation by another command; returns names and contents."""
    files: dict[str, str] = {}
    for step in range(1, steps + 1):
        files |= {
            f"checkpoints/step-{step:06d}/manifest.json": f"c{step}",
            f"rollouts/step-{step:06d}.parquet": f"r{step}",
            f"eval/step-{step:06d}.json": f"e{step}",
            f"eval/step-{step:06d}.parquet": f"p{step}",
        }
    files |= {f"eval/step-{steps:06d}-asked-2.json": "a", "eval/notes.txt": "n", "config.yaml": "y", "rollouts/step-x": "x"}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "metrics.jsonl").write_text("".join(f'{{"step": {step}}}\n' for step in range(steps + 1)))
    return files


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_everything_after_the_step_is_moved_under_its_name_and_nothing_else(tmp_path: Path) -> None:
    files = a_run(tmp_path, 3)
    kept = set_aside_later(tmp_path, 1)
    assert kept == tmp_path / "superseded" / "after-step-000001"
    moved = contents(kept)
    assert moved.pop("metrics.jsonl") == '{"step": 2}\n{"step": 3}\n'
    assert moved.pop("config.yaml") == "y"  # a copy: the settings that they were played under
    assert moved == {name: text for name, text in files.items() if "00002" in name or "00003" in name}
    left = {name: text for name, text in contents(tmp_path).items() if not name.startswith(("superseded/", "metrics"))}
    assert left | moved == files  # nothing is lost


def test_where_nothing_is_later_nothing_is_made(tmp_path: Path) -> None:
    a_run(tmp_path, 2)
    assert set_aside_later(tmp_path, 2) is None
    assert set_aside_later(tmp_path / "new", 0) is None
    assert not (tmp_path / "superseded").exists()


def test_another_time_gets_another_folder(tmp_path: Path) -> None:
    for expected in ("after-step-000001", "after-step-000001-2", "after-step-000001-3"):
        a_run(tmp_path, 2)
        kept = set_aside_later(tmp_path, 1)
        assert kept is not None
        assert kept.name == expected


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", range(12))
def test_killed_between_two_moves_the_newest_checkpoint_has_all_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    files = a_run(tmp_path, 3)
    rename = os.rename
    calls: list[Path] = []

    def counted(source: Path, target: Path) -> None:
        if len(calls) == moment:
            raise Killed
        calls.append(source)
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", counted)
        try:
            set_aside_later(tmp_path, 1)
        except Killed:
            assert moment < 9
    newest = max(int(path.name[-6:]) for path in (tmp_path / "checkpoints").iterdir())
    assert newest == max(1, 3 - moment)
    for step in range(1, newest + 1):
        assert (tmp_path / "rollouts" / f"step-{step:06d}.parquet").exists()
        assert (tmp_path / "eval" / f"step-{step:06d}.json").exists()
    set_aside_later(tmp_path, 1)  # the next attempt moves the rest
    names = [name.partition("after-step-000001")[2].partition("/")[2] for name in contents(tmp_path / "superseded")]
    everything = {name for name in files if "00002" in name or "00003" in name}
    own = {"metrics.jsonl", "config.yaml"}  # of the folder that they lie in
    assert set(names) - own == everything
    assert len([name for name in names if name not in own]) == len(everything)


def test_a_disk_that_refuses_is_one_line(tmp_path: Path) -> None:
    a_run(tmp_path, 2)
    (tmp_path / "superseded").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="cannot move what is played again to"):
        set_aside_later(tmp_path, 1)


@pytest.mark.parametrize("torn", ["metrics.jsonl", "config.yaml"])
@pytest.mark.parametrize("moment", range(12))
def test_a_folder_in_whose_making_the_process_was_killed_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int, torn: str
) -> None:
    """Killed at each of the nine moves and two writes, or after all of them, with a file half-written in the last."""
    files = a_run(tmp_path, 3)
    rename, replace = os.rename, os.replace
    calls: list[Path] = []

    def counted(source: Path, target: Path, call: Callable[[Path, Path], None]) -> None:
        if len(calls) == moment:
            raise Killed
        calls.append(source)
        call(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", lambda source, target: counted(source, target, rename))
        patch.setattr(os, "replace", lambda source, target: counted(source, target, replace))
        with suppress(Killed):
            set_aside_later(tmp_path, 1)
    kept = tmp_path / "superseded" / "after-step-000001"
    if moment < 11:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / f".{torn}.tmp").write_text("half")
    else:  # what comes after it in a resume
        (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1}\n')
    assert set_aside_later(tmp_path, 1) == (kept if moment < 11 else None)
    moved = contents(kept)
    assert moved.pop("metrics.jsonl") == '{"step": 2}\n{"step": 3}\n'
    assert moved.pop("config.yaml") == "y"
    assert moved == {name: text for name, text in files.items() if "00002" in name or "00003" in name}


def test_an_unfinished_folder_of_another_step_is_finished_too(tmp_path: Path) -> None:
    a_run(tmp_path, 3)
    (tmp_path / "superseded/after-step-000002/rollouts").mkdir(parents=True)
    (tmp_path / "superseded/after-step-000002/.config.yaml.tmp").write_text("half")
    assert set_aside_later(tmp_path, 1) == tmp_path / "superseded/after-step-000001"
    assert contents(tmp_path / "superseded/after-step-000002") == {"config.yaml": "y"}
