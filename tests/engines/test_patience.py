"""Waits and retries, under a clock that only sleeping moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ragen.engines.patience import Patience, TransientFault
from ragen.engines.server_config import ServerConfig
from ragen.errors import EngineFailure, ServerError
from tests.support.servers import FakeTime

Request = Callable[[], Coroutine[Any, Any, str]]


def patient(time: FakeTime, jitter: float = 0.0, **config: Any) -> Patience:
    return Patience(ServerConfig(**config), "it", clock=time.clock, sleep=time.sleep, jitter=lambda: jitter)


def failing(*faults: Exception) -> Request:
    """Raises these in turn, then answers."""
    remaining = list(faults)

    async def request() -> str:
        if remaining:
            raise remaining.pop(0)
        return "answer"

    return request


def test_each_retry_waits_twice_as_long_up_to_the_limit() -> None:
    """Half of 0.5, 1, 2, then of 3, the limit: without jitter a wait is half of its longest."""
    time = FakeTime()
    patience = patient(time, max_wait_s=3, max_retries=4)
    faults = [TransientFault("HTTP 500: no")] * 4
    assert asyncio.run(patience.ask(failing(*faults))) == "answer"
    assert time.sleeps == [0.25, 0.5, 1.0, 1.5]
    assert patience.num_retries == 4


def test_jitter_spreads_a_wait_up_to_its_whole() -> None:
    time = FakeTime()
    asyncio.run(patient(time, jitter=0.5).ask(failing(TransientFault("x"))))
    assert time.sleeps == [0.375]


def test_a_server_that_says_how_long_to_wait_is_left_alone_at_least_so_long() -> None:
    time = FakeTime()
    asyncio.run(patient(time, jitter=0.5).ask(failing(TransientFault("x", 7.0))))
    assert time.sleeps == [pytest.approx(7.35)]


def test_others_stay_away_as_long_as_one_is_told_to() -> None:
    """The second request is made at second 1, when the first has been told to come back in 10 seconds."""
    time = FakeTime()
    patience = patient(time)
    begun: list[float] = []

    async def ask_twice() -> None:
        await patience.ask(failing())  # an answer, so that requests may overlap
        release = asyncio.Event()

        async def sleep(seconds: float) -> None:
            if seconds >= 10:
                await release.wait()
            time.now += seconds

        patience._sleep = sleep
        first = asyncio.create_task(patience.ask(failing(TransientFault("x", 10.0))))
        await asyncio.sleep(0)
        time.now, patience._sleep = 1.0, time.sleep

        async def second() -> str:
            begun.append(time.now)
            return "answer"

        await patience.ask(second)
        release.set()
        await first

    asyncio.run(ask_twice())
    assert begun == [10.0]


def test_a_wait_that_is_too_long_is_a_failure_at_once() -> None:
    time = FakeTime()

    async def ask() -> None:
        patience = patient(time, max_wait_s=60)
        await patience.ask(failing())
        await patience.ask(failing(TransientFault("HTTP 429: slow down", 3600.0)))

    with pytest.raises(EngineFailure, match=r"it: HTTP 429: slow down; it asks to wait 3600 s, more than server\.max_wait_s=60"):
        asyncio.run(ask())
    assert time.sleeps == []


def test_once_retries_are_used_up_the_request_has_failed() -> None:
    async def ask() -> None:
        patience = patient(FakeTime(), max_retries=2)
        await patience.ask(failing())
        await patience.ask(failing(*[TransientFault("HTTP 502: no")] * 3))

    with pytest.raises(EngineFailure, match=r"^it: HTTP 502: no \(asked 3 times\)$"):
        asyncio.run(ask())


def test_a_server_that_never_answers_stops_everything() -> None:
    with pytest.raises(ServerError, match=r"it: HTTP 502: no \(asked 2 times\); nothing was answered yet"):
        asyncio.run(patient(FakeTime(), max_retries=1).ask(failing(*[TransientFault("HTTP 502: no")] * 2)))


def test_until_one_answer_has_come_requests_go_one_at_a_time() -> None:
    at_once: list[int] = []
    running = 0

    async def request() -> str:
        nonlocal running
        running += 1
        at_once.append(running)
        for _ in range(9):
            await asyncio.sleep(0)
        running -= 1
        return "answer"

    async def ask_all() -> None:
        patience = patient(FakeTime())
        await asyncio.gather(*(patience.ask(request) for _ in range(4)))

    asyncio.run(ask_all())
    assert at_once[0] == 1
    assert max(at_once) == 3  # the other three, once the first is back


def test_a_refusal_is_not_asked_again() -> None:
    time = FakeTime()
    with pytest.raises(ServerError, match="HTTP 401"):
        asyncio.run(patient(time).ask(failing(ServerError("HTTP 401: no"))))
    assert time.sleeps == []


def test_requests_keep_the_distance_that_the_rate_asks_for() -> None:
    """30 a minute: one every 2 seconds."""
    time = FakeTime()
    begun: list[float] = []

    async def request() -> str:
        begun.append(time.now)
        return "answer"

    async def ask_thrice() -> None:
        patience = patient(time, requests_per_minute=30)
        for _ in range(3):
            await patience.ask(request)

    asyncio.run(ask_thrice())
    assert begun == [0.0, 2.0, 4.0]


def test_a_request_that_trickles_on_for_ever_is_given_up() -> None:
    """The deadline is of the whole request, not of each byte."""

    async def request() -> str:
        while True:
            await asyncio.sleep(0.001)

    with pytest.raises(ServerError, match=r"no answer within server\.timeout_s=0\.02 \(asked once\)"):
        asyncio.run(patient(FakeTime(), timeout_s=0.02, max_retries=0).ask(request))
