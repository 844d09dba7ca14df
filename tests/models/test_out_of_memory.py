from __future__ import annotations

import pytest
import torch

from ragen.models.out_of_memory import ran_out_of_memory


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_what_python_and_a_gpu_say_is_recognised(error: Exception) -> None:
    assert ran_out_of_memory(error)


def test_a_real_allocation_that_fails_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert ran_out_of_memory(caught.value)


@pytest.mark.parametrize("error", [RuntimeError("shapes do not match"), ValueError("can't allocate memory")])
def test_other_errors_are_not_taken_for_a_shortage(error: Exception) -> None:
    assert not ran_out_of_memory(error)
