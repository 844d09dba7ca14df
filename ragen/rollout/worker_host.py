"""Environments in threads or processes beside the event loop.

Every worker has an attendant: a thread that asks it one thing at a time, watches the deadline and replaces it when it hangs or
dies. So requests flow on while the event loop is busy with a decode step, and nobody waits for another worker's environment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from ragen.environments import registry
from ragen.errors import EnvironmentFailure
from ragen.rollout.answers import Answer
from ragen.rollout.environment_config import THREAD, EnvironmentConfig
from ragen.rollout.episode import Beginning
from ragen.rollout.worker_loop import Episodes, Fault, Method, Reply, Request
from ragen.rollout.workers import ProcessWorker, ThreadWorker, Worker

T = TypeVar("T")

NUM_THREADS = 16  # where `num_workers` is null: threads mostly wait for others, so there may be more than cores

_log = logging.getLogger(__name__)


class WorkerHost:
    """The environments of one tag, dealt out evenly to `num_workers` workers that start when they are first needed."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config
        self._lanes: list[Lane] = []
        self._num_seats = 0
        self._losses: list[str] = []  # why; every attendant appends to it

    @property
    def num_lost(self) -> int:
        return len(self._losses)

    @property
    def num_workers(self) -> int:
        """How many there may be."""
        per_core = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self._config.num_workers or (NUM_THREADS if self._config.runs_in == THREAD else per_core)

    def seat(self) -> WorkerSeat:
        if len(self._lanes) < self.num_workers:
            self._lanes.append(Lane(self._start, self._count_loss))
        lane = min(self._lanes, key=lambda lane: lane.num_seats)
        lane.num_seats += 1
        self._num_seats += 1
        return WorkerSeat(lane, number=self._num_seats)

    def close(self) -> None:
        """Every environment is closed, or its worker given up for lost, when the deadline of a step has passed."""
        lanes, self._lanes = self._lanes, []
        try:
            for lane in lanes:
                lane.end()
            wait([lane.ended for lane in lanes if lane.ended is not None], timeout=self._config.step_timeout_s)
        finally:
            for lane in lanes:
                lane.give_up()

    def _start(self) -> Worker:
        name, options = self._config.name, self._config.options
        if self._config.runs_in == THREAD:
            return ThreadWorker(Episodes(name, options))
        return ProcessWorker(registry.portable_name(name), options)

    def _count_loss(self, why: str) -> None:
        self._losses.append(why)
        what = f"environment {self._config.name!r}: a worker {self._config.runs_in} was lost and replaced"
        _log.warning("%s, number %d so far: %s", what, self.num_lost, why)


class Lane:
    """One worker and its attendant, the thread in which `ask`, `holds` and all that seats submit is run."""

    def __init__(self, start: Callable[[], Worker], on_loss: Callable[[str], None]) -> None:
        self.num_seats = 0  # episodes that are not closed
        self.ended: Future[None] | None = None  # done when all is closed; set when nothing more is taken on
        self._start = start
        self._on_loss = on_loss
        self._worker: Worker | None = None
        self._is_given_up = False
        self._attendant = ThreadPoolExecutor(max_workers=1, thread_name_prefix="attendant")

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Have the attendant call function(*args) when it is through with what it was asked before."""
        return self._attendant.submit(function, *args)

    def holds(self, number: int) -> bool:
        """Whether the episode runs in the present worker."""
        return self._worker is not None and self._worker.holds(number)

    def ask(self, request: Request, timeout_s: float) -> tuple[Reply, float]:
        """The reply and the seconds it took. Raises EnvironmentFailure; a worker that is lost over it is replaced."""
        worker = self._worker = self._worker or self._start()
        if self._is_given_up:
            raise EnvironmentFailure("its worker was given up")
        started = time.perf_counter()
        try:
            reply = worker.ask(request, timeout_s)
        except EnvironmentFailure as failure:
            if not self._is_given_up:
                self._worker = worker.successor()
                self._on_loss(str(failure))
            raise
        if isinstance(reply, Fault):
            raise EnvironmentFailure(reply.reason)
        return reply, time.perf_counter() - started

    def end(self) -> None:
        """Have the worker stopped when the attendant is through; called from outside, as is the next."""
        self.ended = self._attendant.submit(self._stop)
        self._attendant.shutdown(wait=False)

    def give_up(self) -> None:
        """Wait no longer for what is not done by now."""
        if self.ended is None or not self.ended.done():
            self._is_given_up = True
            if self._worker is not None:
                self._worker.kill()
        self._attendant.shutdown(wait=True)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()


class WorkerSeat:
    """An episode in a worker. It remembers what was played, and plays it again if the worker is lost to another episode."""

    def __init__(self, lane: Lane, number: int) -> None:
        self.seconds = 0.0
        self._lane = lane
        self._number = number
        self._seeds = (0, 0)
        self._played: list[str] = []
        self._last: Reply = None

    async def begin(self, task_seed: int, dynamics_seed: int, timeout_s: float) -> Beginning:
        self._seeds = (task_seed, dynamics_seed)
        return await asyncio.wrap_future(self._lane.submit(self._begin, timeout_s))

    async def play(self, action: str, timeout_s: float) -> Answer:
        return await asyncio.wrap_future(self._lane.submit(self._play, action, timeout_s))

    def close(self, timeout_s: float, warn: Callable[[str], None]) -> None:
        if self._lane.ended is None:  # else the host is closing every environment itself
            self._lane.num_seats -= 1
            self._lane.submit(self._close, timeout_s, warn)

    def _begin(self, timeout_s: float) -> Beginning:
        self._last = beginning = self._ask(Method.BEGIN, self._seeds, timeout_s)
        assert isinstance(beginning, Beginning), beginning
        return beginning

    def _play(self, action: str, timeout_s: float) -> Answer:
        if not self._lane.holds(self._number):
            self._rebuild(timeout_s)
        answer = self._ask(Method.PLAY, (action,), timeout_s)
        assert isinstance(answer, Answer), answer
        self._played.append(action)
        self._last = answer
        return answer

    def _rebuild(self, timeout_s: float) -> None:
        """Play everything again in the new worker. What seeds and actions do not decide alone cannot be rebuilt."""
        seconds = self.seconds
        try:
            last = self._ask(Method.BEGIN, self._seeds, timeout_s)
            for action in self._played:
                last = self._ask(Method.PLAY, (action,), timeout_s)
        except EnvironmentFailure as failure:
            raise EnvironmentFailure(f"it does not replay after its worker was lost to another episode: {failure}") from failure
        if last != self._last:
            raise EnvironmentFailure(
                "it does not replay after its worker was lost to another episode: the same seeds and actions give another answer"
            )
        self.seconds = seconds  # the second time is not the environment's own

    def _close(self, timeout_s: float, warn: Callable[[str], None]) -> None:
        try:
            if self._lane.holds(self._number):
                self._ask(Method.CLOSE, (), timeout_s)
        except EnvironmentFailure as failure:
            warn(str(failure))

    def _ask(self, method: Method, args: tuple[Any, ...], timeout_s: float) -> Reply:
        reply, seconds = self._lane.ask(Request(self._number, method, args), timeout_s)
        self.seconds += seconds
        return reply
