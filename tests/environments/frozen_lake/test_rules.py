"""The frozen lake's rules: moves, slips, drawn lakes, written maps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.environments.frozen_lake.rules import ACTIONS, Lake, draw_lake, is_reachable, neighbours, read_map, slip
from ragen.errors import ConfigError

LEFT, DOWN, RIGHT, UP = range(4)


def test_a_move_goes_one_cell_and_stops_at_the_edge() -> None:
    """A 2 x 3 lake: cells 0 1 2 above 3 4 5."""
    around = neighbours(2, 3)
    assert around[0] == (0, 3, 1, 0)
    assert around[2] == (1, 5, 2, 2)
    assert around[4] == (3, 4, 5, 1)
    assert [name for name, to in zip(ACTIONS, around[4], strict=True) if to == 1] == ["Up"]


@pytest.mark.parametrize(
    ("direction", "sides"), [(LEFT, {UP, DOWN}), (RIGHT, {UP, DOWN}), (UP, {LEFT, RIGHT}), (DOWN, {LEFT, RIGHT})]
)
def test_a_slip_goes_to_one_of_the_two_sides(direction: int, sides: set[int]) -> None:
    """With success_rate 0.8 the chances 0 to 0.8 go ahead, 0.8 to 0.9 to one side, 0.9 to 1 to the other."""
    assert slip(direction, 0.0, 0.8) == slip(direction, 0.799, 0.8) == direction
    assert {slip(direction, 0.801, 0.8), slip(direction, 0.901, 0.8)} == sides
    assert slip(direction, 0.801, 0.8) == slip(direction, 0.899, 0.8)
    assert slip(direction, 0.999999, 1.0) == direction


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(2, 8), frozen_prob=st.floats(0.0, 1.0), seed=st.integers(0, 2**32))
def test_every_legal_option_gives_a_lake_that_fits(data: st.DataObject, size: int, frozen_prob: float, seed: int) -> None:
    min_distance = data.draw(st.integers(1, 2 * (size - 1)))
    lake = draw_lake(size, frozen_prob, min_distance, np.random.default_rng(seed))
    rows = abs(lake.start // size - lake.goal // size)
    columns = abs(lake.start % size - lake.goal % size)
    assert rows + columns >= min_distance
    assert is_reachable(lake)
    assert not lake.holes & {lake.start, lake.goal}
    assert lake.holes <= set(range(size * size))


def test_a_lake_almost_without_ice_is_built_around_one_way() -> None:
    """Corner to corner of a 5 x 5 lake takes 8 moves over 9 cells; everything else is a hole."""
    for seed in range(20):
        lake = draw_lake(5, 0.0, 8, np.random.default_rng(seed))
        assert len(lake.holes) == 25 - 9
        assert is_reachable(lake)


def test_start_and_goal_are_anywhere_and_the_ice_is_as_dense_as_asked() -> None:
    """With frozen_prob 1 every pair is equally likely: all 12 ordered pairs of a 2 x 2 lake turn up."""
    random = np.random.default_rng(0)
    pairs = {(lake.start, lake.goal) for lake in (draw_lake(2, 1.0, 1, random) for _ in range(300))}
    assert pairs == {(a, b) for a in range(4) for b in range(4) if a != b}
    assert not draw_lake(6, 1.0, 1, random).holes


def test_neighbours_of_the_start_can_be_excluded() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        lake = draw_lake(3, 0.8, 2, random)
        assert lake.goal not in neighbours(3, 3)[lake.start]


def test_a_written_map_is_read_row_by_row() -> None:
    assert read_map(["SFF", "HFG"]) == Lake(height=2, width=3, start=0, goal=5, holes=frozenset({3}))


def test_a_map_may_be_of_any_rectangle() -> None:
    """bug-log row 38: a 10 x 12 map, the goal in the last corner."""
    lake = read_map(["SFFFFFFFFFFF", *["FFFFFFFFFFFF"] * 8, "FFFFFFFFFFFG"])
    assert (lake.height, lake.width, lake.start, lake.goal) == (10, 12, 0, 119)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["SHF", "HFF", "FFG"], "must let the goal be reached"),
        (["SF", "FFG"], "rows of equal length"),
        (["FF", "FG"], "exactly one start S, not 0"),
        (["SS", "FG"], "exactly one start S, not 2"),
        (["SF", "FF"], "exactly one goal G, not 0"),
        (["SG", "GF"], "exactly one goal G, not 2"),
        (["SX", "FG"], "not 'X'"),
        ([], "rows of equal length"),
        ([""], "rows of equal length"),
    ],
)
def test_a_map_that_cannot_be_played_is_refused_in_one_line(rows: list[str], says: str) -> None:
    """bug-log row 38: walled-in goal, ragged rows, no start."""
    with pytest.raises(ConfigError) as caught:
        read_map(rows)
    assert says in str(caught.value)
    assert str(caught.value).startswith("map=")
    assert "\n" not in str(caught.value)
