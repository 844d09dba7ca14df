"""A thread or a process that runs environments, as seen from here: one request at a time, each with a deadline.

Both serve the same loop (worker_loop.py). A worker that hangs or dies is lost for good; its successor carries on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

from ragen.errors import EnvironmentFailure
from ragen.rollout.deadline import overdue
from ragen.rollout.worker_loop import Episodes, Method, Reply, Request, serve

START_S = 60.0  # a process imports Python, numpy and Gymnasium before it can be asked anything
EXIT_S = 5.0  # between the end of a process's work and the end of the process

# Not multiprocessing's own start methods: those run the script that was started once more, with all that it imports.
_BOOT = "import sys; fd, sys.path[:] = int(sys.argv[1]), sys.argv[2:]; from ragen.rollout.worker_loop import main; main(fd)"


class Worker(Protocol):
    is_lost: bool  # hung, dead or killed: of no more use

    def ask(self, request: Request, timeout_s: float) -> Reply:
        """Raises EnvironmentTimeout or EnvironmentFailure if the worker is lost over it."""

    def holds(self, episode: int) -> bool:
        """Whether the episode runs here, so that it can be played on."""

    def successor(self) -> Worker | None:
        """What takes the place of a lost worker, with the episodes that could be saved; None if there are none."""

    def stop(self) -> None:
        """Have every environment closed and the worker end. Waits for that, or for `kill`."""

    def kill(self) -> None:
        """Stop waiting for it at once, from any thread."""


class ThreadWorker:
    """A daemon thread. One that hangs cannot be ended: it is left behind, and closes its environment should it ever come back."""

    def __init__(self, episodes: Episodes) -> None:
        self.is_lost = False
        self._episodes = episodes
        self._asked = -1  # the episode of the last request
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._replies: SimpleQueue[Reply] = SimpleQueue()
        Thread(target=serve, args=(episodes, self._requests.get, self._replies.put), name="environments", daemon=True).start()

    def ask(self, request: Request, timeout_s: float) -> Reply:
        self._asked = request.episode
        self._requests.put(request)
        try:
            return self._replies.get(timeout=timeout_s)
        except Empty:
            self.is_lost = True
            raise overdue(timeout_s) from None

    def holds(self, episode: int) -> bool:
        return episode in self._episodes

    def successor(self) -> ThreadWorker:
        others = self._episodes.split_off(self._asked)
        self._requests.put(None)
        return ThreadWorker(others)

    def stop(self) -> None:
        if not self.is_lost:
            self._requests.put(None)
            self._replies.get()

    def kill(self) -> None:
        self.is_lost = True
        self._requests.put(None)
        self._replies.put(None)


class ProcessWorker:
    """A Python process of its own, with the same working directory and import path, in a session of its own.

    It ends with this one, however that ends: its end of the pipe is closed.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """`name` must be portable (environments/registry.py). Raises EnvironmentFailure if the process does not come up."""
        self.is_lost = False
        self._held: set[int] = set()
        self._pipe, theirs = Pipe()
        with theirs:
            fd = theirs.fileno()
            command = [sys.executable, "-c", _BOOT, str(fd), *(path or os.getcwd() for path in sys.path)]
            self._process = subprocess.Popen(command, pass_fds=[fd], stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            self._exchange((name, dict(options)), START_S)
        except EnvironmentFailure as failure:
            self.stop()
            raise EnvironmentFailure(f"a worker process could not be started: {failure}") from failure

    def ask(self, request: Request, timeout_s: float) -> Reply:
        reply: Reply = self._exchange(request, timeout_s)
        if request.method is Method.BEGIN:
            self._held.add(request.episode)
        elif request.method is Method.CLOSE:
            self._held.discard(request.episode)
        return reply

    def _exchange(self, message: Any, timeout_s: float) -> Any:
        try:
            self._pipe.send(message)
            if self._pipe.poll(timeout_s):
                return self._pipe.recv()
        except (EOFError, OSError):
            raise EnvironmentFailure(f"the worker process died: {self._exit_status()}") from None
        self.kill()
        raise overdue(timeout_s)

    def holds(self, episode: int) -> bool:
        return episode in self._held and not self.is_lost

    def successor(self) -> None:
        self.stop()  # collects what the system keeps of it

    def stop(self) -> None:
        with suppress(OSError, EOFError):
            self._pipe.send(None)
            while True:
                self._pipe.recv()  # until its end is closed
        self._exit_status()
        self._pipe.close()

    def kill(self) -> None:
        self.is_lost = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # whatever it has started itself goes with it

    def _exit_status(self) -> str:
        """How it ended. It has closed its end of the pipe, so it is about to."""
        self.is_lost = True
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_S)
        self.kill()
        code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
