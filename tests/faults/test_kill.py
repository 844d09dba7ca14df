"""The suite in short: real kills of real processes, and a fault planted in our own code that it has to find."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragen.cli.main import main
from ragen.config.load import load
from ragen.errors import TrainingError
from ragen.faults import kill as module
from ragen.faults.children import Ending
from ragen.faults.operations import deal
from tests.support.models import tiny_llama
from tests.support.pages import ROOT

# The command itself, in processes apart: it forks, and a test runner has threads. What takes seconds to import is imported once,
# by a process that forks for each line of arguments.
SUITES = """
import json, os, sys
import ragen.faults.disk, ragen.faults.kill
from ragen.cli.main import main

for line in sys.stdin:
    planted, out, err, *words = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, path in ((0, os.devnull), (1, out), (2, err)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
        exec(planted)
        main(["faults", *words])
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Suite = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("said")
    with subprocess.Popen(
        [sys.executable, "-c", SUITES], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run(*words: str, planted: str = "") -> subprocess.CompletedProcess[str]:
            out, err = (Path(tempfile.mkstemp(dir=folder)[1]) for _ in range(2))
            process.stdin.write(json.dumps([planted, str(out), str(err), *words, "--json"]) + "\n")
            return subprocess.CompletedProcess(words, int(process.stdout.readline()), out.read_text(), err.read_text())

        yield run
        process.stdin.close()


def model() -> str:
    return f"model.name={tiny_llama()}"


@pytest.mark.timeout(600)
def test_runs_that_are_killed_and_resumed_come_out_the_same(suite: Suite, tmp_path: Path) -> None:
    """Bug-log rows 73, 77, 78 and 82: kill -9 at random operations and moments. Nothing is left behind of runs that went well."""
    done = suite("kill", model(), "--kills", "3", "--seed", "3", "--folder", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["num_kills"], report["lost"], report["different"]) == (3, [], [])
    assert report["num_operations"] > 100
    assert sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()) == ["unbroken"]


FORGETS_THE_OPTIMISER = """
from ragen.training.update import Learner
Learner.load_optimizer_state = lambda self, tensors, *, num_optimizer_steps: None
"""


@pytest.mark.timeout(600)
def test_a_fault_in_resuming_is_found(suite: Suite) -> None:
    """Bug-log row 77: optimiser state that is saved but not put back."""
    done = suite("kill", model(), "--kills", "4", "--seed", "13", planted=FORGETS_THE_OPTIMISER)
    assert done.returncode == 1, done.stdout + done.stderr
    (told, *_) = json.loads(done.stdout)["different"]
    assert re.match(r"killed-\d+: killed (at file operation|after) .*; differs in ", told)
    assert "trainer/optimizer.safetensors" in told or "update/" in told


def ends(code: int, said: str = "") -> Ending:
    return Ending(code=code, seconds=1.0, said=said)


def test_what_cannot_be_resumed_is_lost_and_its_story_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are played: the run that is let be, then one that is killed and does not come back."""
    endings = iter([ends(0), ends(-9), ends(70, "a traceback")])
    monkeypatch.setattr(module, "run_child", lambda *args, **kwargs: next(endings))
    monkeypatch.setattr(module, "MAX_KILLS", 1)
    (tmp_path / module.OPERATIONS).write_text("open a\nrename b\n")
    report = module.kill_and_resume(load("bandit_tiny"), tmp_path, num_kills=1)
    assert (report.num_kills, report.ok, report.different) == (1, False, [])
    (told,) = report.lost
    assert re.fullmatch(r"killed-001: killed (at file operation|after) .*; then exit code 70: a traceback", told)


def test_a_run_that_does_not_end_by_itself_is_not_worth_killing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_child", lambda *args, **kwargs: ends(2, "model.name: no"))
    with pytest.raises(TrainingError, match=r"does not end even if nobody kills it \(exit code 2\): model\.name: no"):
        module.kill_and_resume(load("bandit_tiny"), tmp_path, num_kills=1)


@pytest.mark.timeout(600)
def test_a_disk_that_refuses_ends_the_run_in_one_line_and_loses_nothing(suite: Suite) -> None:
    """Bug-log row 74: full, read-only, forbidden, at random operations; and really, in the middle of a write."""
    done = suite("disk", model(), "--times", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["num_refusals"] == 3
    assert "files that may not be large: 0 rude, 0 lost, 0 different" in done.stderr


def test_every_operation_is_dealt_before_any_for_the_second_time() -> None:
    dealt = deal(5, 12, random.Random(0))
    assert sorted(dealt[:5]) == sorted(dealt[5:10]) == [1, 2, 3, 4, 5]
    assert len(dealt) == 12
    assert dealt[:5] != [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["kill", "--kills", "0"], "--kills=0: must be at least 1"),
        (["disk", "--times", "0"], "--times=0: must be at least 1"),
        (["soak", "5"], "steps=5: must be at least 20, or there is no slope to speak of"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["faults", *words])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"error: {line}\n"


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(SystemExit) as left:
        main(["faults", "kill", model(), "--folder", str(tmp_path)])
    assert left.value.code == 1
    assert "must be empty" in capsys.readouterr().err
