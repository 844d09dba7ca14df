"""Trajectories that ran out of room, dealt with between rewards and advantages: groups in, groups out.

Source: Yu et al. 2025 (DAPO), section 3.4, "overlong filtering" and "soft overlong punishment" (eq. 13).
Differs from the paper: a reply is one turn of several, so the price is per turn; and what is left out of the loss is left out of
the mean and spread of its group too, since its return is not one that can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragen.algorithms.config import OverlongConfig
from ragen.credit.rewards import ENVIRONMENT, FORMAT
from ragen.records import EndReason, FinishReason, Group, Trajectory, Turn

OVERLONG = "overlong"  # the part of the return


def handle_overlong(groups: Sequence[Group], config: OverlongConfig, *, max_new_tokens: int) -> list[Group]:
    """What advantages are computed from. `groups` itself stays what is recorded and measured."""
    match config.rule:
        case "mask":
            return [replace(g, trajectories=tuple(t for t in g.trajectories if not is_overlong(t))) for g in groups]
        case "penalty":
            assert config.buffer is not None
            return [_priced(group, config.buffer, config.price, max_new_tokens) for group in groups]
    return list(groups)


def is_overlong(trajectory: Trajectory) -> bool:
    """Whether a reply was cut at its limit, or the episode ended because the context window was full."""
    was_cut = any(turn.finish_reason is FinishReason.LENGTH for turn in trajectory.turns)
    return was_cut or trajectory.end_reason is EndReason.CONTEXT_LIMIT


def overlong_penalty(num_tokens: int, *, max_new_tokens: int, buffer: int, price: float) -> float:
    """0 up to max_new_tokens - buffer sampled tokens, then falling linearly to -price at max_new_tokens."""
    excess = num_tokens - (max_new_tokens - buffer)
    return -price * min(max(excess / buffer, 0.0), 1.0)


def _priced(group: Group, buffer: int, price: float, max_new_tokens: int) -> Group:
    def priced(turn: Turn) -> Turn:
        penalty = overlong_penalty(turn.stop - turn.start, max_new_tokens=max_new_tokens, buffer=buffer, price=price)
        parts = turn.parts or {ENVIRONMENT: turn.reward, FORMAT: turn.format_penalty}
        return replace(turn, parts={**parts, OVERLONG: penalty})

    return replace(
        group, trajectories=tuple(replace(t, turns=tuple(priced(turn) for turn in t.turns)) for t in group.trajectories)
    )
