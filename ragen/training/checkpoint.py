"""Checkpoints: `checkpoints/step-000005/`, each one whole or absent, and none of it pickled.

    step-000005/
      *.safetensors *.json ...     what `write_model` wrote: the Hugging Face or peft layout, which from_pretrained opens as it is
      critic/weights.safetensors, critic/optimizer.safetensors    where there is a critic
      trainer/optimizer.safetensors, trainer/state.json
      manifest.json                format, step, and size and sha256 of every other file; written last

A checkpoint is made in a hidden folder beside its place, flushed and renamed, so a process killed while saving leaves the earlier
checkpoints as they were. Older ones are deleted only after the new one has been read back from the disk and compared.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from ragen.errors import StorageError
from ragen.files import aside, folder_written_aside, storage, sync

CHECKPOINTS = "checkpoints"  # where they lie in a run folder
FORMAT = 1
MANIFEST = "manifest.json"
OPTIMIZER = "trainer/optimizer.safetensors"
STATE = "trainer/state.json"
NAME = re.compile(r"step-(\d{6,})")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint read back; the model's own files are read from `folder` by whoever owns the model."""

    folder: Path
    step: int
    state: dict[str, Any]
    optimizer: dict[str, torch.Tensor]


def save_checkpoint(
    root: Path,
    step: int,
    *,
    write_model: Callable[[Path], None],
    optimizer: Mapping[str, torch.Tensor],
    state: Mapping[str, Any],
    keep: int,
    keep_step: int | None = None,
) -> Path:
    """Save a step under `root` and delete all but the newest `keep` whole checkpoints; returns the new folder.

    `keep_step` is one more that stays, however old it is. `state` must survive JSON: counters, positions, generator states as
    numbers. Raises StorageError, with every earlier checkpoint intact, when the disk refuses or the step is already saved.
    """
    assert keep >= 1, keep
    folder = root / f"step-{step:06d}"
    _remove_leftovers(root)
    if folder.exists():
        if not find_fault(folder):
            raise StorageError(f"{folder}: step {step} is saved already; resume from it or use another run folder")
        _remove(folder)
    try:
        with folder_written_aside(folder) as temporary:
            write_model(temporary)
            (temporary / STATE).parent.mkdir()
            (temporary / STATE).write_text(json.dumps(state, allow_nan=False, indent=1), encoding="utf-8")
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in optimizer.items()}, temporary / OPTIMIZER)
            (temporary / MANIFEST).write_text(json.dumps(_manifest(temporary, step), indent=1), encoding="utf-8")
    except SafetensorError as error:  # how safetensors reports what the disk refused
        raise StorageError(f"{folder}: cannot write: {error}") from error
    _prove_readable(folder)
    _prune(root, folder, keep, keep_step)
    return folder


def tidy_checkpoints(root: Path, *, keep: int, keep_step: int | None = None) -> None:
    """Finish the making of room, with the settings of `save_checkpoint`, that a killed process may have broken off."""
    _remove_leftovers(root)
    _prune(root, None, keep, keep_step)


def latest_checkpoint(root: Path) -> Path | None:
    """The newest whole checkpoint under `root`, None if there is none. Damaged ones are named in a warning and passed over."""
    for folder in _newest_first(root):
        fault = find_fault(folder)
        if not fault:
            return folder
        logger.warning("checkpoint %s passed over: %s", folder, fault)
    return None


def named_checkpoint(root: Path, name: str) -> Path:
    """The checkpoint under `root` that a person named: by its step, or by its folder.

    Raises StorageError if it is not there, is of another run, or is damaged: what was asked for is never replaced by another.
    """
    folder = root / f"step-{int(name):06d}" if name.isdecimal() else Path(name)
    if folder.resolve().parent != root.resolve():
        raise StorageError(f"{name}: lies outside {root}; a run resumes from its own checkpoints only")
    if not folder.is_dir() or not NAME.fullmatch(folder.name):
        saved = ", ".join(str(step) for step in sorted(saved_steps(root))) or "none"
        raise StorageError(f"{folder}: no such checkpoint; saved steps: {saved}")
    fault = find_fault(folder)
    if fault:
        raise StorageError(f"{folder}: not a whole checkpoint: {fault}")
    return folder


def saved_steps(root: Path) -> list[int]:
    """Steps with a checkpoint under `root`, the newest first, whole or not."""
    return [int(folder.name.removeprefix("step-")) for folder in _newest_first(root)]


def size_of(folder: Path) -> int:
    """Bytes of a whole checkpoint, as its manifest lists them."""
    return sum(entry["bytes"] for entry in _read_json(folder / MANIFEST)["files"].values())


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint's counters and optimiser state. Raises StorageError naming what is wrong with a damaged one."""
    fault = find_fault(folder)
    if fault:
        raise StorageError(f"{folder}: not a whole checkpoint: {fault}")
    return Checkpoint(
        folder=folder,
        step=_read_json(folder / MANIFEST)["step"],
        state=_read_json(folder / STATE),
        optimizer=load_file(folder / OPTIMIZER),
    )


