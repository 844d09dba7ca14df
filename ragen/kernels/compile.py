"""Compile cpu.c for this very processor, once, and load it.

A C compiler (`$CC`, cc, gcc or clang) makes the library in about three seconds; it lies in a folder of the caller's under a name
that hashes source, compiler, processor and OpenMP runtime, so that nothing stale or foreign is ever loaded. The library is linked
against the OpenMP runtime that torch has already loaded: two pools of threads would fight for the cores.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

import torch

FLAGS = ("-O3", "-funroll-loops", "-march=native", "-fopenmp", "-fPIC", "-std=gnu11")
COMPILERS = ("cc", "gcc", "clang")
DEADLINE_S = 120.0

logger = logging.getLogger(__name__)


class NotCompiled(Exception):
    """Says in a few words why there is no library. Nothing is wrong: torch's own operations serve."""


@functools.cache
def library(folder: Path) -> ctypes.CDLL:
    """The compiled operations, kept in `folder`. Raises NotCompiled where they cannot be had."""
    openmp = _openmp_of_torch()
    chosen = os.environ.get("CC")
    compiler = next((found for name in ([chosen] if chosen else COMPILERS) if (found := shutil.which(name))), None)
    if compiler is None:
        raise NotCompiled("no C compiler")
    source = files("ragen.kernels").joinpath("cpu.c").read_text(encoding="utf-8")
    target = _run([compiler, *FLAGS, "-dM", "-E", "-x", "c", os.devnull])  # compiler and processor, as macros
    name = hashlib.sha256("\n".join([source, target, str(openmp), *FLAGS]).encode()).hexdigest()[:24]
    path = folder / f"{name}.so"
    if not path.exists():
        _build(compiler, source, openmp, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NotCompiled(f"{path} cannot be loaded: {error}") from None


def _openmp_of_torch() -> Path:
    """The GNU OpenMP runtime that this process has loaded with torch."""
    if platform.system() != "Linux":
        raise NotCompiled("only on Linux")
    torch.get_num_threads()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = {line.split(maxsplit=5)[-1].strip() for line in maps if "libgomp" in line}
    if len(mapped) != 1:
        raise NotCompiled(f"torch runs on {'no' if not mapped else 'more than one'} GNU OpenMP runtime")
    return Path(mapped.pop())


def _build(compiler: str, source: str, openmp: Path, path: Path) -> None:
    """Compile aside and rename: whoever else compiles at the same moment writes the same file."""
    logger.warning("compiling operations for this processor: some seconds, once")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            written, unlinked, linked = (Path(folder) / name for name in ("cpu.c", "cpu.o", "cpu.so"))
            written.write_text(source, encoding="utf-8")
            _run([compiler, *FLAGS, "-c", str(written), "-o", str(unlinked)])
            _run([compiler, "-shared", str(unlinked), str(openmp), "-lm", "-o", str(linked)])
            os.replace(linked, path)
    except OSError as error:
        raise NotCompiled(f"{path.parent} cannot be written: {error}") from None


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
