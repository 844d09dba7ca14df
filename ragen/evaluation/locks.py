"""One process at a time: over a file that is open, and over a folder for the moment of writing into it.

The locks are the system's own, `flock`: they end with the process, however that ends, so nothing is left to be cleared away.
Windows has none; there a person has to see to it that one evaluation at a time writes into a folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragen.files import make_folder, storage

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"


def take(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another process has it. Raises OSError where there are no locks."""
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@contextmanager
def alone_writing(folder: Path) -> Iterator[None]:
    """Wait until nobody else writes into `folder`, which is made if it is missing, and keep others out. Raises StorageError."""
    path = folder / LOCK
    with storage("write into", folder):
        make_folder(folder)
        descriptor = _locked(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is held, so that nobody's lock but this one goes
        os.close(descriptor)


def _locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if sys.platform != "win32":
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever had it has removed the file meanwhile: it keeps nobody out any more
