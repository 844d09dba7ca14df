"""Ctrl-C and SIGTERM: the first is noted, the second ends at once; real signals, sent to this very process."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from typing import Any

import pytest

from ragen.training.signals import Abandoned, Stop, StopNow

BOTH = (signal.SIGINT, signal.SIGTERM)


async def ring(number: int, then: float = 0.0) -> str:
    """Is interrupted by a signal and then waits."""
    signal.raise_signal(number)
    await asyncio.sleep(then)
    return "played to its end"


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_noted_and_the_second_stops_at_once(number: int) -> None:
    with Stop() as stop, stop.may_wait():
        assert not stop.is_requested
        signal.raise_signal(number)
        assert stop.number == number
        with pytest.raises(StopNow) as stopped:
            signal.raise_signal(number)
    assert stopped.value.exit_code == {signal.SIGINT: 130, signal.SIGTERM: 143}[signal.Signals(number)]


@pytest.mark.parametrize("number", BOTH)
def test_where_nothing_could_be_saved_the_first_signal_stops_at_once(number: int) -> None:
    with Stop("abandon") as stop:
        with stop.may_wait():
            pass
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


@pytest.mark.parametrize("number", BOTH)
def test_after_the_second_signal_the_third_is_the_system_s_own(number: int) -> None:
    """Closing may hang, too; nothing on the disk depends on it."""
    with Stop():
        with pytest.raises(StopNow):
            signal.raise_signal(number)
        assert [signal.getsignal(each) for each in BOTH] == [signal.SIG_DFL, signal.SIG_DFL]


def test_what_is_played_is_finished_or_abandoned_as_configured() -> None:
    with Stop("finish") as stop, stop.may_wait():
        assert stop.run(ring(signal.SIGTERM)) == "played to its end"
        assert stop.run(ring_not()) == "played"
    with Stop("abandon") as stop, stop.may_wait():
        with pytest.raises(Abandoned):
            stop.run(ring(signal.SIGTERM, then=3600.0))
        with pytest.raises(Abandoned):  # asked before it began
            stop.run(ring_not())


async def ring_not() -> str:
    await asyncio.sleep(0)
    return "played"


def test_an_event_loop_that_waits_is_woken() -> None:
    """The signal comes while nothing but a far timer is due."""

    async def sleeps() -> None:
        threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGINT]).start()
        await asyncio.sleep(3600)

    with Stop("abandon") as stop, stop.may_wait(), pytest.raises(Abandoned):
        stop.run(sleeps())


def test_a_second_signal_breaks_off_what_is_being_finished(caplog: pytest.LogCaptureFixture) -> None:
    """And says so once: asyncio has nothing to add."""
    closed = []

    async def plays() -> None:
        try:
            await ring(signal.SIGINT)
            await ring(signal.SIGINT)
        finally:
            closed.append(True)

    with Stop("finish") as stop, stop.may_wait(), pytest.raises(StopNow):
        stop.run(plays())
    assert closed == [True]
    gc.collect()
    assert caplog.messages == []


def test_the_handlers_of_before_are_given_back() -> None:
    def theirs(number: int, frame: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, theirs)
    try:
        with Stop(), pytest.raises(StopNow):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) is theirs
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_the_parent_has_ignored_stays_ignored() -> None:
    """As a shell does with Ctrl-C for what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Stop() as stop:
            signal.raise_signal(signal.SIGINT)
            assert not stop.is_requested
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_leaves_the_signals_alone() -> None:
    seen: list[Any] = []

    def in_thread() -> None:
        with Stop() as stop:
            seen.append((signal.getsignal(signal.SIGINT), stop.run(ring_not())))

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert seen == [(signal.default_int_handler, "played")]
