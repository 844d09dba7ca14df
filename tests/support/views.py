"""Views of trajectories written down as literals, for estimators of advantages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen.credit.view import TrajectoryView


def make_view(
    lengths: Sequence[int] = (1,),
    rewards: Sequence[float] = (0.0,),
    *,
    values: Sequence[float] | None = None,
    bootstrap: float = 0.0,
    num_actions: Sequence[int] | None = None,
    states: Sequence[str] | None = None,
    token_rewards: Sequence[float] | None = None,
    group: int = 0,
    tag: str = "corridor",
) -> TrajectoryView:
    """Turns of these lengths with these rewards; one action each, and states that no other trajectory shares, unless given."""
    extra = np.zeros(sum(lengths)) if token_rewards is None else np.array(token_rewards, dtype=np.float64)
    return TrajectoryView(
        group=group,
        tag=tag,
        lengths=tuple(lengths),
        rewards=tuple(rewards),
        num_actions=tuple(num_actions or [1] * len(lengths)),
        states=tuple(states or [f"{id(extra)} {k}" for k in range(len(lengths))]),
        token_rewards=extra,
        return_=float(sum(rewards)) + float(extra.sum()),
        values=None if values is None else np.array(values, dtype=np.float64),
        bootstrap=bootstrap,
    )
