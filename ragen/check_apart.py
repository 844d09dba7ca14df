"""The checks in a process of their own, so that an environment that ends its process, or never comes back, is named as well.

The other process tells of itself in lines of JSON: which phase has begun, each finding, an error of the settings.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from ragen.config.environments import named, tags
from ragen.environments import registry
from ragen.environments.checker.report import Finding, Outcome, Report
from ragen.environments.checker.run import CHECKS, DEADLINE_S, NUM_SEEDS, check, total_seconds
from ragen.errors import ConfigError, EnvironmentFailure, RagenError

START_S = 60.0  # for the other process to start and import the environment
GRACE_S = 5.0  # beyond the time of all checks, which the other process keeps by itself unless something blocks it as a whole
_LISTEN_S = 0.2  # then look whether it lives: what it has started may hold its end of the pipe


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is checked. A tag promises that its budget suffices; a bare environment has no budget of its own."""

    name: str
    options: Mapping[str, Any]
    max_actions: int | None


def settings(name: str, options: Sequence[str]) -> Settings:
    """The environment behind a tag, registered name or module:Class, with KEY=VALUE options; made once, to see that it can be."""
    from ragen.config.evaluation import load_for_evaluation

    ((_, chosen),) = load_for_evaluation("tiny", None, names=[name], options=options).environments.items()
    budget = min(chosen.max_actions, chosen.max_turns * chosen.max_actions_per_turn) if name in tags() else None
    return Settings(name=chosen.name, options=chosen.options, max_actions=budget)


def check_apart(
    name: str,
    options: Sequence[str] = (),
    *,
    num_seeds: int = NUM_SEEDS,
    deadline_s: float = DEADLINE_S,
    on_finding: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """`check` of a tag, registered name or module:Class with KEY=VALUE options, in another process.

    What the environment prints comes out on stderr. One that ends the process fails the check under way, and the others are left
    out. Raises ConfigError if there is no such environment or option.
    """
    findings: list[Finding] = []
    chosen: Mapping[str, Any] = {"name": name, "options": {}}

    def take(finding: Finding) -> None:
        findings.append(finding)
        on_finding(finding)

    limits = {"loading": START_S, "making": deadline_s, "checking": total_seconds(num_seeds) + GRACE_S}
    question = {"name": name, "options": list(options), "num_seeds": num_seeds, "deadline_s": deadline_s}
    try:
        with _asked(question) as child:
            for message in _messages(child, limits):
                if "finding" in message:
                    take(_finding(message["finding"]))
                else:
                    chosen = message.get("settings", chosen)
    except _Lost as lost:
        for number, title in enumerate(list(CHECKS)[len(findings) :]):
            outcome, detail = (Outcome.SKIPPED, f"left out: {lost.afterwards}") if number else (Outcome.FAILED, str(lost))
            take(Finding(check=title, outcome=outcome, detail=detail, seconds=0.0))
    return Report(name=chosen["name"], options=chosen["options"], num_seeds=num_seeds, findings=tuple(findings))


class _Lost(Exception):
    """The other process has died or does not come back; `afterwards` is why nothing more is asked."""

    def __init__(self, fault: str, afterwards: str) -> None:
        super().__init__(fault)
        self.afterwards = afterwards


class _Child:
    """The other process and what it says, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, name="check apart", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)

    def hear(self, until: float) -> Any:
        """The next message, or None if there is none by then. Raises _Lost if the process has ended without one."""
        while time.monotonic() < until:
            if ended := self._process.poll() is not None:
                self._listener.join(_LISTEN_S)  # for its last words
            with suppress(queue.Empty):
                return json.loads(self._lines.get(timeout=0.001 if ended else _LISTEN_S))
            if ended:
                raise _Lost(f"the process died with {_death(self._process.returncode)}", "the process died")
        return None

    def end(self) -> None:
        """End it and its group."""
        with suppress(ProcessLookupError, PermissionError):  # the second: macOS, of a group that has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join(_LISTEN_S)


def _messages(child: _Child, limits: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """What the other process tells, each phase within its limit. Raises _Lost, and the errors of settings that it tells of."""
    phase, until = "loading", time.monotonic() + limits["loading"]
    while phase != "done":
        message = child.hear(until)
        if message is None:
            raise _Lost(f"did not answer within {limits[phase]:g} s", "the environment hangs")
        if "error" in message:
            kind = ConfigError if message["exit_code"] == ConfigError.exit_code else EnvironmentFailure
            raise kind(message["error"])
        if "phase" in message:
            phase = message["phase"]
            until = time.monotonic() + limits.get(phase, 0.0)
        yield message


@contextmanager
def _asked(question: Mapping[str, Any]) -> Iterator[_Child]:
    """Start the other process, and end it with all that it has started."""
    code = f"import sys; from {__name__} import answer; answer(sys.argv[1])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(question)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # Ctrl-C is for this process, which then ends the other
    )
    child = _Child(process)
    try:
        yield child
    finally:
        child.end()


def answer(question: str) -> None:
    """The other process: check, and tell of it on what was its stdout; prints of the environment go to stderr."""
    asked = json.loads(question)
    told = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def tell(**message: Any) -> None:
        told.write(json.dumps(message) + "\n")

    try:
        registry.load(named(asked["name"])[1]["name"])
        tell(phase="making")
        chosen = settings(asked["name"], asked["options"])
        tell(phase="checking", settings=asdict(chosen))
        check(
            chosen.name,
            chosen.options,
            num_seeds=asked["num_seeds"],
            max_actions=chosen.max_actions,
            deadline_s=asked["deadline_s"],
            on_finding=lambda finding: tell(finding=asdict(finding)),
        )
        tell(phase="done")
    except RagenError as error:
        tell(error=str(error), exit_code=error.exit_code)


def _finding(told: Mapping[str, Any]) -> Finding:
    return Finding(check=told["check"], outcome=Outcome(told["outcome"]), detail=told["detail"], seconds=told["seconds"])


def _death(returncode: int) -> str:
    return f"exit code {returncode}" if returncode >= 0 else f"signal {signal.Signals(-returncode).name}"
