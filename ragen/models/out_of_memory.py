"""How a lack of memory is told from every other error, in sampling and in the update."""

from __future__ import annotations

import torch


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether this is what Python or torch say when an allocation fails; on the CPU torch has no error class for it."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in str(error) or "not enough memory" in str(error))
    )
