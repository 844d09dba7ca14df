"""Shortest solutions of the Tower of Hanoi, for any number of pegs, from any state to any other."""

from __future__ import annotations

from functools import lru_cache

from ragen.environments.hanoi.rules import Move, State, all_moves, play


@lru_cache(maxsize=32)
def distances(goal: State, num_pegs: int) -> dict[State, int]:
    """Moves from every state to `goal`, by breadth-first search from the goal: every move can be taken back."""
    moves = all_moves(num_pegs)
    found, frontier = {goal: 0}, [goal]
    for state in frontier:  # grows while it is walked
        for move in moves:
            after = play(state, move)
            if after is not None and after not in found:
                found[after] = found[state] + 1
                frontier.append(after)
    return found


def best_move(state: State, goal: State, num_pegs: int) -> Move | None:
    """The first move of a shortest way to `goal`; None if that is where one is."""
    left = distances(goal, num_pegs)
    for move in all_moves(num_pegs):
        after = play(state, move)
        if after is not None and left[after] == left[state] - 1:
            return move
    return None
