"""A run that stands still is ended, with the stacks of all its threads in the log.

A sign of life is anything the display hears: a line, a finished trajectory, trained samples, bytes of a download; and every
decode step of the engine. A run without any for the limit is taken for stuck: a thread of its own writes what every thread was
doing and ends the process, without asking the stuck part for anything. Where that thread cannot run either, because compiled code
holds on to the interpreter, a timer of the C runtime does the same a little later.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

EXIT_CODE = 4  # of a run that stood still
CHECKS = 4  # looks at the clock per limit; the C timer is set anew at each, to ring a whole limit later


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
        self._heard = clock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def alive(self) -> None:
        """A sign of life."""
        self._heard = self._clock()

    def __enter__(self) -> Self:
        if self._limit_s > 0:
            self.alive()
            started = threading.Event()
            self._thread = threading.Thread(target=self._watch, args=(started,), name="watchdog", daemon=True)
            self._thread.start()
            started.wait()  # what holds on to the interpreter from the first moment must not come before the timer is set
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, started: threading.Event) -> None:
        try:
            with self._log.open("a", encoding="utf-8") as log:
                while not self._closed.is_set():
                    faulthandler.dump_traceback_later(self._limit_s, exit=True, file=log)
                    started.set()
                    if self._clock() - self._heard > self._limit_s:
                        self._bark(log.fileno())
                        return
                    self._closed.wait(self._limit_s / CHECKS)
        finally:
            faulthandler.cancel_dump_traceback_later()
            started.set()

    def _bark(self, log: int) -> None:
        """Say what happened and what every thread is doing, then end the process."""
        text = f"error: no sign of life for {self._limit_s:g} s (trainer.stall_timeout_s); what every thread was doing follows"
        for descriptor in (log, _stderr()):
            os.write(descriptor, f"\n{text}{self._advice and f'; {self._advice}'}\n".encode())
            faulthandler.dump_traceback(descriptor, all_threads=True)
        os.fsync(log)
        self._end(EXIT_CODE)


def _stderr() -> int:
    """The process's own, whatever sys.stderr has been replaced by."""
    return sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
