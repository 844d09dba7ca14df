"""The native engine: continuous batching on the very module that is trained.

One step reads: admit (new prompts are encoded, conversations go on), forward (one token for every row that decodes, a whole
observation for one that goes on), retire (finished rows leave). A prompt is encoded once for all trajectories that share it; a
conversation's keys and values survive from turn to turn. Everything runs in the event loop's thread, in an order that follows
from that in which requests came: the same requests give the same bits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from ragen.engines.config import EngineConfig
from ragen.engines.failures import CONTAINED, RowLimit, StepFailure, failure_of
from ragen.engines.idle_cache import IdleCache, Parked
from ragen.engines.kv_cache import DecodeView, PrefillView, PromptBlock, PromptStack, Room, RowStore, copied
from ragen.engines.requests import Queue, Request
from ragen.engines.sampling import check, random_stream, sample
from ragen.engines.stopping import StopMatcher, token_bytes
from ragen.errors import EngineFailure
from ragen.models.policy import Policy
from ragen.records import Completion, FinishReason, Sampling

READ_TOKENS = 2048  # of prompts or observations that one forward pass reads


@dataclass(kw_only=True)
class _Row:
    """A request that runs: its conversation, where its keys and values are, and what it has sampled."""

    request: Request
    block: PromptBlock
    filled: int  # tokens behind the prompt whose keys and values are stored
    pending: tuple[int, ...]  # known ids that are not stored yet
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None


class TorchEngine:
    """Engine over a `Policy` in this process. See `engines.base.Engine` for the contract."""

    def __init__(self, policy: Policy, config: EngineConfig | None = None, *, on_step: Callable[[], None] = lambda: None) -> None:
        """`on_step` is called after every decode step, as a sign of life."""
        self._policy = policy
        self._config = config or EngineConfig()
        self._on_step = on_step
        self._piece = token_bytes(policy.tokenizer)
        self.row_limit = RowLimit(self._config.max_rows)
        self._unanswered: dict[Request, None] = {}  # waiting, running, or on the way from one to the other; as they came
        self._waiting = Queue()
        self._rows: list[_Row] = []  # row i of the store
        self._store: RowStore | None = None
        self._stack: PromptStack | None = None
        self._idle = IdleCache(self._config.max_idle_tokens)
        self._cached_version = policy.version
        self._pump_task: asyncio.Task[None] | None = None

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def config(self) -> EngineConfig:
        return self._config

    @property
    def policy_version(self) -> int:
        return self._policy.version

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Sample one reply. Many coroutines may wait at once; each joins the running batch as soon as there is a row."""
        prompt = tuple(int(i) for i in prompt_ids)
        self._check(prompt, sampling)
        request = Request(
            prompt_ids=prompt,
            sampling=sampling,
            uniforms=random_stream(sampling),
            matcher=StopMatcher(self._piece, sampling.stop_ids, sampling.stop_texts),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._unanswered[request] = None
        self._waiting.push(request, goes_on=self._idle.continued_by(prompt) is not None)
        if self._pump_task is None or self._pump_task.done():
            self._pump_task = asyncio.create_task(self._pump(), name="torch engine")
        try:
            return await request.answer
        finally:
            request.answer.cancel()  # a caller that was cancelled is no longer waited for; no effect on a finished answer
            del self._unanswered[request]

    def _check(self, prompt: tuple[int, ...], sampling: Sampling) -> None:
        """Raise ValueError for a request that can never be answered."""
        if not prompt:
            raise ValueError("prompt_ids is empty: there is nothing to continue")
        num_ids, window = self._policy.num_ids, self._policy.max_positions
        unknown = next((i for i in prompt if not 0 <= i < num_ids), None)
        if unknown is not None:
            raise ValueError(f"prompt_ids hold {unknown}: the model knows ids from 0 to {num_ids - 1}")
        check(sampling)
        if window is not None and len(prompt) + sampling.max_new_tokens > window:
            raise ValueError(
                f"a prompt of {len(prompt)} ids and sampling.max_new_tokens={sampling.max_new_tokens} "
                f"are more than the {window} positions of the model"
            )

    def release(self, prompt_ids: Sequence[int]) -> None:
        """Forget the conversation that ends in these ids."""
        ids = tuple(int(i) for i in prompt_ids)
        conversation = self._idle.continued_by(ids)
        if conversation is not None:
            self._idle.take(conversation)

    def reset(self) -> None:
        """Drop every cache, so that what comes next depends on nothing that came before. Only while nothing is running."""
        self._forget()

    async def close(self) -> None:
        """Stop the running batch and drop every cache. Requests still waiting are cancelled."""
        if self._pump_task is not None and not self._pump_task.done():
            self._pump_task.cancel()
            await asyncio.gather(self._pump_task, return_exceptions=True)
        for request in self._unanswered:
            request.answer.cancel()
        self._waiting.clear()
        self._rows.clear()
        self._forget()

    async def _pump(self) -> None:
        try:
            while self._waiting or self._rows:
                if (failure := self._try_step()) is not None:
                    self._contain(failure)
                self._on_step()
                # let every trajectory whose reply is ready act and ask again, so that it joins the next step
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        except Exception as bug:
            for request in self._unanswered:
                if not request.answer.done():
                    request.answer.set_exception(bug)
            self._waiting.clear()
            self._rows.clear()
            self._forget()

    def _try_step(self) -> StepFailure | None:
        """One step, or what went wrong in it; a bug is raised. Once this has returned, nothing holds on to what had failed."""
        try:
            self._step()
        except CONTAINED as error:
            if (failure := failure_of(error)) is None:
                raise
            return failure
        return None

    def _contain(self, failure: StepFailure) -> None:
        """Drop every cache; of the replies that were being sampled, begin those again that may fit now, and fail the others."""
        waiting = set(self._waiting)
        sampled = [request for request in self._unanswered if request not in waiting and not request.answer.done()]
        is_alone = len(sampled) == 1
        self._rows.clear()
        self._forget()
        if not failure.out_of_memory or (is_alone and sampled[0].ran_out_alone):
            for request in sampled:
                request.answer.set_exception(failure.as_error())
            return
        self.row_limit.lower(len(sampled), failure.reason)
        for request in sampled:
            request.matcher.restart()
            request.ran_out_alone = is_alone
        self._waiting.push_back(sampled)

    @torch.no_grad()
    def _step(self) -> None:
        if self._cached_version != self._policy.version:
            self._forget()
        self._retire()  # rows that nobody waits for any more
        self._admit()
        if self._rows:
            self._sample(*self._forward())
            self._retire()
        self._idle.trim([row.block for row in self._rows])

    # -- admit: who may join the running batch ---------------------------------------------------------------------------

    def _admit(self) -> None:
        """Let waiting requests in while there are rows and room.

        A new prompt gives its first new token here; what continues a conversation is read in the step's forward pass.
        """
        new: list[Request] = []
        continued: list[tuple[_Row, Parked]] = []
        room = Room(self._config.max_tokens)
        for row in self._rows if self._waiting else ():
            room.take(row.block.ids, row.request.longest_behind(row.block.ids))
        while self._waiting and len(self._rows) + len(new) + len(continued) < self.row_limit.rows:
            request = self._waiting.first()
            if request.answer.done():  # cancelled while it waited
                self._waiting.pop()
                continue
            parent = self._idle.continued_by(request.prompt_ids)
            prompt = self._idle.parked(parent).block.ids if parent is not None else request.prompt_ids
            if not room.take(prompt, request.longest_behind(prompt)):
                break
            self._waiting.pop()
            if parent is not None:
                parked = self._idle.take(parent)
                continued.append((self._row(request, parked.block, parked.filled), parked))
            else:
                new.append(request)
        if new:
            blocks = self._blocks_of([request.prompt_ids for request in new])
            fresh = [self._row(request, block, 0) for request, block in zip(new, blocks, strict=True)]
            self._enter(fresh)
            self._sample(fresh, torch.stack([row.block.last_hidden_D for row in fresh]))
            self._retire()
        if continued:
            first = len(self._rows)
            self._enter([row for row, _ in continued])
            for slot, (_, parked) in enumerate(continued, first):
                self._storage.put_back(slot, parked.kept)

    def _row(self, request: Request, block: PromptBlock, filled: int) -> _Row:
        return _Row(request=request, block=block, filled=filled, pending=request.prompt_ids[len(block) + filled :])

    def _enter(self, rows: list[_Row]) -> None:
        """Give the rows the next places of the store."""
        if self._store is None:
            self._store = RowStore(rows[0].block, max_cells=self._config.max_tokens)
        self._rows.extend(rows)
        self._store.reserve(len(self._rows), max(row.filled for row in self._rows))

    def _blocks_of(self, prompts: Sequence[tuple[int, ...]]) -> list[PromptBlock]:
        """Keys and values of each prompt, encoded now unless another trajectory of the group has asked before."""
        blocks = {prompt: self._idle.block(prompt) for prompt in prompts}
        missing = [prompt for prompt, block in blocks.items() if block is None]
        while missing:
            num = max(1, sum(total <= READ_TOKENS for total in accumulate(map(len, missing))))
            blocks |= {block.ids: block for block in self._encode(missing[:num])}
            missing = missing[num:]
        return [block for prompt in prompts if (block := blocks[prompt]) is not None]

    def _encode(self, prompts: Sequence[tuple[int, ...]]) -> list[PromptBlock]:
        """Read prompts, one behind the other, in one forward pass."""
        device = self._policy.device
        view = PrefillView([len(prompt) for prompt in prompts])
        ids_L = torch.tensor([i for prompt in prompts for i in prompt], device=device)
        positions_L = torch.cat([torch.arange(len(prompt), device=device) for prompt in prompts])
        hidden_LD = self._policy.quick_hidden(ids_L, positions_L, view)
        read = zip(prompts, view.spans, view.kept, strict=True)
        blocks = [PromptBlock(ids=ids, kv=copied(kv), last_hidden_D=hidden_LD[span.stop - 1].clone()) for ids, span, kv in read]
        for block in blocks:
            self._idle.add(block)
        return blocks

    # -- decode: known ids in, one new id per row out --------------------------------------------------------------------

    def _forward(self) -> tuple[list[_Row], Tensor]:
        """Store pending ids; return the rows that have none left and the final hidden states [N, D] behind their last ids.

        A row that decodes has one id. Of longer ones, new observations, a step reads READ_TOKENS together and leaves the rest to
        the next, so that those who decode are not held up for long.
        """
        rows = self._rows
        stack = self._stack_of_running()
        place = {id(block): g for g, block in enumerate(stack.blocks)}
        lengths = _at_most(READ_TOKENS, [len(row.pending) for row in rows])
        self._storage.reserve(len(rows), max(row.filled + n for row, n in zip(rows, lengths, strict=True)))
        view = DecodeView(
            self._storage,
            stack,
            [place[id(row.block)] for row in rows],
            first=0,
            filled=[row.filled for row in rows],
            lengths=lengths,
            num_heads=self._policy.num_heads,
            kernels=self._policy.kernels,
        )
        pieces = zip(rows, lengths, strict=True)
        ids_L = torch.tensor([i for row, n in pieces for i in row.pending[:n]], device=self._policy.device)
        hidden_LD = self._policy.quick_hidden(ids_L, view.positions_L, view)
        ready, last = [], []
        for row, n, end in zip(rows, lengths, accumulate(lengths), strict=True):
            row.filled += n
            row.pending = row.pending[n:]
            if not row.pending:
                ready.append(row)
                last.append(end - 1)
        return ready, hidden_LD[torch.tensor(last, dtype=torch.long, device=hidden_LD.device)]

    def _sample(self, rows: list[_Row], hidden_ND: Tensor) -> None:
        """Draw the next id of each row. A row whose scores are not finite fails alone."""
        if not rows:
            return
        logits_NV = self._policy.logits(hidden_ND)
        finite = logits_NV.amax(-1).isfinite().tolist()
        if not all(finite):
            for row, fine in zip(rows, finite, strict=True):
                if not fine:
                    failure = EngineFailure(f"policy version {self._policy.version} gives scores that are not finite numbers")
                    row.request.answer.set_exception(failure)
            logits_NV = torch.where(torch.tensor(finite)[:, None].to(logits_NV.device), logits_NV, 0.0)
        uniforms = [float(row.request.uniforms[len(row.ids)]) for row in rows]
        drawn = sample(logits_NV, [row.request.sampling for row in rows], uniforms)
        for row, token, logprob in zip(rows, *drawn, strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.pending = (token,)
            if row.request.matcher.push(token):
                row.finish_reason = FinishReason.STOP
            elif len(row.ids) == row.request.sampling.max_new_tokens:
                row.finish_reason = FinishReason.LENGTH

    # -- retire: finished rows leave -------------------------------------------------------------------------------------

    def _retire(self) -> None:
        """Answer finished requests, park their conversations, and close the gaps they leave in the store."""
        for slot in reversed(range(len(self._rows))):
            row = self._rows[slot]
            cancelled = row.request.answer.done()
            if row.finish_reason is None and not cancelled:
                continue
            if cancelled:
                self._storage.wipe(slot)  # what is not a number must not stay behind: 0 times NaN is NaN
            else:
                self._park(slot, row)
            last = self._rows.pop()
            if last is not row:
                self._storage.move(len(self._rows), slot, last.filled)
                if len(last.pending) > 1:  # nobody has looked yet at what it has read so far
                    self._storage.wipe(len(self._rows))
                self._rows[slot] = last

    def _park(self, slot: int, row: _Row) -> None:
        assert row.finish_reason is not None
        kept = self._storage.take_out(slot, row.filled)
        self._idle.park(row.request.prompt_ids + tuple(row.ids), Parked(block=row.block, kept=kept, filled=row.filled))
        self._idle.trim([other.block for other in self._rows])  # now: a whole batch may end its turns in one step
        row.request.answer.set_result(
            Completion(
                ids=tuple(row.ids),
                logprobs=tuple(row.logprobs),
                finish_reason=row.finish_reason,
                policy_version=self._policy.version,
            )
        )

    def _stack_of_running(self) -> PromptStack:
        """The prompts of the running rows, stacked; the present stack serves until a new prompt comes or most have gone."""
        needed = {id(row.block): row.block for row in self._rows}
        stacked = {id(block) for block in self._stack.blocks} if self._stack is not None else set()
        if self._stack is None or not needed.keys() <= stacked or len(stacked) > 2 * len(needed):
            self._stack = None  # one of them at a time
            self._stack = PromptStack(list(needed.values()))
        return self._stack

    def _forget(self) -> None:
        """Keys and values belong to one policy version; when the weights change, all of them go."""
        self._retire()  # rows that nobody waits for any more
        assert not self._rows, "the weights changed while replies were being sampled"
        self._idle.clear()
        self._store = self._stack = None
        self._cached_version = self._policy.version

    @property
    def _storage(self) -> RowStore:
        assert self._store is not None, "rows enter before they are read"
        return self._store


def _at_most(budget: int, lengths: Sequence[int]) -> list[int]:
    """Lengths whose sum is about `budget`: those of 1 stay, longer ones are served in order, none gets less than 1."""
    served = []
    for length in lengths:
        served.append(max(1, min(length, budget)))
        budget -= served[-1] if length > 1 else 0
    return served
