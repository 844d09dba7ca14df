"""What of a failed step is contained, what is a bug, and how far the number of rows goes down."""

from __future__ import annotations

import logging

import pytest
import torch

from ragen.engines.failures import RowLimit, failure_of


@pytest.mark.parametrize(
    ("error", "out_of_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\nmore lines"), False),
    ],
)
def test_what_the_machine_refused_is_contained(error: MemoryError | RuntimeError, out_of_memory: bool) -> None:
    failure = failure_of(error)
    assert failure is not None
    assert failure.out_of_memory == out_of_memory


@pytest.mark.parametrize("error", [NotImplementedError("not written"), RecursionError("maximum recursion depth exceeded")])
def test_a_runtime_error_that_no_machine_is_to_blame_for_is_a_bug(error: RuntimeError) -> None:
    assert failure_of(error) is None


def test_a_failure_is_one_line_without_secrets_and_its_stack_goes_to_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "abcdefghijkl")
    with caplog.at_level(logging.WARNING, logger="ragen"):
        try:
            raise RuntimeError("device lost by abcdefghijkl\nand how it came to that")
        except RuntimeError as error:
            failure = failure_of(error)
    assert failure is not None
    said = str(failure.as_error())
    assert said.startswith("a step of the engine failed: RuntimeError: device lost")
    assert "\n" not in said
    assert "abcdefghijkl" not in said
    (record,) = caplog.records
    assert record.exc_info is not None


def test_rows_are_halved_from_what_ran_until_one_runs_alone() -> None:
    """Of 128 that were allowed only nine ran: half of 128 would still be too many."""
    limit = RowLimit(128)
    limit.lower(1, "full")
    assert limit.rows == 128  # that one was alone says nothing about how many are too many
    seen = []
    for num_running in (9, 4, 2, 1):
        limit.lower(num_running, "full")
        seen.append(limit.rows)
    assert seen == [4, 2, 1, 1]
    assert (limit.take_count(), limit.take_count()) == (5, 0)


def test_a_resumed_run_keeps_its_limit_unless_another_one_is_asked_for() -> None:
    before, same, other = RowLimit(64), RowLimit(64), RowLimit(16)
    before.lower(20, "full")
    same.load_state_dict(before.state_dict())
    other.load_state_dict(before.state_dict())
    assert (same.rows, other.rows) == (10, 16)
