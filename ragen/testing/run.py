"""Running checks: each by itself, so that whatever the code under test does ends as one line."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ragen.environments.checker.report import Finding, Outcome, Report, Verdict
from ragen.errors import RagenError, TrainingError, boundary

Subject = TypeVar("Subject")
Checks = Mapping[str, Callable[[Subject], str]]  # title -> a check that raises a Verdict, or says in a few words what it saw
OnFinding = Callable[[Finding], None]

NUM_SEEDS = 4  # random rollouts per check


def run_checks(
    subject: Subject,
    checks: Iterable[tuple[str, Callable[[Subject], str]]],
    *,
    name: str,
    options: Mapping[str, Any] | None = None,
    on_finding: OnFinding | None = None,
) -> Report:
    """All findings, in order. `on_finding` hears of each as it comes."""
    findings = []
    for title, check in checks:
        finding = _judged(title, check, subject)
        findings.append(finding)
        if on_finding is not None:
            on_finding(finding)
    return Report(name=name, options=dict(options or {}), num_seeds=NUM_SEEDS, findings=tuple(findings))


def _judged(title: str, check: Callable[[Subject], str], subject: Subject) -> Finding:
    started = time.monotonic()
    outcome = Outcome.PASSED
    try:
        with warnings.catch_warnings(), boundary(TrainingError, title):
            warnings.simplefilter("ignore", RuntimeWarning)  # of numpy, about numbers that the check is about to report itself
            try:
                detail = check(subject)
            except Verdict as verdict:
                outcome, detail = verdict.outcome, str(verdict)
    except RagenError as error:
        outcome, detail = Outcome.FAILED, str(error).removeprefix(f"{title}: ")
    return Finding(check=title, outcome=outcome, detail=" ".join(detail.split()), seconds=time.monotonic() - started)


def require_kept(report: Report) -> None:
    """Raise TrainingError with the first promise that is broken."""
    for finding in report.of(Outcome.FAILED):
        raise TrainingError(f"{report.name} breaks an invariant: {finding.check}: {finding.detail}")
