"""The model cache: whole or absent, whatever happens while it is built."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from ragen.errors import ModelError, StorageError
from ragen.models import cache
from ragen.models.cache import build_once, cache_folder, damaged_files, model_folder, read_manifest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_model(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(range(100)))


def refuse_to_build(folder: Path) -> None:
    raise AssertionError("built again")


def build(recipe: str = "r1", builder: cache.Build = write_model) -> Path:
    return build_once("m", recipe=recipe, source="a test", space_mb=1, build=builder)


def names_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.suffix != ".lock"}


def test_a_built_model_is_listed_in_its_manifest_and_not_built_again() -> None:
    folder = build()
    manifest = read_manifest(folder, "r1")
    assert manifest is not None
    assert manifest.source == "a test"
    assert {name: record.size for name, record in manifest.files.items()} == {"config.json": 2, "model.safetensors": 100}
    assert manifest.size == 102
    assert set(manifest.versions) == {"tokenizers", "torch", "transformers"}
    assert build(builder=refuse_to_build) == folder == model_folder("m")


def test_another_recipe_replaces_what_is_cached() -> None:
    build()

    def other(folder: Path) -> None:
        (folder / "new.txt").write_text("new")

    assert {path.name for path in build("r2", other).iterdir()} == {"new.txt", cache.MANIFEST}


@pytest.mark.parametrize("damage", ["truncated", "missing", "torn manifest", "manifest of another shape", "no manifest"])
def test_an_incomplete_folder_is_never_taken_for_a_model(damage: str) -> None:
    folder = build()
    match damage:
        case "truncated":
            (folder / "model.safetensors").write_bytes(bytes(range(99)))
        case "missing":
            (folder / "config.json").unlink()
        case "torn manifest":
            (folder / cache.MANIFEST).write_text('{"recipe": "r1", "fil')
        case "manifest of another shape":
            (folder / cache.MANIFEST).write_text('{"recipe": "r1", "source": "", "versions": {}, "files": ["config.json"]}')
        case "no manifest":
            (folder / cache.MANIFEST).unlink()
    assert read_manifest(folder, "r1") is None
    build()
    assert (folder / "model.safetensors").read_bytes() == bytes(range(100))


def test_a_changed_byte_is_found_by_checksum() -> None:
    folder = build()
    (folder / "model.safetensors").write_bytes(bytes(reversed(range(100))))
    manifest = read_manifest(folder, "r1")
    assert manifest is not None
    seen: list[tuple[str, int, int | None]] = []
    assert damaged_files(folder, manifest, lambda *args: seen.append(args)) == ["model.safetensors"]
    assert seen[-1] == ("verifying", 102, 102)


@pytest.mark.parametrize("failure", [ModelError("no"), KeyboardInterrupt(), ValueError("bug")])
def test_a_build_that_is_interrupted_leaves_nothing(failure: BaseException, own_cache: Path) -> None:
    def half(folder: Path) -> None:
        write_model(folder)
        raise failure

    with pytest.raises(type(failure)):
        build(builder=half)
    assert names_below(own_cache) == {"models"}


def test_what_a_killed_build_left_is_cleared_by_the_next(own_cache: Path) -> None:
    left = own_cache / "models" / ".m.tmp"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    folder = build()
    assert not left.exists()
    assert read_manifest(folder, "r1") is not None


def test_a_disk_that_fills_up_is_one_clear_line(own_cache: Path) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        StorageError, match=r"cannot write: No space left on device; RAGEN_CACHE=FOLDER keeps models elsewhere"
    ) as e:
        build(builder=full)
    assert "\n" not in str(e.value)
    assert names_below(own_cache) == {"models"}


def test_too_little_space_is_refused_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(free=2_000_000))
    with pytest.raises(StorageError, match="m needs 3 MB of disk while it is built, 2 MB are free"):
        build_once("m", recipe="r", source="", space_mb=3, build=refuse_to_build)


def test_a_cache_that_cannot_be_made_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"file/models: cannot make the model cache: .*RAGEN_CACHE"):
        build()


def test_a_complete_model_in_a_read_only_cache_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build()

    def read_only(path: Path) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(cache, "FileLock", read_only)
    assert build(builder=refuse_to_build) == folder
    with pytest.raises(StorageError, match="cannot lock: Read-only file system; RAGEN_CACHE"):
        build("r2")


def test_two_at_once_build_it_once_and_both_get_it() -> None:
    second_waits = threading.Event()
    phases: list[str] = []
    results: list[Path] = []

    def second() -> None:
        def note(phase: str, done: int, total: int | None) -> None:
            phases.append(phase)
            second_waits.set()

        results.append(build_once("m", recipe="r1", source="", space_mb=1, build=refuse_to_build, on_progress=note))

    thread = threading.Thread(target=second)

    def slow(folder: Path) -> None:
        thread.start()
        assert second_waits.wait(timeout=30)
        write_model(folder)

    first = build(builder=slow)
    thread.join(timeout=30)
    assert results == [first]
    assert phases == ["waiting for another process"]


def test_a_lock_that_is_never_freed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LOCK_TIMEOUT_S", 0.01)

    def build_inside(folder: Path) -> None:
        failures: list[BaseException] = []

        def other() -> None:
            try:
                build()
            except ModelError as error:
                failures.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(timeout=30)
        assert [".m.lock" in str(failure) for failure in failures] == [True]
        write_model(folder)

    build(builder=build_inside)


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("RAGEN_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "ragen"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ragen"
