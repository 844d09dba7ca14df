"""The folder of models that RAGEN makes itself, one per alias: whole or absent, whoever is killed and whoever else is building.

A model is built aside under a lock and renamed when complete. Its manifest, written last, lists every file with size and
checksum: sizes are compared on each use (a truncated file is never taken for a model), checksums on `ragen models pull`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout

from ragen.errors import ModelError, StorageError
from ragen.files import folder_written_aside, storage

MANIFEST = "ragen-manifest.json"
LOCK_TIMEOUT_S = 1800.0  # another process may be downloading over a slow line

Progress = Callable[[str, int, int | None], None]
"""Called with (phase, done, total): bytes where the phase moves bytes; total is None where it is not known."""

Build = Callable[[Path], None]
"""Writes a model into an empty folder, or raises."""


def silent(phase: str, done: int, total: int | None) -> None:
    """The Progress that shows nothing."""


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    recipe: str  # names how the model is made; a changed recipe makes a cached model stale
    source: str  # where the weights come from, for a person
    versions: dict[str, str]  # of the packages that made it
    files: dict[str, FileRecord]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(record.size for record in self.files.values())


def cache_folder() -> Path:
    """$RAGEN_CACHE, else the platform's user cache folder for RAGEN. Not created here."""
    if chosen := os.environ.get("RAGEN_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "ragen" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ragen"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragen"


def model_folder(alias: str) -> Path:
    """Where the model of `alias` lies once it has been built."""
    return cache_folder() / "models" / alias


def read_manifest(folder: Path, recipe: str) -> Manifest | None:
    """The manifest of a complete model made by `recipe`: every file is there with its size. None if not."""
    try:
        raw = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {name: FileRecord(**record) for name, record in raw["files"].items()}
        manifest = Manifest(recipe=raw["recipe"], source=raw["source"], versions=raw["versions"], files=files)
        complete = all((folder / name).stat().st_size == record.size for name, record in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, torn, or of another make: build again
        return None
    return manifest if complete and manifest.recipe == recipe else None


def damaged_files(folder: Path, manifest: Manifest, on_progress: Progress = silent) -> list[str]:
    """Names of the files whose checksum is not the manifest's."""
    done, damaged = 0, []
    for name, record in manifest.files.items():
        on_progress("verifying", done, manifest.size)
        if sha256_of(folder / name) != record.sha256:
            damaged.append(name)
        done += record.size
    on_progress("verifying", done, manifest.size)
    return damaged


def build_once(alias: str, *, recipe: str, source: str, space_mb: int, build: Build, on_progress: Progress = silent) -> Path:
    """The folder of `alias`, built now unless a complete one is there. Processes that want the same model wait for the first.

    `space_mb` is what building needs on disk at most. Raises StorageError if the cache cannot be written or is full, ModelError
    if another process holds the lock for half an hour, and whatever `build` raises; nothing half-written is left.
    """
    folder = model_folder(alias)
    if read_manifest(folder, recipe):  # before the lock, so that a read-only cache can be used
        return folder
    try:
        with storage("make the model cache", folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
            free_mb = shutil.disk_usage(folder.parent).free // 10**6
        if free_mb < space_mb:
            raise StorageError(f"{folder.parent}: {alias} needs {space_mb} MB of disk while it is built, {free_mb} MB are free")
        with storage("lock", folder), _locked(alias, on_progress):
            if not read_manifest(folder, recipe):
                shutil.rmtree(folder, ignore_errors=True)
                with folder_written_aside(folder) as aside:
                    build(aside)
                    _write_manifest(aside, recipe, source)
    except StorageError as error:
        raise StorageError(f"{error}; RAGEN_CACHE=FOLDER keeps models elsewhere") from error
    return folder


def discard(alias: str) -> None:
    """Remove a cached model. Raises StorageError if the disk refuses."""
    folder = model_folder(alias)
    with storage("remove the damaged model", folder), _locked(alias, silent):
        shutil.rmtree(folder)


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(alias: str, on_progress: Progress) -> Iterator[None]:
    """Hold the alias's lock; the operating system frees it if this process dies."""
    path = model_folder(alias).with_name(f".{alias}.lock")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_progress("waiting for another process", 0, None)
        try:
            lock.acquire(timeout=LOCK_TIMEOUT_S)
        except Timeout as error:
            raise ModelError(
                f"{alias}: another process has held {path} for {LOCK_TIMEOUT_S:.0f} s; stop it, then try again"
            ) from error
    try:
        yield
    finally:
        lock.release()


def _write_manifest(folder: Path, recipe: str, source: str) -> None:
    files = {
        path.relative_to(folder).as_posix(): FileRecord(size=path.stat().st_size, sha256=sha256_of(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    versions = {package: version(package) for package in ("tokenizers", "torch", "transformers")}
    manifest = asdict(Manifest(recipe=recipe, source=source, versions=versions, files=files))
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
