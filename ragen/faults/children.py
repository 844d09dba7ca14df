"""Training in child processes that may be killed. They are forked from a process that has imported everything, so one takes
no longer than its steps."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from ragen.config.schema import Config
from ragen.errors import ConfigError, RagenError
from ragen.run import train

CRASHED = 70  # of a child that raised what is not an error of ours: a bug
POLL_S = 0.002


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a child ended. `code` is its exit code, negative the signal that killed it; `said` its error in one line."""

    code: int
    seconds: float
    said: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


def check_system() -> None:
    """Raise ConfigError where processes cannot be forked."""
    if not hasattr(os, "fork"):
        raise ConfigError(f"faults: needs a system that can fork processes, such as Linux; this is {sys.platform}")


def run_child(
    config: Config,
    said: Path,
    *,
    resume: bool = False,
    before: Callable[[], None] = lambda: None,
    kill_after_s: float | None = None,
    watch: Callable[[int], None] | None = None,
) -> Ending:
    """Train in a child process and wait for its end.

    `before` runs in the child first. The child is killed after `kill_after_s`; `watch` is called with its process id meanwhile.
    `said` is a file for its error.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    said.unlink(missing_ok=True)
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(config, said, resume, before)  # never returns
    try:
        code = _wait(pid, started, kill_after_s, watch)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    text = said.read_text(encoding="utf-8") if said.exists() else ""
    return Ending(code=code, seconds=time.monotonic() - started, said=text)


def _wait(pid: int, started: float, kill_after_s: float | None, watch: Callable[[int], None] | None) -> int:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if kill_after_s is not None and time.monotonic() - started >= kill_after_s:
            os.kill(pid, signal.SIGKILL)
            kill_after_s = None
        if watch is not None:
            watch(pid)
        time.sleep(POLL_S)


def _child(config: Config, said: Path, resume: bool, before: Callable[[], None]) -> None:
    """Train, write down what went wrong, and leave without any closing of the parent's."""
    code = CRASHED
    try:
        torch.set_num_threads(1)  # small as these models are, threads that wait for each other take many times as long
        before()
        train(config, resume=resume, console=Console(file=io.StringIO(), width=120))
        code = 0
    except RagenError as error:
        said.write_text(str(error), encoding="utf-8")
        code = error.exit_code
    except BaseException:  # a bug: the parent tells of it
        said.write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)
