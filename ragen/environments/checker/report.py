"""What the checks found: one line each, and whether all of it is good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    WARNED = "warned"  # within the contract, but a person should know
    SKIPPED = "skipped"  # there is nothing to check
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One promise of the contract, and whether it is kept."""

    check: str
    outcome: Outcome
    detail: str  # one line
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """All findings about one environment, in the order of the checks."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    num_seeds: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True if no check failed. A warning does not count against it."""
        return not self.of(Outcome.FAILED)

    def of(self, outcome: Outcome) -> tuple[Finding, ...]:
        """The findings that ended so."""
        return tuple(finding for finding in self.findings if finding.outcome is outcome)


class Verdict(Exception):
    """Raised inside a check to end it; passing is returning."""

    outcome = Outcome.FAILED


class Broken(Verdict):
    """A promise is not kept."""


class Weak(Verdict):
    """Kept, but worth a warning."""

    outcome = Outcome.WARNED


class NotApplicable(Verdict):
    """The environment does not have what the check is about."""

    outcome = Outcome.SKIPPED


def require(kept: bool, promise: str) -> None:
    """Raise Broken with the promise if it is not kept."""
    if not kept:
        raise Broken(promise)
