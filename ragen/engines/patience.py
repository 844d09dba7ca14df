"""How a server is asked: one wait for every reason to wait, each with a deadline, and retries for what may pass.

The clients' own retries are switched off. They would not wait for one another: where one request is told to come back in ten
seconds, all others should stay away as long.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ragen.engines.server_config import ServerConfig
from ragen.errors import EngineFailure, RagenError, ServerError

T = TypeVar("T")

FIRST_WAIT_S = 0.5  # before the first retry; each further one waits twice as long


class TransientFault(RagenError):
    """A request failed for a reason that may pass. `retry_after_s` is the wait that the server asks for, if it says."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Patience:
    """Asks for every coroutine of an evaluation, within the limits of a ServerConfig.

    Until one answer has come, requests go one at a time: a wrong key or model costs one request, not one an episode.
    `clock` gives seconds, `sleep` waits for some, `jitter` is drawn from [0, 1) and spreads retries.
    """

    def __init__(
        self,
        config: ServerConfig,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self.num_retries = 0
        self._config = config
        self._name = name
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter or random.Random().random
        self._first = asyncio.Lock()
        self._has_answered = False
        self._next_at = 0.0  # when the rate lets the next request go
        self._closed_until = 0.0  # when the server lets itself be asked again

    async def ask(self, request: Callable[[], Awaitable[T]]) -> T:
        """The answer to `request`, asked as often as it takes and is allowed.

        Raises EngineFailure once the retries are used up, or ServerError if there never was an answer; what else `request`
        raises passes through.
        """
        if not self._has_answered:
            async with self._first:
                if not self._has_answered:
                    try:
                        answer = await self._ask(request)
                    except EngineFailure as failure:
                        raise ServerError(f"{failure}; nothing was answered yet, so the evaluation stops here") from failure
                    self._has_answered = True
                    return answer
        return await self._ask(request)

    async def _ask(self, request: Callable[[], Awaitable[T]]) -> T:
        for num_tries in range(1, self._config.max_retries + 2):
            await self._turn()
            try:
                async with asyncio.timeout(self._config.timeout_s):
                    return await request()
            except TransientFault as fault:
                reason, asked_s = str(fault), fault.retry_after_s
            except TimeoutError:
                reason, asked_s = f"no answer within server.timeout_s={self._config.timeout_s:g}", None
            if asked_s is not None and asked_s > self._config.max_wait_s:
                limit = f"server.max_wait_s={self._config.max_wait_s:g}"
                raise EngineFailure(f"{self._name}: {reason}; it asks to wait {asked_s:g} s, more than {limit}")
            if num_tries <= self._config.max_retries:
                self.num_retries += 1
                await self._back_off(num_tries, asked_s)
        times = "once" if num_tries == 1 else f"{num_tries} times"
        raise EngineFailure(f"{self._name}: {reason} (asked {times})")

    async def _turn(self) -> None:
        """Wait until the rate allows a request, and the server."""
        if self._config.requests_per_minute:
            at = max(self._clock(), self._next_at)
            self._next_at = at + 60 / self._config.requests_per_minute
            await self._until(at)
        while self._closed_until > self._clock():
            await self._until(self._closed_until)

    async def _back_off(self, num_tries: int, asked_s: float | None) -> None:
        """Half to the whole of a wait that doubles; where the server says how long, that, a little spread, and for everybody."""
        if asked_s is not None:
            self._closed_until = max(self._closed_until, self._clock() + asked_s)
            await self._sleep(asked_s * (1 + self._jitter() / 10))
        else:
            wait_s = min(self._config.max_wait_s, FIRST_WAIT_S * 2 ** (num_tries - 1))
            await self._sleep(wait_s * (1 + self._jitter()) / 2)

    async def _until(self, at: float) -> None:
        if (wait_s := at - self._clock()) > 0:
            await self._sleep(wait_s)