def find_fault(folder: Path) -> str:
    """What keeps `folder` from being a whole checkpoint, in a few words; empty if nothing does. Reads every file."""
    if not (folder / MANIFEST).is_file():
        return f"no {MANIFEST}"
    try:
        manifest = _read_json(folder / MANIFEST)
    except StorageError:
        return f"{MANIFEST} cannot be read"
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return f"{MANIFEST} is not of format {FORMAT}"
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != expected["bytes"]:
            return f"{name} has {path.stat().st_size} bytes instead of {expected['bytes']}"
        if _sha256(path) != expected["sha256"]:
            return f"{name} does not match its checksum"
    return ""


@torch.no_grad()
def load_parameters(parameters: Mapping[str, torch.nn.Parameter], tensors: Mapping[str, torch.Tensor], *, what: str) -> None:
    """Copy saved values into the parameters of the same name. Raises StorageError, naming `what`, unless all of them fit."""
    for name in sorted(parameters.keys() ^ tensors.keys()):
        lacks = "is missing in the file" if name in parameters else "has no place in the model to be trained"
        raise StorageError(f"{what}: {name} {lacks}; was the model built with other settings?")
    for name, parameter in parameters.items():
        if tensors[name].shape != parameter.shape:
            saved, wanted = tuple(tensors[name].shape), tuple(parameter.shape)
            raise StorageError(f"{what}: {name} has shape {saved}, not {wanted}; was the model built with other settings?")
    for name, parameter in parameters.items():
        parameter.copy_(tensors[name])


def step_of(path: Path) -> int:
    """The step in a name such as step-000040 or step-000040.yaml."""
    return int(path.stem.removeprefix("step-"))


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    """The optimiser's state as `NAME/KEY`, such as `layers.0.q.weight/exp_avg`: parameter order does not matter."""
    state = {name: optimizer.state.get(parameter, {}) for name, parameter in parameters.items()}
    return {f"{name}/{key}": torch.as_tensor(value) for name, entry in state.items() for key, value in entry.items()}


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Put back, bit for bit, what `optimizer_tensors` took. Raises StorageError if the model trains other parameters."""
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition("/")
        parameter = parameters.get(name)
        is_count = tensor.ndim == 0  # AdamW keeps its step counts on the CPU, its moments beside the parameter
        if parameter is None or not (is_count or tensor.shape == parameter.shape):
            has = "no such parameter" if parameter is None else f"shape {tuple(parameter.shape)}"
            saved = f"optimiser state {full_name} of shape {tuple(tensor.shape)}"
            raise StorageError(f"{saved}: the model to be trained has {has}; was it built with other settings?")
        optimizer.state[parameter][key] = tensor.clone() if is_count else tensor.to(parameter.device, copy=True)


def _newest_first(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    steps = [(int(match[1]), path) for path in root.iterdir() if (match := NAME.fullmatch(path.name)) and path.is_dir()]
    return [path for _, path in sorted(steps, reverse=True)]


def _manifest(folder: Path, step: int) -> dict[str, Any]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listed = {path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in files}
    return {"format": FORMAT, "step": step, "files": listed}


def _sha256(path: Path) -> str:
    with storage("read", path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot read: {error}") from error


def _prove_readable(folder: Path) -> None:
    """Read a new checkpoint back from the disk: every file by its checksum, and what the next process would have to parse."""
    fault = find_fault(folder)
    if not fault:
        _read_json(folder / STATE)
        try:
            with safe_open(folder / OPTIMIZER, framework="pt") as file:
                file.keys()
        except (OSError, SafetensorError) as error:
            fault = f"{OPTIMIZER} cannot be opened: {error}"
    if fault:
        raise StorageError(f"{folder}: read back after saving, and {fault}; the earlier checkpoints are kept")


def _prune(root: Path, saved: Path | None, keep: int, keep_step: int | None) -> None:
    """Delete what is older than the newest `keep` whole checkpoints; `saved`, if given, is known to be one."""
    num_whole = 0
    for folder in _newest_first(root):
        if num_whole < keep:
            num_whole += folder == saved or not find_fault(folder)
        elif keep_step is None or folder.name != f"step-{keep_step:06d}":
            _remove(folder)


def _remove(folder: Path) -> None:
    """Delete a checkpoint so that a process killed meanwhile leaves no half-deleted one under its name."""
    with storage("delete", folder):
        doomed = folder.rename(aside(folder))
        sync(folder.parent)
        shutil.rmtree(doomed)


def _remove_leftovers(root: Path) -> None:
    """Delete the hidden folders that a process killed while saving or deleting has left."""
    with storage("delete leftovers in", root):
        for leftover in root.glob(".step-*.tmp"):
            shutil.rmtree(leftover)
