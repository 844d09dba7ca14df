"""What is measured: pieces of work as plain data, the same for us and for every peer, and what a side answers.

A side is a program of its own that reads one piece of work from a JSON file and prints one JSON object: native.py here, and the
scripts in benchmarks/peers, which are run in environments where this package is not installed. Prompts therefore travel as token
ids or as rendered text, and every reply has a length of its own that nobody may stop before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FIRST_ID, LAST_ID = 100, 40_000  # between which the ids of a made-up prompt lie: words in every vocabulary of a chat model


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One turn of a conversation: the ids that are read, then so many that are sampled behind them."""

    observed: tuple[int, ...]
    num_new: int


Conversation = tuple[Exchange, ...]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What every piece of work says: on which weights, in which number format, on how many threads, how often."""

    model: str  # a folder in Hugging Face layout
    dtype: str  # float32 or bfloat16
    threads: int
    repeats: int  # timed, after one that is not


@dataclass(frozen=True, kw_only=True)
class RolloutWork(Work):
    """Play the conversations, all at once. In repeat r the first id of each is `first_id(r)`, so that no cache knows a prompt."""

    conversations: tuple[Conversation, ...]
    kind: str = "rollout"

    @property
    def num_new(self) -> int:
        """Sampled tokens of one repeat."""
        return sum(turn.num_new for conversation in self.conversations for turn in conversation)

    @property
    def longest(self) -> int:
        """Ids of the longest conversation at its end."""
        return max(sum(len(turn.observed) + turn.num_new for turn in conversation) for conversation in self.conversations)


@dataclass(frozen=True, kw_only=True)
class StepWork(Work):
    """GRPO on the bandit: sample `group_size` replies of exactly `new_tokens` to each prompt, then one optimiser step, LoRA."""

    num_groups: int
    group_size: int
    new_tokens: int
    lora_rank: int
    prompts: tuple[str, ...] = ()  # rendered with the chat template, for peers; we play the environment itself
    update_only: bool = False  # sample once, then time updates on the same samples
    kind: str = "step"


@dataclass(frozen=True, kw_only=True)
class CeilingsWork(Work):
    """Measure what the machine can do at best, on matrix products of these shapes and on plain copies."""

    products: tuple[tuple[int, int, int], ...]  # (rows, inputs, outputs)
    kind: str = "ceilings"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a side says of a piece of work. `details` holds what only one kind of work has; see native.py."""

    package: str  # name and version of what did it
    seconds: tuple[float, ...]  # one per timed repeat
    num_tokens: int  # sampled or trained in one repeat
    peak_bytes: int  # largest resident memory of the process
    details: Mapping[str, Any] = field(default_factory=dict)


def first_id(repeat: int) -> int:
    """The id that a conversation begins with in a repeat; repeat 0 is the one that is not timed."""
    return FIRST_ID + repeat


def work_from_json(data: dict[str, Any]) -> RolloutWork | StepWork | CeilingsWork:
    """The piece of work that `dataclasses.asdict` and JSON have made lists of."""
    match data["kind"]:
        case "rollout":
            conversations = tuple(
                tuple(Exchange(observed=tuple(turn["observed"]), num_new=turn["num_new"]) for turn in conversation)
                for conversation in data["conversations"]
            )
            return RolloutWork(**{**data, "conversations": conversations})
        case "step":
            return StepWork(**{**data, "prompts": tuple(data["prompts"])})
        case "ceilings":
            return CeilingsWork(**{**data, "products": tuple(map(tuple, data["products"]))})
        case kind:
            raise ValueError(f"kind={kind!r}: must be rollout, step or ceilings")


def answer_from_json(data: Mapping[str, Any]) -> Answer:
    """Raises KeyError or TypeError for what is no answer."""
    return Answer(
        package=str(data["package"]),
        seconds=tuple(float(s) for s in data["seconds"]),
        num_tokens=int(data["num_tokens"]),
        peak_bytes=int(data["peak_bytes"]),
        details=dict(data.get("details", {})),
    )


def groups_of_prompts(
    *, num_prompts: int, num_samples: int, prompt_tokens: int, new_tokens: int, vocabulary: int
) -> tuple[Conversation, ...]:
    """Conversations of one turn: each of the prompts, drawn at random, that many times, members side by side."""
    random = np.random.default_rng(0)
    low, high = min(FIRST_ID, vocabulary // 2), min(LAST_ID, vocabulary)
    prompts: Sequence[Sequence[int]] = random.integers(low, high, (num_prompts, prompt_tokens)).tolist()
    return tuple((Exchange(observed=tuple(ids), num_new=new_tokens),) for ids in prompts for _ in range(num_samples))
