"""A run that stands still is ended with its stacks in the log; one that moves, however slowly, is not."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ragen.errors import ConfigError
from ragen.training.config import TrainerConfig
from ragen.training.watchdog import EXIT_CODE, Watchdog
from tests.support.pages import ROOT


class Clock:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_who_stands_still_is_ended_and_what_every_thread_did_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = threading.Event()
    codes: list[int] = []
    clock, log = Clock(), tmp_path / "log.txt"
    log.write_text("before\n")

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    with Watchdog(0.2, log, advice="resume it", end=end, clock=clock):
        stuck_here(ended, clock)
    assert codes == [EXIT_CODE] == [4]
    text = log.read_text()
    assert text.startswith("before\n\nerror: no sign of life for 0.2 s (trainer.stall_timeout_s); what every thread")
    assert "; resume it\n" in text
    assert re.search(r"Current thread.*\n.*in dump_traceback|in _bark", text)
    assert "in stuck_here" in text
    assert "in stuck_here" in capfd.readouterr().err


def stuck_here(ended: threading.Event, clock: Clock) -> None:
    for _ in range(6000):
        clock.now += 0.01
        if ended.wait(0.01):
            return
    raise AssertionError("it was never ended")


def test_signs_of_life_keep_it_quiet(tmp_path: Path) -> None:
    """A hundred limits pass, with a sign in each."""
    clock, codes = Clock(), []
    with Watchdog(0.05, tmp_path / "log.txt", end=codes.append, clock=clock) as dog:
        for _ in range(100):
            clock.now += 0.04
            dog.alive()
            threading.Event().wait(0.001)
    assert codes == []
    assert (tmp_path / "log.txt").read_text() == ""


def test_a_clock_that_jumps_ahead_is_a_pause_and_no_silence(tmp_path: Path) -> None:
    """A day with every look, and no sign of life."""
    codes: list[int] = []
    looks: list[None] = []

    def jumping() -> float:
        looks.append(None)
        return 86400.0 * len(looks)

    with Watchdog(0.05, tmp_path / "log.txt", end=codes.append, clock=jumping):
        while len(looks) < 20:
            threading.Event().wait(0.01)
    assert codes == []


def test_nothing_is_watched_without_a_limit(tmp_path: Path) -> None:
    before = threading.active_count()
    with Watchdog(0, tmp_path / "log.txt") as dog:
        dog.alive()
        assert threading.active_count() == before
    assert not (tmp_path / "log.txt").exists()


def test_its_thread_is_gone_afterwards(tmp_path: Path) -> None:
    before = threading.active_count()
    with Watchdog(60, tmp_path / "log.txt"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


LIMIT = "trainer.stall_timeout_s"
STUCK = """
import re, sys, time
from pathlib import Path
from ragen.training.watchdog import Watchdog
with Watchdog({limit_s}, Path(sys.argv[1])):
    {how}
"""


@pytest.mark.parametrize(
    ("how", "limit_s", "code"),
    [
        ("time.sleep(60)", 0.3, EXIT_CODE),
        # A regular expression that takes for ever and never lets another thread run: no Python code could end it.
        ("re.match('(a*)*b', 'a' * 40)", 1.0, -signal.SIGKILL),
    ],
    ids=["waits", "holds on to the interpreter"],
)
def test_the_process_itself_ends(tmp_path: Path, how: str, limit_s: float, code: int) -> None:
    log = tmp_path / "log.txt"
    command = [sys.executable, "-c", STUCK.format(how=how, limit_s=limit_s), str(log)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    text = log.read_text()
    assert 'File "<string>", line 6 in <module>' in text
    assert LIMIT in text
    assert "; what every thread was doing follows" in text
    assert LIMIT in done.stderr


WORKS = """
import re, sys, time
from pathlib import Path
from ragen.training.watchdog import Watchdog
with Watchdog(0.5, Path(sys.argv[1])) as dog:
    print("up", flush=True)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        dog.alive()
        time.sleep(0.01)
"""


def test_a_process_that_was_paused_goes_on(tmp_path: Path) -> None:
    """Stopped for six limits, as by Ctrl-Z or a scheduler that suspends jobs."""
    log = tmp_path / "log.txt"
    with subprocess.Popen([sys.executable, "-c", WORKS, str(log)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 0, log.read_text()
    assert log.read_text() == ""


def test_a_killed_process_leaves_no_sentry_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKS, str(tmp_path / "log.txt")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
        assert process.communicate(timeout=60) == ("", "")  # the sentry holds on to stderr as long as it lives


def test_a_limit_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^trainer\.stall_timeout_s=-1: must be at least 0 \(0: never\)$"):
        TrainerConfig(stall_timeout_s=-1).check()
