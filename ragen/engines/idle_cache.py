"""What the torch engine keeps while nobody uses it: prompts that have been read, and conversations between two turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from ragen.engines.kv_cache import PromptBlock

UNUSED_SHARE = 0.1  # of the idle tokens that may belong to prompts which no conversation continues


@dataclass(frozen=True, kw_only=True)
class Parked:
    """A conversation between two turns: a copy of its row."""

    block: PromptBlock
    kept: list[Tensor]  # per layer [2, K, filled, D]
    filled: int  # tokens behind the prompt


class IdleCache:
    """Blocks by the ids of their prompt, conversations by all of their ids; least recently used first."""

    def __init__(self, max_tokens: int) -> None:
        """`max_tokens`: what `trim` leaves of what nobody uses."""
        self._max_tokens = max_tokens
        self._blocks: OrderedDict[tuple[int, ...], PromptBlock] = OrderedDict()
        self._parked: OrderedDict[tuple[int, ...], Parked] = OrderedDict()

    def add(self, block: PromptBlock) -> None:
        self._blocks[block.ids] = block

    def block(self, prompt: tuple[int, ...]) -> PromptBlock | None:
        """The block of this prompt, now the one used last."""
        block = self._blocks.get(prompt)
        if block is not None:
            self._blocks.move_to_end(prompt)
        return block

    def park(self, conversation: tuple[int, ...], parked: Parked) -> None:
        self._parked[conversation] = parked
        self._parked.move_to_end(conversation)  # a member of the group may have said the same before

    def continued_by(self, ids: tuple[int, ...]) -> tuple[int, ...] | None:
        """The longest parked conversation that `ids` continues, by its ids."""
        lengths = sorted({len(conversation) for conversation in self._parked}, reverse=True)
        return next((ids[:n] for n in lengths if n <= len(ids) and ids[:n] in self._parked), None)

    def parked(self, conversation: tuple[int, ...]) -> Parked:
        return self._parked[conversation]

    def take(self, conversation: tuple[int, ...]) -> Parked:
        """It goes on, or is forgotten."""
        return self._parked.pop(conversation)

    def clear(self) -> None:
        self._blocks.clear()
        self._parked.clear()

    def trim(self, running: Collection[PromptBlock]) -> None:
        """Drop what nobody uses down to the limit, least recently used first; `running` are the blocks that rows continue.

        Prompts that no conversation continues, which may be asked for again but rarely are, have a small share of it, and go
        first; a conversation that is dropped sets its prompt free.
        """
        in_use = {id(block) for block in running}
        needed = in_use | {id(parked.block) for parked in self._parked.values()}
        unused = {ids: len(block) for ids, block in self._blocks.items() if id(block) not in needed}
        num_unused = sum(unused.values())
        idle = num_unused + sum(parked.filled for parked in self._parked.values())
        idle += sum(len(block) for block in self._blocks.values() if id(block) in needed - in_use)
        while idle > self._max_tokens or num_unused > self._max_tokens * UNUSED_SHARE:
            if unused:
                ids, size = next(iter(unused.items()))
                del unused[ids], self._blocks[ids]
                idle, num_unused = idle - size, num_unused - size
            else:
                dropped = self._parked.popitem(last=False)[1]
                idle -= dropped.filled
                block = dropped.block
                is_free = id(block) not in in_use and all(parked.block is not block for parked in self._parked.values())
                if block.ids in self._blocks and is_free:
                    unused[block.ids] = len(block)
                    num_unused += len(block)
