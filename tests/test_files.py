from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ragen.errors import StorageError
from ragen.files import file_written_aside, folder_written_aside, write_text


def test_a_file_appears_whole_and_its_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]


def test_a_writer_that_raises_leaves_the_earlier_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def interrupted() -> None:
        with file_written_aside(path) as temporary:
            temporary.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.txt"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError) as caught:
        write_text(path, "new")
    assert str(caught.value) == f"{path}: cannot write: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(StorageError, match=r"cannot write"):
        write_text(tmp_path / "runs" / "a.txt", "new")


def test_a_folder_appears_whole_and_what_a_killed_writer_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".made.tmp").mkdir()
    (tmp_path / ".made.tmp" / "left").write_text("half")
    with folder_written_aside(tmp_path / "made") as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "a").write_text("a")
        assert not (tmp_path / "made").exists()
    assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob("*"))] == ["made", "made/inner", "made/inner/a"]


def test_a_folder_whose_writer_raises_does_not_appear(tmp_path: Path) -> None:
    def interrupted() -> None:
        with folder_written_aside(tmp_path / "made") as temporary:
            (temporary / "a").write_text("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
