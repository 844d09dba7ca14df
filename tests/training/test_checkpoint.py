from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from transformers import AutoModelForCausalLM

import ragen
from ragen.errors import StorageError
from ragen.training.checkpoint import (
    find_fault,
    latest_checkpoint,
    load_checkpoint,
    load_optimizer_tensors,
    load_parameters,
    optimizer_tensors,
    save_checkpoint,
    tidy_checkpoints,
)
from tests.support.models import tiny_llama

STATE = {"step": 5, "policy_version": 7, "generator": {"state": 2**127 - 1}, "tags": ["a"]}
MOMENTS = {
    "w/exp_avg": torch.tensor([0.1, -2.0]),
    "w/step": torch.tensor(3.0),
    "b/exp_avg": torch.tensor([1.5], dtype=torch.bfloat16),
}


def write_model(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")


def save(root: Path, step: int, *, keep: int = 2, writer: Callable[[Path], None] = write_model) -> Path:
    return save_checkpoint(root, step, write_model=writer, optimizer=MOMENTS, state={**STATE, "step": step}, keep=keep)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    folder = save(tmp_path / "checkpoints", 5)
    assert folder.name == "step-000005"
    loaded = load_checkpoint(folder)
    assert (loaded.folder, loaded.step, loaded.state) == (folder, 5, STATE)
    assert loaded.optimizer.keys() == MOMENTS.keys()
    assert all(torch.equal(loaded.optimizer[k], v) and loaded.optimizer[k].dtype == v.dtype for k, v in MOMENTS.items())
    assert (folder / "model.safetensors").read_bytes() == b"weights"  # the model's files lie on top, where from_pretrained looks


def test_the_manifest_lists_every_other_file_and_nothing_is_pickled(tmp_path: Path) -> None:
    folder = save(tmp_path, 5)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == files - {"manifest.json"}
    assert manifest["files"]["config.json"] == {
        "bytes": 2,
        "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",  # of "{}"
    }
    assert {Path(name).suffix for name in files} == {".json", ".safetensors"}


def test_only_the_newest_are_kept_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (5, 999_999, 1_000_000):
        save(tmp_path, step, keep=2)
    assert names(tmp_path) == ["step-1000000", "step-999999"]
    latest = latest_checkpoint(tmp_path)
    assert latest is not None
    assert latest.name == "step-1000000"


def test_without_checkpoints_there_is_no_latest(tmp_path: Path) -> None:
    (tmp_path / "step-000001").write_text("a file, not a folder")
    (tmp_path / "step-best").mkdir()
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "missing") is None


