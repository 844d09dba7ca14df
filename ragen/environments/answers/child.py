"""A helper process for libraries that must not run beside the trainer: slow to import, unbounded on hostile text, or careless
with global random generators.

The parent sends one JSON line per task and reads one back. A task that overruns its limit ends the helper, which watches itself
from a thread of the C runtime, so that even one huge multiplication cannot hold it; the next task starts another. The helper runs
under a fixed hash seed: what it answers depends on the request alone.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from ragen.errors import ConfigError, EnvironmentFailure, RagenError, boundary

Handlers = Mapping[str, Callable[..., Any]]

START_LIMIT_S = 120.0  # importing the library, on a slow disk
MAX_MEMORY = 4 << 30  # bytes of address space, where the system can limit them
_ERRORS = {error.__name__: error for error in (ConfigError, EnvironmentFailure)}


class ChildLost(EnvironmentFailure):
    """The helper ended before it answered: the task overran its limit, or crashed the process."""


class Child:
    """A process that runs `python -m module`, whose main is `serve`. Started when first asked; shared by all threads."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):  # a forked process must not share the pipes
            os.register_at_fork(after_in_child=self._forget)

    def ask(self, task: str, arguments: Mapping[str, Any], *, limit_s: float) -> Any:
        """The answer, as JSON gives it. Raises what the handler raised (ConfigError or EnvironmentFailure), or ChildLost."""
        request = json.dumps({"task": task, "arguments": dict(arguments), "limit_s": limit_s})
        with self._lock:
            line = self._exchange(request)
        if line is None:
            raise ChildLost(f"{self._module}: no answer to {task!r} within {limit_s:g} s")
        reply = json.loads(line)
        if "error" in reply:
            raise _ERRORS[reply["error"]](reply["message"])
        return reply["value"]

    def close(self) -> None:
        """End the helper. The next task starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:  # closes the pipes and waits
                pass

    def _exchange(self, request: str) -> str | None:
        whole = False
        try:
            process = self._process = self._process or _start(self._module)
            stdin, stdout = process.stdin, process.stdout
            assert stdin is not None and stdout is not None, "both are pipes"
            stdin.write(request + "\n")
            stdin.flush()
            line = stdout.readline()
            whole = line.endswith("\n")
        except BrokenPipeError:
            pass
        finally:
            if not whole:  # also when interrupted: an answer that nobody reads must not be taken for the next one
                self.close()
        return line if whole else None

    def _forget(self) -> None:
        self._process, self._lock = None, threading.Lock()


def _start(module: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    fixed = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | fixed,
        start_new_session=True,  # Ctrl-C is for the parent; the helper ends when its input does
    )


def serve(load: Callable[[], Handlers]) -> None:
    """The helper's main: answer requests until the input ends. `load` imports the library and gives a handler per task."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # a library that prints must not write into the replies
        _limit_memory()
        handlers: Handlers | None = None
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if handlers is None:
                    with boundary(EnvironmentFailure, "import"), _ended_after(START_LIMIT_S, nowhere):
                        handlers = load()
                with boundary(EnvironmentFailure, request["task"]), _ended_after(request["limit_s"], nowhere):
                    reply = json.dumps({"value": handlers[request["task"]](**request["arguments"])})
            except RagenError as error:
                reply = json.dumps({"error": type(error).__name__, "message": str(error)})
            replies.write(reply + "\n")
            replies.flush()


@contextmanager
def _ended_after(limit_s: float, nowhere: IO[str]) -> Iterator[None]:
    """End this process if the code inside takes longer, whatever it does: the watch is not a Python thread."""
    faulthandler.dump_traceback_later(limit_s, exit=True, file=nowhere)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
