"""A run that stands still is ended, with the stacks of all its threads in the log.

A sign of life is anything the display hears: a line, a finished trajectory, trained samples, bytes of a download; and every
decode step of the engine. A run without any for the limit is taken for stuck: a thread of its own writes what every thread was
doing and ends the process, without asking the stuck part for anything. Where that thread cannot run either, because compiled code
holds on to the interpreter, a process beside this one does the same (sentry.py). Time in which the process was paused (Ctrl-Z, a
job that its scheduler suspends, a frozen container) does not count: it is looks that are counted, not the clock.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from ragen.training import sentry

EXIT_CODE = 4  # of a run that stood still
CHECKS = 4  # looks at the clock per limit
LATE = 2  # a look that comes after more than two looks' time was held up by a pause of the whole process, and does not count


class Watchdog:
    """`with Watchdog(...) as dog:`, and `dog.alive()` at every sign of life, from any thread. A limit of 0 watches nothing."""

    def __init__(
        self,
        limit_s: float,
        log: Path,
        *,
        advice: str = "",
        end: Callable[[int], object] = os._exit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The stacks are appended to `log` and go to stderr; `advice` is how to go on. `end` is called with EXIT_CODE."""
        self._limit_s = limit_s
        self._log = log
        self._advice = advice
        self._end = end
        self._clock = clock
        self._num_signs = 0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def alive(self) -> None:
        """A sign of life."""
        self._num_signs += 1  # two threads at once may count one: a sign all the same

    def __enter__(self) -> Self:
        if self._limit_s > 0:
            started = threading.Event()
            self._thread = threading.Thread(target=self._watch, args=(started,), name="watchdog", daemon=True)
            self._thread.start()
            started.wait()  # what holds on to the interpreter from the first moment must not come before the sentry is up
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, started: threading.Event) -> None:
        try:
            with self._log.open("a", encoding="utf-8") as log, _Sentry(self._limit_s, self._log, log) as guard:
                started.set()
                look_s = self._limit_s / CHECKS
                silent_s, num_signs, looked = 0.0, self._num_signs, self._clock()
                while not self._closed.wait(look_s):
                    now = self._clock()
                    silent_s += now - looked if now - looked <= LATE * look_s else 0.0
                    looked = now
                    if num_signs != self._num_signs:
                        silent_s, num_signs = 0.0, self._num_signs
                    if silent_s > self._limit_s:
                        self._bark(log.fileno())
                        return
                    guard.tell()
        finally:
            started.set()

    def _bark(self, log: int) -> None:
        """Say what happened and what every thread is doing, then end the process."""
        text = f"error: no sign of life for {self._limit_s:g} s (trainer.stall_timeout_s); what every thread was doing follows"
        for descriptor in (log, _stderr()):
            os.write(descriptor, f"\n{text}{self._advice and f'; {self._advice}'}\n".encode())
            faulthandler.dump_traceback(descriptor, all_threads=True)
        os.fsync(log)
        self._end(EXIT_CODE)


class _Sentry:
    """The process that watches the interpreter, where the system has the signals for it; it hears from `tell`."""

    def __init__(self, limit_s: float, path: Path, log: IO[str]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not hasattr(signal, "SIGUSR2"):
            return
        faulthandler.register(signal.SIGUSR2, file=log, all_threads=True)
        # Twice as many ticks as looks: one that comes late is not missed.
        words = [sys.executable, "-I", "-S", sentry.__file__, str(os.getpid()), str(2 * CHECKS), str(limit_s / CHECKS), str(path)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            faulthandler.unregister(signal.SIGUSR2)

    def tell(self) -> None:
        """The interpreter runs."""
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):  # somebody ended it: the run goes on without
                os.write(self._process.stdin.fileno(), b".")


def _stderr() -> int:
    """The process's own, whatever sys.stderr has been replaced by."""
    return sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
