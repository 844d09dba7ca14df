"""Running the checks: each on its own copies, with a deadline, so that whatever an environment does ends as one line."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ragen.environments.checker import answers, lifecycle, randomness
from ragen.environments.checker.gymnasium_api import gymnasium_api
from ragen.environments.checker.oracle import oracle
from ragen.environments.checker.report import Finding, Outcome, Report, Verdict
from ragen.environments.checker.subject import Subject, task_seeds
from ragen.environments.printable import printable
from ragen.errors import ConfigError, EnvironmentFailure, RagenError, boundary

Check = Callable[[Subject], str]

NUM_SEEDS = 20
DEADLINE_S = 10.0  # for one answer of the environment
TOTAL_S, TOTAL_S_PER_SEED = 60.0, 3.0  # for all checks together: the larger of the two

# Name -> (check, the check that must not have failed before). In the order in which a person mends things.
CHECKS: Mapping[str, tuple[Check, str]] = {
    "make": (answers.make, ""),
    "reset": (answers.reset, "make"),
    "random agent": (answers.random_agent, "reset"),
    "answers": (answers.answers, "random agent"),
    "end flags": (answers.flags, "answers"),
    "text size": (answers.text_size, "answers"),
    "action names": (answers.action_names, "random agent"),
    "determinism": (randomness.determinism, "text size"),  # comparing huge texts takes long
    "history": (randomness.history, "determinism"),
    "task seed": (randomness.task_seed, "determinism"),
    "dynamics seed": (randomness.dynamics_seed, "determinism"),
    "global randomness": (randomness.global_randomness, "random agent"),
    "other process": (randomness.other_process, "determinism"),
    "order of calls": (lifecycle.order_of_calls, "random agent"),
    "close": (lifecycle.close, "reset"),
    "copies": (lifecycle.copies, "determinism"),
    "gymnasium": (gymnasium_api, "text size"),
    "oracle": (oracle, "answers"),
    "speed": (lifecycle.speed, "answers"),
}
# What takes longer than all the others together; tests of many environments leave it out.
_THOROUGH = frozenset({"other process", "speed"})


def check(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    num_seeds: int = NUM_SEEDS,
    max_actions: int | None = None,
    thorough: bool = True,
    deadline_s: float = DEADLINE_S,
    total_s: float | None = None,
    on_finding: Callable[[Finding], None] | None = None,
) -> Report:
    """Check the environment `name` with `options` against the contract; `num_seeds` >= 1 initial states are played.

    `on_finding` hears of each finding as it comes; `thorough` also starts another process and measures the speed. With
    `max_actions` the oracle has to solve it within so many. One that takes longer than `deadline_s` for an answer hangs:
    its thread is left behind and nothing more is asked of it; so it is after `total_s` (default: `total_seconds`) for all
    checks. Raises ConfigError if it cannot be made with these options.
    """
    findings = []
    patience = Patience(deadline_s, total_seconds(num_seeds) if total_s is None else total_s)
    for finding in _findings(_chosen(thorough), name, options or {}, num_seeds, max_actions, patience):
        findings.append(finding)
        if on_finding is not None:
            on_finding(finding)
    return Report(name=name, options=dict(options or {}), num_seeds=num_seeds, findings=tuple(findings))


def check_environment(
    name: str, options: Mapping[str, Any] | None = None, *, num_seeds: int = 5, max_actions: int | None = None
) -> None:
    """Raise EnvironmentFailure with the first promise that is broken; ConfigError if the environment cannot be made."""
    for finding in _findings(_chosen(False), name, options or {}, num_seeds, max_actions, Patience(DEADLINE_S, math.inf)):
        if finding.outcome is Outcome.FAILED:
            raise EnvironmentFailure(f"environment {name!r} breaks its contract: {finding.check}: {finding.detail}")


def total_seconds(num_seeds: int) -> float:
    """How long all checks together may take."""
    return max(TOTAL_S, TOTAL_S_PER_SEED * num_seeds)


class Patience:
    """How long an environment is waited for: `deadline_s` for one answer, `total_s` from now on for everything."""

    def __init__(self, deadline_s: float, total_s: float) -> None:
        self.deadline_s = deadline_s
        self.total_s = total_s
        self._until = time.monotonic() + total_s

    def left_s(self, subject: Subject) -> float:
        """Seconds until it ends, if the environment does not answer before; not positive when it has ended."""
        return min(self.deadline_s - subject.idle_s, self._until - time.monotonic())

    def reproach(self, subject: Subject) -> tuple[str, str]:
        """(what to say of the check during which it ended, why the later ones are left out)."""
        if subject.idle_s > self.deadline_s:
            return f"did not answer within {self.deadline_s:g} s", "the environment hangs"
        return f"not finished: {self.total_s:g} s for all checks together are over; fewer seeds take less", "the time is over"


def _chosen(thorough: bool) -> list[str]:
    return [title for title in CHECKS if thorough or title not in _THOROUGH]


def _findings(
    chosen: Iterable[str], name: str, options: Mapping[str, Any], num_seeds: int, max_actions: int | None, patience: Patience
) -> Iterator[Finding]:
    if num_seeds < 1:
        raise ConfigError(f"seeds={num_seeds}: must be at least 1")
    subject = Subject(name, options, task_seeds(num_seeds), max_actions)
    lost: set[str] = set()  # checks that failed, or that were left out because of one
    given_up = ""  # why nothing more is asked
    for title in chosen:
        promise, needs = CHECKS[title]
        if given_up or needs in lost:
            lost.add(title)
            reason = f"left out: {given_up}" if given_up else f"left out: needs {needs!r}"
            yield Finding(check=title, outcome=Outcome.SKIPPED, detail=reason, seconds=0.0)
            continue
        began = time.monotonic()
        finding = _watched(title, promise, subject, patience)
        if finding is None:
            detail, given_up = patience.reproach(subject)
            finding = Finding(check=title, outcome=Outcome.FAILED, detail=detail, seconds=time.monotonic() - began)
        if finding.outcome is Outcome.FAILED:
            lost.add(title)
        yield finding


def _watched(title: str, promise: Check, subject: Subject, patience: Patience) -> Finding | None:
    """Make one check in a thread of its own; None if the patience with the environment ends.

    Nothing ends a thread from outside, so it is a daemon: the process can go without it.
    """
    results: list[Finding | ConfigError] = []
    subject.touch()
    thread = threading.Thread(target=lambda: results.append(_judged(title, promise, subject)), name=f"check {title}", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(max(0.01, patience.left_s(subject)))
        if thread.is_alive() and patience.left_s(subject) < 0:
            return None
    (result,) = results
    if isinstance(result, ConfigError):
        raise result
    return result


def _judged(title: str, promise: Check, subject: Subject) -> Finding | ConfigError:
    """What came of one check; a ConfigError of `make` is the settings' fault, not the environment's."""
    started = time.monotonic()
    outcome = Outcome.PASSED
    try:
        try:
            with randomness.global_states_kept(), boundary(EnvironmentFailure, title):
                try:
                    detail = promise(subject)
                except Verdict as verdict:
                    outcome, detail = verdict.outcome, str(verdict)
        finally:
            subject.close()
    except RagenError as error:
        if isinstance(error, ConfigError) and title == "make":
            return error
        outcome, detail = Outcome.FAILED, str(error).removeprefix(f"{title}: ")
    except BaseException as error:  # KeyboardInterrupt and the like: a real Ctrl-C reaches the main thread only, never this one
        outcome, detail = Outcome.FAILED, f"it raised {type(error).__name__}: {str(error) or 'no message'}"
    return Finding(check=title, outcome=outcome, detail=printable(" ".join(detail.split())), seconds=time.monotonic() - started)
