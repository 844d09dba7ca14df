"""Ctrl-C and SIGTERM: the first asks a run to stop where nothing is lost, the second stops it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self, TypeVar

T = TypeVar("T")

FINISH, ABANDON = "finish", "abandon"
CHOICES = (FINISH, ABANDON)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Abandoned(Exception):
    """A rollout or an evaluation was given up because a stop was asked for; what it would have changed is unchanged."""


class StopNow(KeyboardInterrupt):
    """Stop at once. A KeyboardInterrupt, which no environment, tracker or event loop takes for a failure of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(named(number))
        self.exit_code = 128 + number


class Stop:
    """Whether the run was asked to stop, and by which signal.

    As a context manager it takes over Ctrl-C and SIGTERM; both are given back afterwards. Outside `may_wait`, where nothing could
    be finished or saved, the first signal already stops at once. A third one ends the process without any closing. Only the
    main thread of a process hears signals; elsewhere, and where the parent process has them ignored, nothing is taken over.
    """

    def __init__(self, on_signal: str = FINISH) -> None:
        assert on_signal in CHOICES, on_signal
        self.number: int | None = None
        self._abandons = on_signal == ABANDON
        self._may_wait = False
        self._running: asyncio.Task[Any] | None = None
        self._before: dict[int, Any] = {}

    @property
    def is_requested(self) -> bool:
        return self.number is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._heed)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    @contextmanager
    def may_wait(self) -> Iterator[None]:
        """Inside, the first signal is noted for whoever asks `is_requested`."""
        self._may_wait = True
        try:
            yield
        finally:
            self._may_wait = False
            self.number = None  # heeded, or come when all was done

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """asyncio.run, for what changes nothing before it is done. Raises Abandoned if a stop is asked for that does not wait."""

        task: asyncio.Task[Any] | None = None

        async def heeding() -> T:
            nonlocal task
            self._running = task = asyncio.current_task()
            try:
                if self._must_abandon:
                    self._cancel()
                return await coroutine
            finally:
                self._running = None

        try:
            return asyncio.run(heeding())
        except asyncio.CancelledError:
            assert self._must_abandon, "nobody else cancels what runs here"
            raise Abandoned from None
        finally:
            coroutine.close()  # where it was never begun
            if task is not None and task.done() and not task.cancelled():
                task.exception()  # taken note of: asyncio would report what has passed through here once more

    @property
    def _must_abandon(self) -> bool:
        return self.is_requested and self._abandons

    def _heed(self, number: int, frame: FrameType | None) -> None:
        """Runs on the main thread, between any two of its instructions."""
        if not self._may_wait or self.is_requested:
            for each in self._before:
                signal.signal(each, signal.SIG_DFL)
            raise StopNow(number)
        self.number = number
        what = "abandoning what is being played" if self._abandons else "finishing the step"
        _tell(f"\n{named(number)}: {what}, saving, stopping; once more stops at once\n")
        if self._must_abandon:
            self._cancel()

    def _cancel(self) -> None:
        if (task := self._running) is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)  # wakes a loop that waits


def named(number: int) -> str:
    """A signal as a person knows it."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def _tell(text: str) -> None:
    """Past Python's own buffers: the handler may have interrupted a write to them."""
    with suppress(OSError, ValueError, AttributeError):
        os.write(sys.__stderr__.fileno(), text.encode())  # type: ignore[union-attr]
