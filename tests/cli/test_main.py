"""Ctrl-C: one line, exit code 130, and how to go on only where there is something to go on from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.command import call

Interrupted = Callable[..., str]


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Interrupted:
    """The line that is printed after Ctrl-C in a training that has written `folder` below runs/, with these checkpoints."""

    def press(folder: str, *checkpoints: str) -> str:
        def train(*_: object, **__: object) -> None:
            for checkpoint in checkpoints:
                (tmp_path / folder / "checkpoints" / checkpoint).mkdir(parents=True)
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "config.yaml").touch()
            raise KeyboardInterrupt

        monkeypatch.setitem(sys.modules, "ragen.run", SimpleNamespace(train=train, CONFIG_FILE="config.yaml"))
        code, out, err = call(capsys, "train", "bandit", f"output_dir={tmp_path}", "name=mine", "--resume")
        assert (code, out) == (130, "")
        return err

    return press


def earlier_run(folder: Path) -> None:
    (folder / "checkpoints" / "step-000005").mkdir(parents=True)
    (folder / "config.yaml").touch()
    os.utime(folder / "config.yaml", (1e9, 1e9))


def test_before_the_first_checkpoint_there_is_nothing_to_go_on_from(interrupted: Interrupted) -> None:
    assert interrupted("mine") == "error: interrupted\n"


def test_a_checkpoint_half_written_is_none(interrupted: Interrupted) -> None:
    assert interrupted("mine", ".step-000005.partial") == "error: interrupted\n"


def test_after_a_checkpoint_the_run_can_be_resumed(interrupted: Interrupted) -> None:
    assert interrupted("mine", "step-000005") == "error: interrupted; --resume goes on from the last checkpoint\n"


def test_a_run_that_got_another_name_is_resumed_under_that_name(interrupted: Interrupted, tmp_path: Path) -> None:
    earlier_run(tmp_path / "mine")
    expected = "error: interrupted; name=mine-2 --resume goes on from the last checkpoint\n"
    assert interrupted("mine-2", "step-000005") == expected


def test_the_checkpoints_of_an_earlier_run_do_not_count(interrupted: Interrupted, tmp_path: Path) -> None:
    earlier_run(tmp_path / "mine")
    assert interrupted("mine-2") == "error: interrupted\n"


def test_another_command_has_nothing_to_resume(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def pressed(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ragen.config.environments.named", pressed)
    assert call(capsys, "envs", "bandit") == (130, "", "error: interrupted\n")
