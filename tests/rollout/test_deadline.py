"""Deadlines of calls in the same thread."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from ragen.rollout.deadline import EnvironmentTimeout, Stopwatch


@pytest.fixture(autouse=True)
def _alarm_unchanged() -> Iterator[None]:
    """Whatever happens in a call, the handler of the alarm is what it was, and so is its timer (pytest-timeout's own)."""
    handler, (left_s, _) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    yield
    assert signal.getsignal(signal.SIGALRM) is handler
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == (left_s > 0)


def stubborn(until_s: float) -> None:
    """Somebody's retry loop, for at most that long."""
    end = time.monotonic() + until_s
    while time.monotonic() < end:
        with suppress(Exception):
            time.sleep(until_s)


def test_a_call_in_time_is_the_call_itself() -> None:
    watch = Stopwatch()
    assert watch.call(5.0, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        watch.call(5.0, divmod, 7, 0)
    assert 0 < watch.seconds < 5


def test_seconds_add_up_over_calls() -> None:
    watch = Stopwatch()
    for _ in range(2):
        watch.call(5.0, time.sleep, 0.02)
    assert watch.seconds >= 0.04


@pytest.mark.parametrize("overdue", [time.sleep, stubborn])
def test_an_overdue_call_is_broken_off_even_if_it_swallows_every_exception(overdue: Any) -> None:
    watch = Stopwatch()
    started = time.monotonic()
    with pytest.raises(EnvironmentTimeout, match=r"^no answer within 0\.05 s$"):
        watch.call(0.05, overdue, 60.0)
    assert time.monotonic() - started < 30  # nowhere near what the call would have taken
    assert 0.05 <= watch.seconds < 30


def test_code_that_swallows_the_alarm_once_is_broken_off_by_the_next() -> None:
    def retries_once() -> None:
        try:
            time.sleep(60)
        except BaseException:
            time.sleep(60)

    with pytest.raises(EnvironmentTimeout):
        Stopwatch().call(0.05, retries_once)


def test_an_overrun_that_was_not_broken_off_counts_when_the_call_returns() -> None:
    def swallows_all() -> str:
        with suppress(BaseException):
            time.sleep(60)
        return "done at last"

    with pytest.raises(EnvironmentTimeout):
        Stopwatch().call(0.05, swallows_all)


def test_off_the_main_thread_the_overrun_counts_when_the_call_returns() -> None:
    seen: list[BaseException] = []

    def work() -> None:
        try:
            Stopwatch().call(0.01, time.sleep, 0.05)
        except EnvironmentTimeout as timeout:
            seen.append(timeout)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [str(timeout) for timeout in seen] == ["no answer within 0.01 s"]


@pytest.fixture
def rung() -> Iterator[list[int]]:
    """How often somebody else's alarm has rung; theirs in place of pytest-timeout's, which comes back afterwards."""
    rings: list[int] = []
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    handler = signal.signal(signal.SIGALRM, lambda signum, frame: rings.append(signum))
    yield rings
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


def test_somebody_elses_timer_goes_on_with_the_time_that_is_left(rung: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 50, 7)
    Stopwatch().call(5.0, time.sleep, 0.1)
    left_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
    assert 40 < left_s <= 49.9
    assert interval_s == 7
    assert rung == []


def test_an_alarm_of_somebody_else_that_falls_due_meanwhile_comes_right_after(rung: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    Stopwatch().call(5.0, time.sleep, 0.1)
    time.sleep(0.1)
    assert rung == [signal.SIGALRM]


def test_without_anybody_elses_timer_none_is_left_running(rung: list[int]) -> None:
    with pytest.raises(EnvironmentTimeout):
        Stopwatch().call(0.02, time.sleep, 60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert rung == []
