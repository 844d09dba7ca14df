"""A deadline for a call in the same thread."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from ragen.errors import EnvironmentFailure

T = TypeVar("T")


class EnvironmentTimeout(EnvironmentFailure):
    """An environment did not answer in time. Ends one trajectory, never the step."""


def overdue(timeout_s: float) -> EnvironmentTimeout:
    """What is raised of a call that took longer than `timeout_s`."""
    return EnvironmentTimeout(f"no answer within {timeout_s:.3g} s")


class Stopwatch:
    """Makes calls with a deadline; `seconds` is the time spent in all of them so far.

    On the main thread an alarm breaks an overdue call off as soon as the interpreter runs again; what computes or waits for ever
    inside a C library is never broken off. Elsewhere the overrun is noticed when the call returns, and counts all the same.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_armed = False

    def call(self, timeout_s: float, function: Callable[..., T], *args: Any) -> T:
        """function(*args). Raises EnvironmentTimeout if that takes longer than `timeout_s` (> 0)."""
        started = time.perf_counter()
        try:
            result = self._with_alarm(timeout_s, function, args) if _can_alarm() else function(*args)
        finally:
            taken = time.perf_counter() - started
            self.seconds += taken
        if taken > timeout_s:
            raise overdue(timeout_s)
        return result

    def _with_alarm(self, timeout_s: float, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        """A process has one alarm, and somebody else may be using it: handler and timer are put back as they were.

        An alarm of theirs that falls due during the call comes right after it.
        """
        # It rings again and again: code that swallows even a BaseException may do so once, in a retry.
        their_s, their_interval_s = signal.setitimer(signal.ITIMER_REAL, timeout_s, timeout_s)
        started = time.monotonic()
        their_handler = signal.signal(signal.SIGALRM, self._ring)
        try:
            try:
                self._is_armed = True
                return function(*args)
            finally:
                self._is_armed = False
        except _Overdue:
            raise overdue(timeout_s) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL if their_handler is None else their_handler)
            if their_s:
                left_s = their_s - (time.monotonic() - started)
                signal.setitimer(signal.ITIMER_REAL, max(left_s, 1e-6), their_interval_s)

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        if self._is_armed:
            raise _Overdue


class _Overdue(BaseException):
    """Raised inside an overdue call. Not an Exception: somebody's `except Exception` in a retry loop must not swallow it."""


def _can_alarm() -> bool:
    return threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
