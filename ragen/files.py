"""Files that are either whole or absent: written aside, flushed to the disk, renamed.

A killed process leaves at most a hidden `.NAME.tmp` beside the target, which the next write of the same name replaces. One
process writes a run folder at a time, so the temporary name needs no randomness.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragen.errors import StorageError


@contextmanager
def storage(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError of the code inside (full disk, read-only folder, missing file) into one StorageError line about `path`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: cannot {action}: {error.strerror or error}") from error


def sync(path: Path) -> None:
    """Force a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Force every file and folder under `folder`, itself included, to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each of their names on the disk before anything is put inside."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def move(source: Path, target: Path) -> None:
    """Give a file or folder another name on the same disk, both folders flushed. Missing parents of `target` are made."""
    make_folder(target.parent)
    os.rename(source, target)
    sync(target.parent)
    sync(source.parent)


def aside(path: Path) -> Path:
    """Where `path` is written before it is whole: hidden, and in the same folder, since a rename must not cross file systems."""
    return path.with_name(f".{path.name}.tmp")


@contextmanager
def file_written_aside(path: Path) -> Iterator[Path]:
    """Yield a temporary file name; afterwards the file stands whole under `path`, or, if the code inside raised, nothing changed.

    Missing parent folders are made. Raises StorageError when the disk refuses.
    """
    temporary = aside(path)
    with storage("write", path):
        make_folder(path.parent)
        try:
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync(path.parent)


@contextmanager
def folder_written_aside(path: Path) -> Iterator[Path]:
    """Like `file_written_aside` for a folder: yield an empty temporary one that becomes `path`, which must not exist yet."""
    temporary = aside(path)
    with storage("write", path):
        shutil.rmtree(temporary, ignore_errors=True)
        make_folder(path.parent)
        temporary.mkdir()
        try:
            yield temporary
            sync_tree(temporary)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text so that `path` holds either all of it or what it held before."""
    with file_written_aside(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
