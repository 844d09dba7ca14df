"""How many tokens one forward pass of the update takes, and what happens when they are too many for the memory there is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from ragen.errors import TrainingError
from ragen.models.out_of_memory import ran_out_of_memory
from ragen.training.memory_plan import LARGEST_PACK, SMALLEST_PACK

logger = logging.getLogger(__name__)
T = TypeVar("T")


class PackSize:
    """Continuation tokens in one forward pass of policy and critic; halved, for good, when memory runs out.

    Smaller packs give the same gradient up to rounding: the denominator is that of the whole optimiser step. A checkpoint holds
    the size, so that a resumed run goes on with the packs that the run had.
    """

    def __init__(self, tokens: int = LARGEST_PACK) -> None:
        self.tokens = tokens
        self.num_halved = 0  # since somebody last asked with `take_count`

    def attempt(self, work: Callable[[], T], undo: Callable[[], None] = lambda: None) -> T:
        """Do `work`; where memory runs out, `undo` what it left and do it again with packs of half the size.

        Raises TrainingError when even the smallest packs do not fit.
        """
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                if not ran_out_of_memory(error):
                    raise
                reason = str(error).strip().partition("\n")[0]
            undo()  # behind the handler: until then the traceback holds the tensors of the failed pass
            if self.tokens <= SMALLEST_PACK:
                raise TrainingError(
                    f"out of memory in the update with packs of {self.tokens} tokens ({reason}); the last checkpoint is intact. "
                    "A smaller rollout.context.max_context_tokens, algorithm.critic.kind or model needs less"
                )
            self.tokens = max(SMALLEST_PACK, self.tokens // 2)
            self.num_halved += 1
            logger.warning("out of memory in the update (%s): once more with packs of %d tokens", reason, self.tokens)

    def take_count(self) -> int:
        """How often the size was halved since the last call."""
        count, self.num_halved = self.num_halved, 0
        return count
