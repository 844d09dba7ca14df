"""The table of distances: known counts, agreement with a plain search over turns, cubes drawn at a distance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.rubiks_cube import solver
from ragen.environments.rubiks_cube.rules import ALL_TURNS, QUARTER_TURNS, SOLVED, hold, is_solved, turn

# Positions of the 2x2x2 by distance, as published in many places.
QUARTER_TURN_COUNTS = [1, 6, 27, 120, 534, 2256, 8969, 33058, 114149, 360508, 930588, 1350852, 782536, 90280, 276]
HALF_TURN_COUNTS = [1, 9, 54, 321, 1847, 9992, 50136, 227536, 870072, 1887748, 623800, 2644]


def search(cube: str, names: tuple[str, ...], limit: int) -> int:
    """Independent: the length of a shortest solution, by breadth-first search over the stickers; at most `limit`."""
    seen, frontier = {cube}, {cube}
    for length in range(limit + 1):
        if any(is_solved(c) for c in frontier):
            return length
        frontier = {turn(c, name) for c in frontier for name in names} - seen
        seen |= frontier
    raise AssertionError(f"no solution within {limit} turns")


@pytest.mark.parametrize(("half_turns", "counts"), [(False, QUARTER_TURN_COUNTS), (True, HALF_TURN_COUNTS)])
def test_the_numbers_of_positions_are_the_known_ones(half_turns: bool, counts: list[int]) -> None:
    distance = solver.distances(half_turns=half_turns)
    assert [len(distance.level(n)) for n in range(len(counts))] == counts
    assert len(distance.level(len(counts))) == 0
    assert sum(counts) == 3_674_160  # 7! * 3**6
    assert len(counts) - 1 == solver.MAX_DISTANCE[half_turns]


@given(st.integers(0, 3_674_159), st.integers(0, 23))
def test_numbers_and_cubes_are_each_other_s_inverse_however_the_cube_is_held(number: int, rotation: int) -> None:
    assert solver.position(hold(solver.cube_at(number), rotation)) == number


@given(st.integers(0, 3_674_159), st.sampled_from(QUARTER_TURNS))
def test_a_turn_changes_the_distance_by_one(number: int, name: str) -> None:
    """A quarter turn is an odd permutation of the corners, so that the distance cannot stay."""
    distance = solver.distances(half_turns=False)
    cube = solver.cube_at(number)
    assert abs(distance(turn(cube, name)) - distance(cube)) == 1


@pytest.mark.parametrize(("half_turns", "names"), [(False, QUARTER_TURNS), (True, ALL_TURNS)])
def test_distances_agree_with_a_search_over_stickers(half_turns: bool, names: tuple[str, ...]) -> None:
    random = np.random.default_rng(0)
    for depth in (1, 2, 3):
        cube = solver.draw(depth, random, half_turns=half_turns)
        assert search(cube, names, depth) == depth
    walk = SOLVED
    for name in random.choice(names, 3):
        walk = turn(walk, str(name))
        assert solver.distances(half_turns=half_turns)(walk) == search(walk, names, 3)


@pytest.mark.parametrize("half_turns", [False, True])
def test_following_the_best_turn_solves_any_cube_in_as_many_turns_as_its_distance(half_turns: bool) -> None:
    names = ALL_TURNS if half_turns else QUARTER_TURNS
    random = np.random.default_rng(1)
    for depth in (4, 9, solver.MAX_DISTANCE[half_turns]):
        cube = solver.draw(depth, random, half_turns=half_turns)
        for _ in range(depth):
            assert not is_solved(cube)
            name = solver.best_turn(cube, names, half_turns=half_turns)
            assert name is not None
            cube = turn(cube, name)
        assert is_solved(cube)
        assert solver.best_turn(cube, names, half_turns=half_turns) is None


def test_every_position_at_a_distance_is_drawn_in_every_way_to_hold_it() -> None:
    random = np.random.default_rng(2)
    drawn = {solver.draw(1, random, half_turns=False) for _ in range(2000)}
    assert len(drawn) == 6 * 24  # a cube missed in 2000 draws: 144 * (143/144)**2000 = 1e-4


def test_threads_that_fill_the_same_table_agree() -> None:
    table = solver.Distances(half_turns=False)
    with ThreadPoolExecutor(4) as pool:
        lengths = list(pool.map(lambda _: [len(table.level(n)) for n in range(7)], range(8)))
    assert lengths == [QUARTER_TURN_COUNTS[:7]] * 8
