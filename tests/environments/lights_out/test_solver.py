"""The solver against exhaustive search and known counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ragen.environments.lights_out.rules import press, press_all
from ragen.environments.lights_out.solver import draw_presses, farthest, quiet_patterns, shortest_solution


def search(size: int) -> dict[int, int]:
    """Presses from the dark board to every board that can be reached, by breadth-first search: no algebra."""
    found, frontier = {0: 0}, [0]
    for lights in frontier:
        for button in range(size * size):
            after = press(lights, button, size)
            if after not in found:
                found[after] = found[lights] + 1
                frontier.append(after)
    return found


def test_the_number_of_quiet_sets_is_the_known_one() -> None:
    """2 ** nullity; the nullities of 2 x 2 to 8 x 8 are 0, 0, 4, 2, 0, 0, 0 (sequence A159257 of the OEIS)."""
    assert [len(quiet_patterns(size)) for size in range(2, 9)] == [1, 1, 16, 4, 1, 1, 1]


@pytest.mark.parametrize("size", range(2, 9))
def test_quiet_sets_change_nothing_and_are_all_different(size: int) -> None:
    patterns = quiet_patterns(size)
    assert len(set(patterns)) == len(patterns)
    assert patterns[0] == 0
    assert all(press_all(pattern, size) == 0 for pattern in patterns)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_solutions_are_as_short_as_search_finds_them(size: int) -> None:
    """All 16, 512 and 65 536 boards; the hardest of 4 x 4 takes seven presses."""
    found = search(size)
    assert max(found.values()) == farthest(size)
    for lights in range(0, 1 << size * size, 1 if size < 4 else 7):
        presses = shortest_solution(lights, size)
        if lights not in found:
            assert presses is None
        else:
            assert presses is not None
            assert press_all(presses, size) == lights
            assert presses.bit_count() == found[lights]


def test_of_all_five_by_five_boards_one_in_four_can_be_solved() -> None:
    """A board can be solved if it meets each quiet set in an even number of lights; both tests on 4000 boards."""
    random = np.random.default_rng(0)
    independent = [quiet for quiet in quiet_patterns(5) if quiet]
    solvable = 0
    for lights in random.integers(1 << 25, size=4000).tolist():
        is_even = all((lights & quiet).bit_count() % 2 == 0 for quiet in independent)
        assert (shortest_solution(lights, 5) is not None) == is_even
        solvable += is_even
    # Five standard deviations of a binomial count with probability 1/4.
    assert abs(solvable - 1000) < 5 * (4000 * 3 / 16) ** 0.5


def test_one_and_two_presses_on_five_by_five_give_all_their_boards() -> None:
    """25 boards need one press, 25 * 24 / 2 = 300 need two: the first rows of the exhaustive count."""
    random = np.random.default_rng(1)
    for num_presses, num_boards in ((1, 25), (2, 300)):
        boards = {press_all(draw_presses(5, num_presses, random), 5) for _ in range(4000)}
        assert len(boards) == num_boards


@pytest.mark.parametrize(("size", "num_presses"), [(2, 4), (3, 9), (4, 7), (5, 6), (5, 15), (8, 30)])
def test_a_drawn_start_needs_exactly_so_many_presses(size: int, num_presses: int) -> None:
    random = np.random.default_rng(2)
    lengths = Counter()
    for _ in range(5):
        solution = shortest_solution(press_all(draw_presses(size, num_presses, random), size), size)
        assert solution is not None
        lengths[solution.bit_count()] += 1
    assert lengths == {num_presses: 5}
