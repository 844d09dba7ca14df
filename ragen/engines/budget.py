"""What the replies of a server have used and cost, and whether another may be asked for under `server.max_cost`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ragen.engines.server_config import ServerConfig
from ragen.errors import BudgetSpent
from ragen.records import ChatMessage, Counted

# Tokens that a chat template writes around a prompt and around a message: more than any that we know of does.
_AROUND_PROMPT, _AROUND_MESSAGE = 64, 16


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Of every reply that came, those of episodes that were lost or given up afterwards included."""

    num_requests: int
    num_prompt_tokens: int
    num_sampled_tokens: int
    cost: float | None  # None: no prices are set

    def line(self) -> str:
        """For a person."""
        cost = "" if self.cost is None else f", cost {self.cost:.4f}"
        tokens = f"{self.num_prompt_tokens:,} prompt tokens, {self.num_sampled_tokens:,} sampled"
        return f"{self.num_requests:,} requests, {tokens}{cost}"


class Budget:
    """Counts the replies of one evaluation; `paid` are those of an earlier part of it, `on_paid` is told each further one.

    With `server.max_cost`, a request sets its highest possible cost aside before it goes, and what it did cost is counted when
    its reply has come. Where that does not fit beside what others have set aside, it waits for theirs to be settled.
    """

    def __init__(
        self, server: ServerConfig, *, paid: Iterable[Counted] = (), on_paid: Callable[[Counted], None] | None = None
    ) -> None:
        self._server = server
        self._on_paid = on_paid
        self._num_requests = self._num_prompt = self._num_sampled = 0
        for counted in paid:
            self._add(counted)
        self._open: list[float] = []  # what each request under way has set aside
        self._settled = asyncio.Event()  # the next time that one of them ends

    @property
    def usage(self) -> Usage:
        return Usage(
            num_requests=self._num_requests,
            num_prompt_tokens=self._num_prompt,
            num_sampled_tokens=self._num_sampled,
            cost=self._server.cost(self._num_prompt, self._num_sampled),
        )

    def pay(self, counted: Counted) -> None:
        """A reply has come."""
        self._add(counted)
        if self._on_paid is not None:
            self._on_paid(counted)

    @asynccontextmanager
    async def room_for(self, most: Counted) -> AsyncIterator[None]:
        """Wait until a request of at most so many tokens fits, and keep its place inside the block.

        Raises BudgetSpent if it does not fit although no other is under way.
        """
        cost = self._server.cost(most.num_prompt, most.num_sampled) or 0.0
        await self._until_it_fits(cost)
        self._open.append(cost)
        try:
            yield
        finally:
            self._open.remove(cost)
            self._settled.set()
            self._settled = asyncio.Event()

    async def _until_it_fits(self, cost: float) -> None:
        most = self._server.max_cost
        if most is None:
            return
        while (spent := self.usage.cost or 0.0) + sum(self._open) + cost > most:
            if not self._open:
                raise BudgetSpent(
                    f"server.max_cost={most:g}: {spent:.6g} is spent and the next reply may cost {cost:.6g}; raise it to go on"
                )
            await self._settled.wait()

    def _add(self, counted: Counted) -> None:
        self._num_requests += 1
        self._num_prompt += counted.num_prompt
        self._num_sampled += counted.num_sampled


def most_tokens(messages: Sequence[ChatMessage], max_new_tokens: int) -> Counted:
    """No request can count more: a tokenizer makes at most one token of a byte, and a chat template adds its marks."""
    num_bytes = sum(len(message.content.encode()) for message in messages)
    return Counted(num_prompt=num_bytes + _AROUND_PROMPT + _AROUND_MESSAGE * len(messages), num_sampled=max_new_tokens)
