"""Compile cpu.c for this very processor, once, and load it.

GCC (`$CC`, cc or gcc) makes the library in about three seconds. It lies in a folder of the caller's under a name that hashes
source, compiler, processor and OpenMP runtime, so that nothing stale is loaded, with its checksum beside it, so that nothing
torn is; what others could have written is not loaded either. The library is linked against the OpenMP runtime that torch has
already loaded: two pools of threads would fight for the cores.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

import torch

from ragen.errors import StorageError
from ragen.files import sync, write_text

SOURCE = files("ragen.kernels").joinpath("cpu.c")
FLAGS = ("-O3", "-funroll-loops", "-march=native", "-fopenmp", "-fPIC", "-std=gnu11")
COMPILERS = ("cc", "gcc")
DEADLINE_S = 120.0

logger = logging.getLogger(__name__)


class NotCompiled(Exception):
    """Says in a few words why there is no library. Nothing is wrong: torch's own operations serve."""


@functools.cache
def library(folder: Path) -> ctypes.CDLL:
    """The compiled operations, kept in `folder`. Raises NotCompiled where they cannot be had."""
    try:
        return _library(folder)
    except (OSError, StorageError) as error:
        raise NotCompiled(f"{folder}: {error}") from None


def _library(folder: Path) -> ctypes.CDLL:
    openmp = _openmp_of_torch()
    compiler, target = _compiler()
    source = SOURCE.read_text(encoding="utf-8")
    name = hashlib.sha256("\n".join([source, target, str(openmp), *FLAGS]).encode()).hexdigest()[:24]
    path = folder / f"{name}.so"
    folder.mkdir(parents=True, exist_ok=True)
    if not _is_whole(path):
        _build(compiler, source, openmp, path)
    for each in (folder, path):
        status = each.stat()
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise NotCompiled(f"others may write into {each}")
    return ctypes.CDLL(str(path))


def _compiler() -> tuple[list[str], str]:
    """The command, and as macros what it is and what it compiles for."""
    chosen = os.environ.get("CC")
    for command in [shlex.split(chosen)] if chosen else [[name] for name in COMPILERS]:
        if command and shutil.which(command[0]):
            target = _run([*command, *FLAGS, "-dM", "-E", "-x", "c", os.devnull])
            if "__clang__" not in target:  # it compiles for another OpenMP runtime
                return command, target
    raise NotCompiled("no GCC")


def _openmp_of_torch() -> Path:
    """The GNU OpenMP runtime that this process has loaded with torch."""
    if platform.system() != "Linux":
        raise NotCompiled("only on Linux")
    torch.get_num_threads()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    mapped = {line.split(maxsplit=5)[-1].strip() for line in maps if "libgomp" in line}
    if len(mapped) != 1:
        raise NotCompiled(f"torch runs on {'no' if not mapped else 'more than one'} GNU OpenMP runtime")
    return Path(mapped.pop())


def _is_whole(path: Path) -> bool:
    """A library that is not what its checksum says would end the process when it is loaded."""
    written = path.with_suffix(".sha256")
    return path.exists() and written.exists() and written.read_text(encoding="utf-8") == _checksum(path)


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _build(compiler: list[str], source: str, openmp: Path, path: Path) -> None:
    """Compile aside and rename: whoever else compiles at the same moment writes the same file."""
    logger.warning("compiling operations for this processor: some seconds, once")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        written, unlinked, linked = (Path(folder) / name for name in ("cpu.c", "cpu.o", "cpu.so"))
        written.write_text(source, encoding="utf-8")
        _run([*compiler, *FLAGS, "-c", str(written), "-o", str(unlinked)])
        _run([*compiler, "-shared", "-Wl,-z,defs", str(unlinked), str(openmp), "-lm", "-o", str(linked)])
        linked.chmod(0o755)
        sync(linked)
        checksum = _checksum(linked)
        os.replace(linked, path)
    write_text(path.with_suffix(".sha256"), checksum)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotCompiled(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else f"exit code {done.returncode}")
        raise NotCompiled(f"{command[0]}: {first}")
    return done.stdout
