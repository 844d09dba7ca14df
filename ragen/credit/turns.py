"""Critic-free estimators that judge each turn, or token, by what came of it: G, the discounted rewards from there to the end.

A reward never counts for what was done after it. `discount_per` says by what time gamma discounts; `rewards_at=end` leaves the
time as it is and pays everything behind the last turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from itertools import chain, islice

import numpy as np

from ragen.credit.config import AdvantageConfig
from ragen.credit.credit import Credit
from ragen.credit.normalize import Compare, leave_one_out, normalize, within
from ragen.credit.outcome import batch_keys
from ragen.credit.view import TURN, FloatK, FloatS, TrajectoryView


def reinforce_pp(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A_t = G_t per token, whitened afterwards over all tokens (see estimators.py).

    Source: Hu et al. 2025 (REINFORCE++), global advantage normalisation.
    Differs from the paper: its KL term comes with the token rewards, or in the loss.
    """
    return [
        Credit(advantages=_to_go(view.rewards_per_token(), config.gamma ** view.ticks(config.discount_per or TURN)))
        for view in views
    ]


def return_batch_norm(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A_k = (G_k - mean) / (std + 1e-6) over all turns of the batch, or of each tag by itself; the tokens of a turn share it.

    Source: Liu et al. 2025 (GEM), REINFORCE with return batch normalisation.
    """
    keys = [[key] * len(view.lengths) for view, key in zip(views, batch_keys(views, config), strict=True)]
    return _compare_turns(views, config, keys, partial(normalize, method=config.method))


def turn_rloo(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A_k = G_k minus the mean of G_k over the other members of the group that came to a k-th turn.

    The baseline depends on nothing that this member did, so it adds no bias. Who comes to a k-th turn alone learns nothing in it.
    Source: the baseline of Kool et al. 2019, per turn; it is in no paper that we know.
    """
    keys = [[(view.group, k) for k in range(len(view.lengths))] for view in views]
    return _compare_turns(views, config, keys, leave_one_out)


def gigpo(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A = A^E + w A^S: the return against the group, plus G_k against all turns of the group that began in the same state.

    Two turns began in the same state if the agent read the same text last before them. A state that occurs once adds nothing.
    Source: Feng et al. 2025 (GiGPO), eq. 3, 7 and 8; w is `anchor_weight`, F_norm the std or, with method=mean, 1.
    Differs from the paper: the unbiased standard deviation; the text compared is all that is new to the agent, so it includes the
    turns and actions left where the prompt announces them.
    """
    compare = partial(normalize, method=config.method)
    episode = within([view.return_ for view in views], [view.group for view in views], compare)
    steps = _compare_turns(views, config, [[(view.group, state) for state in view.states] for view in views], compare)
    return [Credit(advantages=a + config.anchor_weight * step.advantages) for a, step in zip(episode, steps, strict=True)]


def _compare_turns(
    views: Sequence[TrajectoryView], config: AdvantageConfig, keys: Sequence[Sequence[Hashable]], compare: Compare
) -> list[Credit]:
    """Compare G_k among the turns that have the same key, of which `keys` holds one per view and turn.

    The tokens of a turn share the answer. A trajectory without a trained token has no turn here.
    """
    played = [(view, key) for view, key in zip(views, keys, strict=True) if view.num_tokens]
    to_go = [_to_go_per_turn(view, config).tolist() for view, _ in played]
    answers = iter(within(list(chain(*to_go)), list(chain(*(key for _, key in played))), compare))
    return [
        Credit(advantages=view.per_token(list(islice(answers, len(view.lengths) if view.num_tokens else 0)))) for view in views
    ]


def _to_go_per_turn(view: TrajectoryView, config: AdvantageConfig) -> FloatK:
    """[K] G of each turn."""
    return _to_go(view.rewards_per_turn(), config.gamma ** view.sum_per_turn(view.ticks(config.discount_per or TURN)))


def _to_go(rewards: FloatS, gammas: FloatS) -> FloatS:
    """G_t = r_t + gamma_t G_{t+1}, where gamma_t is for the time behind step t."""
    to_go = np.zeros_like(rewards)
    later = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        later = rewards[t] + gammas[t] * later
        to_go[t] = later
    return to_go
