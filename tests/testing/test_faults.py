"""Every published fault that is planted in a copy of our code is found, and nothing is found where none is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragen.environments.checker.report import Outcome, Report
from tests.support.faults import FAULTS, Fault, planted
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "algorithms" / "invariants.md"
IDS = [f"{fault.row}: {fault.what}" for fault in FAULTS]


def found_by(report: Report) -> str:
    return ", ".join(finding.check for finding in report.of(Outcome.FAILED))


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_a_published_fault_is_found_and_the_page_says_by_what(fault: Fault, tmp_path: Path) -> None:
    """The row of the page is what comes out here."""
    with planted(fault.edits, tmp_path, "with_fault") as load:
        checks = found_by(fault.check(load))
    assert checks, "nobody noticed"
    assert f"| {fault.row} | {fault.what} | {checks} |" in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_the_same_code_without_the_fault_is_clean(fault: Fault, tmp_path: Path) -> None:
    with planted((), tmp_path, "without_fault") as load:
        report = fault.check(load)
    assert found_by(report) == ""
