"""Every operation on the files of a run folder, counted in the order in which a run does them, and a death at one of them.

What Python does to files it announces to audit hooks; what compiled code writes (safetensors, Parquet) is met where it is
flushed. A death there may be *torn*: the file is cut somewhere first, as if the process had died while it was written.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import HasFileno

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FREEING = ("remove", "rmdir", "rmtree")  # what a full disk allows
EVENTS = {"os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.truncate": 1, "shutil.rmtree": 1}  # -> paths

OnOperation = Callable[[int, str, str], None]  # number from 1, what, path relative to the folder


class Operations:
    """Tells `on_operation` of each, before it is done. Installed once in a process, and never taken away again."""

    def __init__(self, folder: Path, on_operation: OnOperation) -> None:
        self._folder = str(folder.resolve()) + os.sep
        self._on_operation = on_operation
        self._number = 0

    def install(self) -> None:
        honest = os.fsync

        def fsync(fd: int | HasFileno) -> None:
            self._note("fsync", _path_of(fd if isinstance(fd, int) else fd.fileno()))
            honest(fd)

        os.fsync = fsync
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, str | os.PathLike) and isinstance(flags, int) and flags & WRITES:
                self._note("append" if flags & os.O_APPEND else "open", os.fspath(path))
        elif event in EVENTS:
            path = args[EVENTS[event] - 1]  # of a rename: the new name
            if isinstance(path, str | os.PathLike):
                self._note(event.partition(".")[2], os.fspath(path))

    def _note(self, what: str, path: str | bytes) -> None:
        name = os.path.abspath(os.fsdecode(path))
        if name.startswith(self._folder):
            self._number += 1
            self._on_operation(self._number, what, name.removeprefix(self._folder))


def die_at(folder: Path, number: int, *, torn: float | None = None) -> None:
    """Have this process killed before its operation of this number; `torn` is how much is left of a file that is flushed.

    Of a file that is appended to, that is how much is left of the last piece: what was flushed before is on the disk.
    """
    flushed: dict[str, int] = {}

    def on_operation(count: int, what: str, name: str) -> None:
        path = folder / name
        if what == "append" and path.is_file():
            flushed[name] = path.stat().st_size
        if count != number:
            return
        if torn is not None and what == "fsync" and path.is_file():
            before = flushed.get(name, 0)
            os.truncate(path, before + int((path.stat().st_size - before) * torn))
        os.kill(os.getpid(), signal.SIGKILL)

    Operations(folder, on_operation).install()


def refuse_from(folder: Path, number: int, error: int) -> None:
    """Have every operation from this number on fail with an errno, as on a disk that is full or has become read-only."""

    def on_operation(count: int, what: str, name: str) -> None:
        if count >= number and what not in FREEING:
            raise OSError(error, os.strerror(error))

    Operations(folder, on_operation).install()


def list_to(folder: Path, listing: Path) -> None:
    """Write down every operation of this process, one a line."""
    descriptor = os.open(listing, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def on_operation(count: int, what: str, name: str) -> None:
        os.write(descriptor, f"{what} {name}\n".encode())

    Operations(folder, on_operation).install()


def deal(num_operations: int, num_kills: int, draw: random.Random) -> list[int]:
    """Which operations to die at: every one before any for the second time, in random order."""
    dealt: list[int] = []
    while len(dealt) < num_kills:
        dealt += draw.sample(range(1, num_operations + 1), num_operations)
    return dealt[:num_kills]


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no /proc: only what Python announces is met
        return ""
