"""What a failed step of the torch engine means: a failure of the machine, which is contained, or a bug, which is not.

Where memory ran out, fewer rows run together from then on and the replies that were being sampled are begun again. Each has its
own random stream, so it comes out as if nothing had happened, up to the rounding of who shares the batch. Any other failure costs
the replies that were being sampled, and no others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from ragen.errors import EngineFailure
from ragen.models.out_of_memory import ran_out_of_memory
from ragen.redaction import redact

logger = logging.getLogger(__name__)

CONTAINED = (MemoryError, RuntimeError)  # how Python and torch report what memory, device or kernel refused
BUGS = (NotImplementedError, RecursionError)  # RuntimeErrors that no machine is to blame for


class RowLimit:
    """How many rows run together at most; lowered, for good, when memory runs out.

    A checkpoint holds the limit, so that a resumed run goes on with the batches that the run had.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._asked = rows
        self._num_shortages = 0  # since somebody last asked with `take_count`

    def lower(self, num_running: int, reason: str) -> None:
        """Allow half of those that were too many. One that ran alone is no reason to allow fewer."""
        self.rows = num_running // 2 or self.rows
        self._num_shortages += 1
        logger.warning(
            "out of memory while sampling (%s): replies to be sampled again: %d; together from here on: %d at most",
            reason,
            num_running,
            self.rows,
        )

    def take_count(self) -> int:
        """How often replies were begun again for want of memory since the last call."""
        count, self._num_shortages = self._num_shortages, 0
        return count

    def state_dict(self) -> dict[str, int]:
        return {"asked": self._asked, "rows": self.rows}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on with the limit of a run, unless another one is asked for than it began with."""
        if state["asked"] == self._asked:
            self.rows = state["rows"]


@dataclass(frozen=True, kw_only=True)
class StepFailure:
    """Why a step failed, in words: what holds on to the error holds on to the tensors of the failed step."""

    reason: str
    out_of_memory: bool

    def as_error(self) -> EngineFailure:
        """What the requests that it costs are answered with."""
        if self.out_of_memory:
            return EngineFailure(
                f"out of memory, twice, while one reply was sampled alone ({self.reason}); a smaller "
                "rollout.context.max_context_tokens or model needs less"
            )
        return EngineFailure(f"a step of the engine failed: {self.reason}")


def failure_of(error: MemoryError | RuntimeError) -> StepFailure | None:
    """What an error of a step means; None for a bug, which has to pass through. A failure's stack goes to the log."""
    if isinstance(error, BUGS):
        return None
    first_line = str(error).strip().partition("\n")[0]
    failure = StepFailure(
        reason=redact(f"{type(error).__name__}: {first_line or 'no message'}")[:500], out_of_memory=ran_out_of_memory(error)
    )
    if not failure.out_of_memory:
        logger.warning("a step of the engine failed, the replies that it sampled are lost: %s", failure.reason, exc_info=error)
    return failure
