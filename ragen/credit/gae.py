"""Generalised advantage estimation with a critic: over tokens, over turns, and over both.

delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lambda A_{t+1}, backwards; the three differ in what a step t is.
What the agent reads between its turns is never a step. V behind the last step is 0 where the task is over, and the critic's value
where a limit that the agent could not know cut the trajectory short.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen.credit.config import AdvantageConfig
from ragen.credit.credit import Credit
from ragen.credit.view import TOKEN, FloatS, TrajectoryView

NOTHING = Credit(advantages=np.zeros(0), targets=np.zeros(0))  # of a trajectory without a trained token


def gae(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A step is a token; the reward of a turn stands on its last one. The critic is fitted to A + V.

    Source: Schulman et al. 2016 (GAE), eq. 16; over the tokens of all turns: RAGEN, appendix on PPO.
    Differs from the paper: `discount_per` says what time is. By action or turn, no time passes between the tokens of a reply.
    """
    return [_over_tokens(view, config) if view.num_tokens else NOTHING for view in views]


def turn_gae(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """A step is a turn, its value that of the state in which its first token is sampled; all its tokens share its advantage.

    The critic is fitted to A + V of the turn on each of its tokens, which lead to the same rewards.
    Source: Zhou et al. 2024 (ArCHer), turn-level critic; GAE as in `gae`.
    Differs from the paper: no critic of its own for tokens.
    """
    return [_over_turns(view, config) if view.num_tokens else NOTHING for view in views]


def bi_level_gae(views: Sequence[TrajectoryView], config: AdvantageConfig) -> list[Credit]:
    """GAE over turns between their last tokens, then, inside each turn, GAE over tokens up to the last one.

    With V at the last token of each turn, `gamma_turn` and `lam_turn` give that token its advantage; `gamma` and `lam` carry it
    back to the first token of the turn, where the second pass begins anew. The critic is fitted to A + V.
    Source: Wang et al. 2025 (VAGEN), bi-level GAE; RAGEN, published code.
    Differs from the published code: a turn ends where it ends, not where a reward other than 0 stands, so that a turn, or a whole
    trajectory, that pays nothing is a step like any other; lambda may differ between the levels; what single tokens earn (a KL
    penalty) counts for the turns before as well.
    """
    return [_over_both(view, config) if view.num_tokens else NOTHING for view in views]


def _over_tokens(view: TrajectoryView, config: AdvantageConfig) -> Credit:
    values, ticks = _values(view), view.ticks(config.discount_per or TOKEN)
    advantages = _backward(view.rewards_per_token(), values, view.bootstrap, config.gamma**ticks, config.lam**ticks)
    return Credit(advantages=advantages, targets=advantages + values)


def _over_turns(view: TrajectoryView, config: AdvantageConfig) -> Credit:
    values_K = _values(view)[np.array(view.stops) - view.lengths]
    ticks_K = view.sum_per_turn(view.ticks(config.discount_per or TOKEN))
    advantages_K = _backward(view.rewards_per_turn(), values_K, view.bootstrap, config.gamma**ticks_K, config.lam**ticks_K)
    return Credit(advantages=view.per_token(advantages_K), targets=view.per_token(advantages_K + values_K))


def _over_both(view: TrajectoryView, config: AdvantageConfig) -> Credit:
    values, rewards = _values(view), view.rewards_per_token()
    last = np.array(view.stops) - 1
    gammas, lams = np.full(len(last), config.gamma_turn), np.full(len(last), config.lam_turn)
    inner_K = view.sum_per_turn(rewards) - rewards[last]  # what tokens earn on the way to the last one of their turn
    between_K = rewards[last] + gammas * np.append(inner_K[1:], 0.0)
    advantages = np.zeros(view.num_tokens)
    advantages[last] = _backward(between_K, values[last], view.bootstrap, gammas, lams)
    for stop, length in zip(view.stops, view.lengths, strict=True):
        for t in range(stop - 2, stop - length - 1, -1):  # the last token has its advantage already
            delta = rewards[t] + config.gamma * values[t + 1] - values[t]
            advantages[t] = delta + config.gamma * config.lam * advantages[t + 1]
    return Credit(advantages=advantages, targets=advantages + values)


def _values(view: TrajectoryView) -> FloatS:
    assert view.values is not None, "this estimator needs a critic"
    return view.values


def _backward(rewards: FloatS, values: FloatS, bootstrap: float, gammas: FloatS, lams: FloatS) -> FloatS:
    """GAE over steps of any kind; `gammas` and `lams` hold for the time behind each step."""
    deltas = rewards + gammas * np.append(values[1:], bootstrap) - values
    decays = gammas * lams
    advantages = np.zeros(len(deltas))
    later = 0.0
    for t in range(len(deltas) - 1, -1, -1):
        later = deltas[t] + decays[t] * later
        advantages[t] = later
    return advantages
