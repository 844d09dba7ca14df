"""What a worker does: environments by number, requests in, replies out. Also the main program of a worker process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ragen.rollout.answers import Answer
from ragen.rollout.episode import Beginning, Episode, reason


class Method(StrEnum):
    BEGIN = "begin"
    PLAY = "play"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Request:
    """A method of Episode, for the episode of this number."""

    episode: int
    method: Method
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """The environment raised, or answered nonsense: why, in one line."""

    reason: str


Reply = Beginning | Answer | Fault | None


class Episodes:
    """The episodes of one worker."""

    def __init__(self, name: str, options: Mapping[str, Any], running: dict[int, Episode] | None = None) -> None:
        self._name = name
        self._options = options
        self._running = {} if running is None else running

    def __contains__(self, number: int) -> bool:
        return number in self._running

    def split_off(self, number: int) -> Episodes:
        """All episodes but one, which alone stays here."""
        others = {key: self._running.pop(key) for key in list(self._running) if key != number}
        return Episodes(self._name, self._options, others)

    def answer(self, request: Request) -> Reply:
        """Do what is asked for. Whatever the environment raises becomes a Fault: in a worker there is nobody else to raise."""
        number = request.episode
        try:
            match request.method:
                case Method.BEGIN:
                    self._running[number] = episode = Episode(self._name, self._options)
                    return episode.begin(*request.args)
                case Method.PLAY:
                    return self._running[number].play(*request.args)
                case Method.CLOSE:
                    self._running.pop(number).close()
                    return None
        except BaseException as cause:
            return Fault(reason(cause))

    def close(self) -> None:
        """Close every environment, each of them whatever the others raise."""
        while self._running:
            self.answer(Request(next(iter(self._running)), Method.CLOSE))


def serve(episodes: Episodes, receive: Callable[[], Request | None], send: Callable[[Reply], None]) -> None:
    """Answer requests until there is a None instead; then close every environment and answer None, too."""
    while (request := receive()) is not None:
        send(episodes.answer(request))
    episodes.close()
    send(None)


def main(fd: int) -> None:
    """Serve over the pipe: first (name, options) of the environment, answered by None, then requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, which then ends it
    pipe = Connection(fd)
    name, options = pipe.recv()
    pipe.send(None)
    requests: SimpleQueue[Request | None] = SimpleQueue()
    Thread(target=_receive, args=(pipe, requests), daemon=True).start()
    serve(Episodes(name, options), requests.get, pipe.send)


def _receive(pipe: Connection, requests: SimpleQueue[Request | None]) -> None:
    """Hand on what comes, and end the process, whatever it is doing, once the other side is gone."""
    with suppress(EOFError, OSError):
        while True:
            requests.put(pipe.recv())
    os._exit(1)
