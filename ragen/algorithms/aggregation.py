"""From the loss of every token to the one number of an optimiser step: a weight per token, and one denominator for all.

    loss = sum of weight x token loss over all tokens of the optimiser step / denominator

Both are known before the first forward pass, so the sum may be taken in any number of parts. A sequence is a trajectory: where an
episode is several token sequences (segments), its tokens are counted together.

| aggregation | weight | denominator | |
|---|---|---|---|
| token_mean | 1 | number of tokens | Yu et al. 2025 (DAPO), eq. 12: every token counts the same |
| seq_mean_token_mean | 1 / tokens of the trajectory | number of trajectories | Shao et al. 2024 (GRPO), eq. 3 |
| seq_mean_token_sum | 1 | number of trajectories | Liu et al. 2025 (Dr. GRPO) |
| constant | 1 | number of trajectories x longest episode | the published code of Dr. GRPO: the scale depends on no length |

Differs from the papers: a number of trajectories is the sum of the shares of their tokens that are in the optimiser step; without
segments that is their count.
"""

from __future__ import annotations

from collections.abc import Sequence


def token_weight(aggregation: str, *, trajectory_tokens: int) -> float:
    """How much a token of a trajectory counts that has so many trained tokens in all."""
    return 1 / trajectory_tokens if aggregation == "seq_mean_token_mean" else 1.0


def denominator(
    aggregation: str, *, num_tokens: Sequence[int], trajectory_tokens: Sequence[int], episode_tokens: int | None = None
) -> float:
    """What the weighted sum over an optimiser step is divided by. At least 1, so that a step without a token has loss 0.

    Per sample of the step: its own trained tokens, and those of its whole trajectory. `episode_tokens`, needed for `constant`, is
    what an episode may hold at most, over all its turns: one turn's limit would make the loss too large where there are several.
    """
    num_trajectories = sum(own / whole for own, whole in zip(num_tokens, trajectory_tokens, strict=True))
    match aggregation:
        case "token_mean":
            total: float = sum(num_tokens)
        case "seq_mean_token_mean" | "seq_mean_token_sum":
            total = num_trajectories
        case "constant":
            assert episode_tokens is not None, "the longest episode must be known"
            total = num_trajectories * episode_tokens
        case _:
            raise ValueError(f"aggregation={aggregation!r}: no such aggregation")
    return total if total > 0 else 1


def length_weights(trajectory_tokens: Sequence[int]) -> list[float]:
    """mean length / own length: under `token_mean` every trajectory then has the same say in the policy term, however long.

    Source: the published code of RAGEN (length weight).
    """
    if not trajectory_tokens:
        return []
    mean = sum(trajectory_tokens) / len(trajectory_tokens)
    return [mean / length for length in trajectory_tokens]
