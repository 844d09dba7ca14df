"""What is made of the looks at a process: numbers worked by hand. A short run of the real thing is in the documentation."""

from __future__ import annotations

import pytest

from ragen.errors import TrainingError
from ragen.faults.soak import Sample, SoakReport, _memory_kib, summarise


def looks(*, kib_per_step: float = 0.0, handles: tuple[int, int] = (12, 12), steps: int = 100) -> list[Sample]:
    """One a step; memory falls from a peak in the first fifth, which is warm-up, then grows evenly."""
    return [
        Sample(
            step=step,
            memory_kib=900_000 if step < steps // 5 else 400_000 + kib_per_step * step,
            num_handles=handles[0] if step < steps // 2 else handles[1],
            num_threads=6,
        )
        for step in range(1, steps)
    ]


def report(samples: list[Sample]) -> SoakReport:
    return summarise(samples, steps=100, seconds=1.0, failed_frac=0.02, lost_workers=1)


def test_memory_that_stands_still_after_the_warm_up_is_flat() -> None:
    found = report(looks())
    assert (found.ok, found.kib_per_step) == (True, pytest.approx(0, abs=1e-6))
    assert found.memory_mib == (400_000 / 1024, 400_000 / 1024)
    assert found.lines()[-1] == "flat"


def test_a_few_kib_in_every_step_are_a_leak() -> None:
    found = report(looks(kib_per_step=5.0))
    assert (found.ok, found.kib_per_step) == (False, pytest.approx(5.0))
    assert found.lines()[-1] == "it grows"


def test_handles_that_are_not_closed_are_a_leak() -> None:
    assert report(looks(handles=(12, 14))).ok
    assert not report(looks(handles=(12, 15))).ok


def test_a_run_that_was_hardly_seen_says_so() -> None:
    with pytest.raises(TrainingError, match="seen 3 times after its warm-up"):
        report(looks()[:22])


def test_memory_is_what_was_written_to_whether_it_is_in_memory_or_swapped_out() -> None:
    """Of /proc/PID/status as proc(5) has it; the pages of mapped files (RssFile) are the system's to drop."""
    status = (
        "Name:\tpython\nVmRSS:\t     700 kB\nRssAnon:\t     500 kB\nRssFile:\t     200 kB\nVmSwap:\t      30 kB\nThreads:\t9\n"
    )
    assert _memory_kib(status) == 530
