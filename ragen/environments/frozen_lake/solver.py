"""The frozen lake as a Markov decision process: its transition table, its best policy, the odds of any policy.

Legend: A the 4 directions, S the cells. Goal and holes are absorbing: whatever is played there, one stays.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ragen.environments.frozen_lake.rules import ACTIONS, Lake, neighbours

Floats = NDArray[np.float64]

# So weak that a whole walk of a thousand moves costs 0.1 % of a success: it settles ties between ways that are equally safe,
# and makes standing still on safe ice worse than going on.
_DISCOUNT = 1.0 - 1e-6
_TIE = 1.0 - 1e-9  # actions whose values differ by a smaller part than this are equally good; the first one is taken
_LATER = 1e-6  # what success after the horizon counts beside success within it
_HOPELESS = 1e-12  # a smaller chance of success is rounding error


def transitions(lake: Lake, success_rate: float) -> Floats:
    """[A, S, S]: the probability that direction a, played in the first cell, leads to the second."""
    num_cells = lake.num_cells
    goes_to = np.array(neighbours(lake.height, lake.width)).T  # [A, S]
    cells = np.arange(num_cells)
    table_ASS = np.zeros((len(ACTIONS), num_cells, num_cells))
    side = (1.0 - success_rate) / 2
    for action in range(len(ACTIONS)):
        for turn, probability in ((0, success_rate), (1, side), (3, side)):
            np.add.at(table_ASS[action], (cells, goes_to[(action + turn) % 4]), probability)
    absorbing = [lake.goal, *lake.holes]
    table_ASS[:, absorbing, :] = 0.0
    table_ASS[:, absorbing, absorbing] = 1.0
    return table_ASS


@lru_cache(maxsize=4096)
def best_directions(lake: Lake, success_rate: float, horizon: int = 0) -> tuple[tuple[int, ...], ...]:
    """`plan[k][cell]`: the best direction with k moves left, 0 <= k <= horizon; `plan[0]` is the best without any limit.

    With k moves left the best direction makes reaching the goal within them most probable; among equals (to one in a million)
    it makes reaching it later most probable, then reaching it sooner.
    """
    table_ASS, reward_S = _until_the_end(lake, success_rate)
    unlimited_S = _without_limit(table_ASS, reward_S)
    plan = [_first_best(table_ASS @ unlimited_S)]
    value_S = np.where(reward_S > 0.0, 1.0, _LATER * unlimited_S)
    for _ in range(horizon):
        promise_AS = table_ASS @ value_S
        plan.append(_first_best(promise_AS))
        value_S = reward_S + _DISCOUNT * promise_AS.max(axis=0)
    return tuple(plan)


def success_odds(lake: Lake, success_rate: float, num_actions: int) -> dict[str, float]:
    """Exact probabilities of reaching the goal within `num_actions` moves: the figures of the page's floor and ceiling.

    "random": each move is a fair draw of the four; "unlimited": the policy that is best without a limit; "best": what no policy
    can beat within the limit, by backward induction.
    """
    table_ASS = transitions(lake, success_rate)
    unlimited_SS = table_ASS[list(best_directions(lake, success_rate)[0]), np.arange(lake.num_cells)]
    goal_S = np.zeros(lake.num_cells)
    goal_S[lake.goal] = 1.0
    random_S = unlimited_S = best_S = goal_S
    for _ in range(num_actions):
        random_S = table_ASS.mean(axis=0) @ random_S
        unlimited_S = unlimited_SS @ unlimited_S
        best_S = (table_ASS @ best_S).max(axis=0)
    return {
        "random": float(random_S[lake.start]),
        "unlimited": float(unlimited_S[lake.start]),
        "best": float(best_S[lake.start]),
    }


def _until_the_end(lake: Lake, success_rate: float) -> tuple[Floats, Floats]:
    """The transition table [A, S, S] with nothing to come after goal and holes, and the reward [S] of being on a cell."""
    table_ASS = transitions(lake, success_rate)
    table_ASS[:, [lake.goal, *lake.holes], :] = 0.0
    reward_S = np.zeros(lake.num_cells)
    reward_S[lake.goal] = 1.0
    return table_ASS, reward_S


def _without_limit(table_ASS: Floats, reward_S: Floats) -> Floats:
    """[S]: the greatest E[discount^T] there is, T the number of moves to the goal (never: 0).

    With so weak a discount that is the probability of success first, then speed. Value iteration lets the goal's value reach
    every cell; policy iteration makes the result exact, where values alone would take thousands of sweeps on slippery ice.
    """
    cells = np.arange(len(reward_S))
    value_S = reward_S
    for _ in cells:
        value_S = reward_S + _DISCOUNT * (table_ASS @ value_S).max(axis=0)
    policy_S = (table_ASS @ value_S).argmax(axis=0)
    while True:
        followed_SS = table_ASS[policy_S, cells]
        value_S = np.linalg.solve(np.eye(len(cells)) - _DISCOUNT * followed_SS, reward_S)
        value_S[value_S < _HOPELESS] = 0.0
        promise_AS = table_ASS @ value_S
        better_S = promise_AS.max(axis=0) * _TIE > promise_AS[policy_S, cells]
        if not better_S.any():
            return value_S
        policy_S = np.where(better_S, promise_AS.argmax(axis=0), policy_S)


def _first_best(promise_AS: Floats) -> tuple[int, ...]:
    """For each cell the first of the directions that promise most: the same on every machine, whatever it rounds."""
    return tuple((promise_AS >= promise_AS.max(axis=0) * _TIE).argmax(axis=0).tolist())
