"""Locks between processes that end with whoever holds them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ragen.errors import StorageError
from ragen.evaluation.locks import LOCK, alone_writing, take


def test_an_open_file_is_taken_once_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as first, path.open("r+b") as second:
        assert take(first.fileno())
        assert not take(second.fileno())
        first.close()
        assert take(second.fileno())


def test_one_at_a_time_writes_into_a_folder_and_no_lock_is_left(tmp_path: Path) -> None:
    """Each looks for the next free number and takes it: of two inside at once, one would find it taken."""
    folder = tmp_path / "deep" / "folder"

    def number(_: int) -> None:
        with alone_writing(folder):
            assert len(list(folder.glob(LOCK))) == 1
            (folder / str(len(list(folder.glob("[0-9]*"))))).touch(exist_ok=False)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(number, range(64)))
    assert {path.name for path in folder.iterdir()} == {str(number) for number in range(64)}


def test_the_lock_goes_with_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), alone_writing(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_a_killed_process_left_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    with alone_writing(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match=f"^{tmp_path}: cannot write into: "), alone_writing(tmp_path):
        pass
