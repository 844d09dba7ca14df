"""Requests to the torch engine, and the order in which they are let in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragen.engines.stopping import StopMatcher
from ragen.records import Completion, Sampling


@dataclass(kw_only=True, eq=False)
class Request:
    """One reply that somebody waits for."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    uniforms: NDArray[np.float64]
    matcher: StopMatcher
    answer: asyncio.Future[Completion]
    ran_out_alone: bool = False  # memory did, though nothing else was being sampled

    def longest_behind(self, prompt: tuple[int, ...]) -> int:
        """Tokens that may stand behind a prompt which this request begins with."""
        return len(self.prompt_ids) - len(prompt) + self.sampling.max_new_tokens


class Queue:
    """Those who wait. Conversations that go on come before new ones, each kind in its order.

    So episodes are played to their end before others begin, and of many hundred no more are under way than run together: what is
    kept between their turns stays small, and is there when they go on.
    """

    def __init__(self) -> None:
        self._going_on: deque[Request] = deque()
        self._new: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._going_on) + len(self._new)

    def __iter__(self) -> Iterator[Request]:
        yield from self._going_on
        yield from self._new

    def push(self, request: Request, *, goes_on: bool) -> None:
        (self._going_on if goes_on else self._new).append(request)

    def push_back(self, requests: Iterable[Request]) -> None:
        """Those who were being served, in their order: they come before all that wait."""
        self._going_on.extendleft(reversed(list(requests)))

    def first(self) -> Request:
        return self._line[0]

    def pop(self) -> Request:
        return self._line.popleft()

    def clear(self) -> None:
        self._going_on.clear()
        self._new.clear()

    @property
    def _line(self) -> deque[Request]:
        return self._going_on or self._new
