"""An engine that plays prepared replies: stands in for a model in tests and in preflight checks, and keeps what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ragen.errors import EngineFailure
from ragen.records import Completion, FinishReason, Sampling


@dataclass(frozen=True, kw_only=True)
class ScriptedReply:
    """One prepared reply. Without log-probs, id number i of the reply gets -(i + 1) / 8, which float32 holds exactly."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    finish_reason: FinishReason = FinishReason.STOP


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the engine was asked and what it answered; `completion` is None if the request was made to fail."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    completion: Completion | None


Script = Callable[[Sequence[int], Sampling], "ScriptedReply | Sequence[int]"]


class ScriptedEngine:
    """Answers from `replies`: a list, handed out in the order of the calls, or a function of prompt and sampling.

    `fail_at` names the calls (counted from 0) that raise EngineFailure. `delay` gives, per call number, how many turns of the
    event loop an answer takes, so that a test can let answers overtake each other. As with a real engine, a reply longer than
    `sampling.max_new_tokens` is cut there with FinishReason.LENGTH, and a request that can never be answered is a ValueError.
    `requests` holds the calls in the order in which they were made, `released` the conversations that were given up.
    """

    def __init__(
        self,
        replies: Iterable[ScriptedReply | Sequence[int]] | Script,
        *,
        fail_at: Collection[int] = (),
        delay: Callable[[int], int] = lambda call: 0,
        policy_version: int = 0,
    ) -> None:
        self.policy_version = policy_version
        self.requests: list[Request] = []
        self.released: list[tuple[int, ...]] = []
        self.closed = False
        self._script = replies if callable(replies) else _in_order(replies)
        self._fail_at = fail_at
        self._delay = delay

    @classmethod
    def from_texts(
        cls, texts: Iterable[str], encode: Callable[[str], Sequence[int]], *, end: Sequence[int] = ()
    ) -> ScriptedEngine:
        """Play `texts`, encoded by `encode`, each followed by the ids `end` (such as the end-of-turn id)."""
        return cls([(*encode(text), *end) for text in texts])

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        limit = sampling.max_new_tokens
        if not prompt_ids or limit < 1:
            raise ValueError(f"prompt of {len(prompt_ids)} ids, max_new_tokens={limit}: both must be at least 1")
        call = len(self.requests)
        completion = None if call in self._fail_at else self._answer(prompt_ids, sampling)
        self.requests.append(Request(prompt_ids=tuple(prompt_ids), sampling=sampling, completion=completion))
        for _ in range(self._delay(call)):
            await asyncio.sleep(0)
        if completion is None:
            raise EngineFailure(f"scripted engine: call {call} was told to fail")
        return completion

    def _answer(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        reply = self._script(prompt_ids, sampling)
        if not isinstance(reply, ScriptedReply):
            reply = ScriptedReply(ids=tuple(reply))
        logprobs = reply.logprobs
        if logprobs is None:
            logprobs = tuple(-(i + 1) / 8 for i in range(len(reply.ids)))
        limit = sampling.max_new_tokens
        return Completion(
            ids=reply.ids[:limit],
            logprobs=logprobs[:limit],
            finish_reason=FinishReason.LENGTH if len(reply.ids) > limit else reply.finish_reason,
            policy_version=self.policy_version,
        )

    def release(self, prompt_ids: Sequence[int]) -> None:
        self.released.append(tuple(prompt_ids))

    async def close(self) -> None:
        self.closed = True


def _in_order(replies: Iterable[ScriptedReply | Sequence[int]]) -> Script:
    prepared = list(replies)
    remaining = iter(prepared)

    def script(prompt_ids: Sequence[int], sampling: Sampling) -> ScriptedReply | Sequence[int]:
        try:
            return next(remaining)
        except StopIteration:
            raise ValueError(f"the script holds {len(prepared)} replies, and one more was asked for") from None

    return script
