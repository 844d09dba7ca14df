"""How large the workloads are: as the figures of docs/benchmarks.md are taken, and small enough to see that all works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    num_prompts: int = 4
    num_samples: int = 16  # per prompt
    prompt_tokens: int = 200
    new_tokens: int = 32
    num_rooms: int = 16  # of Sokoban
    num_members: int = 4  # trajectories per room
    num_turns: int = 5
    fewest_words: int = 8  # of a recorded thought
    most_words: int = 32
    step_tokens: int = 48  # sampled per reply of a GRPO step
    lora_rank: int = 16
    growth: tuple[int, ...] = (4, 8, 16, 32)  # group sizes over one prompt
    product_rows: int = 1024  # tokens in the matrix products that give the ceiling


FULL = Sizes()
QUICK = Sizes(
    num_prompts=2,
    num_samples=2,
    prompt_tokens=16,
    new_tokens=4,
    num_rooms=2,
    num_members=2,
    num_turns=2,
    fewest_words=2,
    most_words=6,
    step_tokens=6,
    lora_rank=4,
    growth=(2, 4),
    product_rows=64,
)
