"""Shortest solutions against known formulas."""

from __future__ import annotations

import itertools

import pytest

from ragen.environments.hanoi.oracle import best_move, distances
from ragen.environments.hanoi.rules import play, tower

# Frame and Stewart's numbers for four pegs, proved minimal by Bousch (2014).
FOUR_PEGS = {1: 1, 2: 3, 3: 5, 4: 9, 5: 13, 6: 17, 7: 25}


@pytest.mark.parametrize("num_disks", range(1, 9))
def test_three_pegs_take_two_to_the_n_less_one_moves(num_disks: int) -> None:
    assert distances(tower(num_disks, 2), 3)[tower(num_disks, 0)] == 2**num_disks - 1


@pytest.mark.parametrize("num_disks", range(1, 7))
def test_four_pegs_take_frame_and_stewarts_number(num_disks: int) -> None:
    assert distances(tower(num_disks, 3), 4)[tower(num_disks, 0)] == FOUR_PEGS[num_disks]


def test_every_position_can_be_reached_from_every_other_and_none_is_farther_than_the_towers() -> None:
    for goal in itertools.product(range(3), repeat=3):
        found = distances(goal, 3)
        assert len(found) == 27
        assert max(found.values()) <= 7


def recursive_distance(state: tuple[int, ...], peg: int) -> int:
    """Moves that bring everything to `peg`, three pegs, the textbook way: the largest disk out of place moves once."""
    if not state:
        return 0
    *smaller, largest = state
    if largest == peg:
        return recursive_distance(tuple(smaller), peg)
    return recursive_distance(tuple(smaller), 3 - largest - peg) + 2 ** len(smaller)


def test_from_anywhere_to_a_tower_it_agrees_with_the_recursion() -> None:
    found = distances(tower(5, 2), 3)
    assert len(found) == 3**5
    assert all(found[state] == recursive_distance(state, 2) for state in found)


def test_the_best_move_comes_one_closer_from_anywhere_but_the_goal() -> None:
    goal = (1, 2, 0, 1)
    found = distances(goal, 4)
    for state, left in found.items():
        move = best_move(state, goal, 4)
        assert (move is None) == (state == goal)
        if move is not None:
            assert found[play(state, move) or ()] == left - 1
