"""Ctrl-C and other signals: one line, an exit code of its own, and how to go on only where there is something to go on from."""

from __future__ import annotations

import signal
import sys
from types import SimpleNamespace

import pytest

from ragen.errors import Stopped
from ragen.training.signals import StopNow
from tests.support.command import call


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a training that ends with `error`."""

    def train(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "ragen.run", SimpleNamespace(train=train))
    return call(capsys, "train", "bandit", "name=mine")


def test_a_run_that_stopped_when_asked_says_so_and_has_the_code_of_the_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = Stopped("SIGTERM: stopped after 1 of 2 steps", exit_code=143)
    assert ended(monkeypatch, capsys, error) == (143, "", "error: SIGTERM: stopped after 1 of 2 steps\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_was_broken_off_has_the_code_of_the_signal_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    error = StopNow(number)
    assert ended(monkeypatch, capsys, error) == (code, "", "error: interrupted\n")
    error.add_note("ragen train runs/mine --resume goes on from the last checkpoint")
    expected = "error: interrupted; ragen train runs/mine --resume goes on from the last checkpoint\n"
    assert ended(monkeypatch, capsys, error) == (code, "", expected)


def test_another_command_has_nothing_to_resume(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def pressed(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ragen.config.environments.named", pressed)
    assert call(capsys, "envs", "bandit") == (130, "", "error: interrupted\n")


@pytest.mark.parametrize("named", ["40", "runs/mine/checkpoints/step-000040"])
def test_a_checkpoint_can_be_named_and_reaches_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    """Bug-log row 81: what is asked for is passed on, in every way in which it can be asked for, or refused."""
    asked: list[object] = []

    def train(config: object, *, resume: object, console: object) -> SimpleNamespace:
        asked.append(resume)
        return SimpleNamespace(to_json=dict)

    monkeypatch.setitem(sys.modules, "ragen.run", SimpleNamespace(train=train))
    for tokens in (["--resume-from", named, "bandit"], ["bandit", f"--resume-from={named}"], ["bandit", "--resume"], ["bandit"]):
        assert call(capsys, "train", *tokens)[0] == 0
    assert asked == [named, named, True, False]
    for setting in ("resume=true", "trainer.resume=true", "resume_from=40"):
        code, _, err = call(capsys, "train", "bandit", setting)
        assert code == 2
        assert "there is no key" in err
