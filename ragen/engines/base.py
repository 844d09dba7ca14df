"""The engine protocol: tokens in, tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ragen.records import Completion, Sampling


class Engine(Protocol):
    """Samples replies for any number of coroutines at once.

    `generate` returns the sampled ids with the log-probs of the distribution they were sampled from (after temperature, top-p and
    top-k). Where a policy reads and writes text, ids are those of a `TextChat` and log-probs are 0. Samples of a request are a
    function of its prompt and `sampling.seed`, not of who else is in the batch.
    Raises EngineFailure when it cannot answer; ValueError for a request that can never be answered (empty prompt, no room).
    """

    @property
    def policy_version(self) -> int: ...

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion: ...

    def release(self, prompt_ids: Sequence[int]) -> None:
        """Say that the conversation ending in these ids goes no further, so that what is cached for it may go. Never fails."""
        ...

    async def close(self) -> None: ...