def cut(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weigh")


def flip(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weighty")


def lose_file(folder: Path) -> None:
    (folder / "trainer" / "state.json").unlink()


def lose_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def cut_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": 1, "fi')


def other_format(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": 2, "step": 10, "files": {}}')


DAMAGES = [
    (cut, "model.safetensors has 5 bytes instead of 7"),
    (flip, "model.safetensors does not match its checksum"),
    (lose_file, "trainer/state.json is missing"),
    (lose_manifest, "no manifest.json"),
    (cut_manifest, "manifest.json cannot be read"),
    (other_format, "manifest.json is not of format 1"),
]


@pytest.mark.parametrize(("damage", "fault"), DAMAGES)
def test_a_damaged_checkpoint_is_named_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None], fault: str
) -> None:
    """Bug-log row 73: resuming takes the newest whole checkpoint, and says which one it did not take."""
    whole, damaged = save(tmp_path, 5), save(tmp_path, 10)
    damage(damaged)
    with caplog.at_level(logging.WARNING):
        assert latest_checkpoint(tmp_path) == whole
    assert caplog.messages == [f"checkpoint {damaged} passed over: {fault}"]
    with pytest.raises(StorageError, match=f"step-000010: not a whole checkpoint: {fault}"):
        load_checkpoint(damaged)


def test_a_damaged_checkpoint_does_not_count_among_the_kept(tmp_path: Path) -> None:
    for step in (5, 10):
        save(tmp_path, step, keep=2)
    cut(tmp_path / "step-000010")
    save(tmp_path, 15, keep=2)
    assert {"step-000005", "step-000015"} <= set(names(tmp_path))


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    cut(save(tmp_path, 5))
    assert find_fault(save(tmp_path, 5)) == ""


def test_a_whole_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    save(tmp_path, 5)
    with pytest.raises(StorageError, match="step 5 is saved already"):
        save(tmp_path, 5)
    assert find_fault(tmp_path / "step-000005") == ""


def no_space(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_keeping_one_a_full_disk_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Bug-log row 74: keep = 1 and a save that fails the second time; the first still loads."""
    first = save(tmp_path, 5, keep=1)
    monkeypatch.setattr(os, call, no_space)
    with pytest.raises(StorageError) as caught:
        save(tmp_path, 10, keep=1)
    assert str(caught.value) == f"{tmp_path / 'step-000010'}: cannot write: No space left on device"
    monkeypatch.undo()
    assert names(tmp_path) == ["step-000005"]
    assert load_checkpoint(first).state == STATE


def test_keeping_one_the_earlier_goes_only_after_the_new_one_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug-log row 74: a disk that loses what it took is noticed before the earlier checkpoint is deleted."""
    save(tmp_path, 5, keep=1)
    rename = os.rename

    def losing(source: Path, target: Path) -> None:
        rename(source, target)
        cut(Path(target))

    monkeypatch.setattr(os, "rename", losing)
    with pytest.raises(StorageError, match="the earlier checkpoints are kept"):
        save(tmp_path, 10, keep=1)
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000005"


def test_a_model_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        write_model(folder)
        raise KeyboardInterrupt

    save(tmp_path, 5, keep=1)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 10, keep=1, writer=broken)
    assert names(tmp_path) == ["step-000005"]


def test_a_state_that_json_cannot_hold_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_checkpoint(tmp_path, 5, write_model=write_model, optimizer={}, state={"loss": float("nan")}, keep=1)
    assert names(tmp_path) == []


def run_python(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(ragen.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
        check=False,
    )


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from ragen.training.checkpoint import save_checkpoint

def write_model(folder):
    with (folder / "model.safetensors").open("wb") as file:
        file.write(b"half of the weights")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

save_checkpoint(Path(sys.argv[1]), 10, write_model=write_model, optimizer={}, state={}, keep=1)
"""


def test_a_process_killed_while_saving_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    """Bug-log row 73: kill -9 while the file grows; resume uses the previous one, and the next save clears what was left."""
    first = save(tmp_path, 5, keep=1)
    assert run_python(KILLED, tmp_path).returncode == -signal.SIGKILL
    assert names(tmp_path) == [".step-000010.tmp", "step-000005"]
    assert latest_checkpoint(tmp_path) == first
    assert load_checkpoint(first).state == STATE
    save(tmp_path, 15, keep=1)
    assert names(tmp_path) == ["step-000015"]


LIMITED = """
import resource, sys
from pathlib import Path
import torch
from ragen.errors import StorageError
from ragen.training.checkpoint import save_checkpoint

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    moments = {"w/m": torch.zeros(100_000)}
    save_checkpoint(Path(sys.argv[1]), 10, write_model=lambda folder: None, optimizer=moments, state={}, keep=1)
except StorageError as error:
    print(error)
"""


def test_a_disk_that_refuses_the_optimiser_state_is_one_line(tmp_path: Path) -> None:
    """Bug-log row 74: here the refusal comes out of the safetensors library, under a type of its own."""
    save(tmp_path, 5, keep=1)
    done = run_python(LIMITED, tmp_path)
    assert done.stderr == ""
    assert done.stdout.startswith(f"{tmp_path / 'step-000010'}: cannot write: ")
    assert len(done.stdout.splitlines()) == 1
    assert names(tmp_path) == ["step-000005"]


def test_a_root_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="step-000005: cannot write: "):
        save(tmp_path / "checkpoints", 5)


def trained(steps: int) -> tuple[torch.nn.Module, torch.optim.AdamW]:
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer, range(steps))
    return model, optimizer


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        (model(torch.tensor([[1.0, step]])) ** 2).sum().backward()
        optimizer.step()


def test_training_goes_on_bit_for_bit_after_the_optimiser_is_restored(tmp_path: Path) -> None:
    unbroken, _ = trained(6)
    model, optimizer = trained(3)
    tensors = optimizer_tensors(optimizer, dict(model.named_parameters()))
    assert set(tensors) == {f"{name}/{key}" for name in ("weight", "bias") for key in ("step", "exp_avg", "exp_avg_sq")}
    folder = save_checkpoint(tmp_path, 3, write_model=write_model, optimizer=tensors, state={}, keep=1)

    fresh = torch.optim.AdamW(model.parameters(), lr=0.1)
    load_optimizer_tensors(fresh, dict(model.named_parameters()), load_checkpoint(folder).optimizer)
    train(model, fresh, range(3, 6))
    for resumed, expected in zip(model.parameters(), unbroken.parameters(), strict=True):
        assert torch.equal(resumed, expected)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gain/exp_avg", r"optimiser state gain/exp_avg of shape \(3,\): the model to be trained has no such parameter"),
        ("weight/exp_avg", r"optimiser state weight/exp_avg of shape \(3,\): the model to be trained has shape \(1, 2\)"),
    ],
)
def test_optimiser_state_of_another_model_is_refused(name: str, message: str) -> None:
    model, optimizer = trained(0)
    with pytest.raises(StorageError, match=message):
        load_optimizer_tensors(optimizer, dict(model.named_parameters()), {name: torch.zeros(3)})


def test_saved_weights_are_put_back_bit_for_bit_and_those_of_another_model_change_nothing() -> None:
    model = torch.nn.Linear(2, 1)
    parameters = dict(model.named_parameters())
    saved = {"weight": torch.tensor([[0.1, -2.0]]), "bias": torch.tensor([3.0])}
    load_parameters(parameters, saved, what="critic/weights.safetensors")
    assert torch.equal(model.weight, saved["weight"])
    assert torch.equal(model.bias, saved["bias"])
    others = {
        r"^critic/weights\.safetensors: bias is missing in the file; ": {"weight": torch.zeros(1, 2)},
        r"critic/weights\.safetensors: scale has no place in the model": {**saved, "scale": torch.zeros(1)},
        r"critic/weights\.safetensors: bias has shape \(2,\), not \(1,\)": {"weight": torch.zeros(1, 2), "bias": torch.zeros(2)},
    }
    for message, tensors in others.items():
        with pytest.raises(StorageError, match=message):
            load_parameters(parameters, tensors, what="critic/weights.safetensors")
    assert torch.equal(model.weight, saved["weight"])


def test_a_checkpoint_folder_can_be_moved(tmp_path: Path) -> None:
    folder = save(tmp_path, 5)
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    assert load_checkpoint(moved).step == 5


def test_a_checkpoint_is_opened_by_transformers_as_it_is(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_llama())
    folder = save(tmp_path, 5, writer=model.save_pretrained)
    opened = AutoModelForCausalLM.from_pretrained(folder)
    assert opened.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in opened.state_dict().items())


def test_room_that_a_killed_process_was_making_is_made_on_resuming(tmp_path: Path) -> None:
    """Killed between saving the last step and deleting the first, or half-way through deleting it."""
    for step in (1, 2, 3):
        save(tmp_path, step, keep=9)
    (tmp_path / ".step-000007.tmp").mkdir()
    tidy_checkpoints(tmp_path, keep=1, keep_step=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]
    tidy_checkpoints(tmp_path, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000003"]
