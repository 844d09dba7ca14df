"""`ragen envs` on environments that cannot be played, print, or say what a terminal should not hear."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ragen.environments.registry import MAX_EXAMPLE_CHARS
from tests.support.command import call

DEADLY = "tests.support.deadly"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("LeavesEarly", "(no example: it cannot be played: SystemExit: bye)"),
        ("NumberForText", "(no example: it cannot be played: TypeError: "),
        ("NoArguments", f"(no example: environment '{DEADLY}:NoArguments' cannot be made: TypeError: "),
        ("RaisesWhenMade", f"(no example: environment '{DEADLY}:RaisesWhenMade' cannot be made: ValueError: no room for that)"),
    ],
)
def test_an_environment_that_cannot_be_played_is_shown_without_an_example(
    name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capsys, "envs", f"{DEADLY}:{name}")
    assert code == 0
    assert out.splitlines()[-1].startswith(says)


def test_a_config_that_is_none_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "envs", f"{DEADLY}:NoConfig")
    assert (code, out) == (2, "")
    assert err == f"error: environment '{DEADLY}:NoConfig': its Config must be a dataclass that subclasses TextEnvConfig\n"


def test_the_example_cuts_long_texts_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "envs", f"{DEADLY}:Enormous")
    assert f"\n{'x' * MAX_EXAMPLE_CHARS}\n[... {5_000_000 - MAX_EXAMPLE_CHARS} more characters]\n" in out


def test_control_characters_are_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "envs", f"{DEADLY}:Controls")
    assert r"\x1b[2J\x00\ud800 end" in out
    assert not {"\x1b", "\x00"} & set(out)


def test_what_the_environment_prints_does_not_spoil_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "envs", f"{DEADLY}:Talks", "--json")
    assert (code, json.loads(out)["name"]) == (0, f"{DEADLY}:Talks")
    assert "PRINTED" in err


def test_what_the_environment_prints_does_not_spoil_the_report() -> None:
    command = [sys.executable, "-m", "ragen", "envs", "check", f"{DEADLY}:Talks", "--seeds", "2", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    assert (result.returncode, report["ok"], report["environment"]) == (0, True, f"{DEADLY}:Talks")
    assert "PRINTED" in result.stderr


def test_an_environment_that_ends_its_process_is_exit_code_1_and_not_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "envs", "check", f"{DEADLY}:Exits", "--seeds", "2")
    assert code == 1
    (line,) = (line for line in out.splitlines() if " failed " in line and line.startswith("random agent"))
    assert line.endswith("the process died with exit code 7")
