"""Shortest routes on small maps worked by hand; the expert bot behind a bound."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from ragen.environments.adapters import minigrid_oracle as oracle
from ragen.environments.adapters.minigrid_env import MiniGridConfig
from ragen.environments.adapters.minigrid_text import Codes

CODES = {
    "#": (2, 5, 0),
    ".": (1, 0, 0),
    "G": (8, 1, 0),
    "L": (9, 0, 0),
    "o": (4, 0, 0),
    "c": (4, 0, 1),
    "x": (4, 0, 2),
    "B": (6, 0, 0),
}
LEFT, RIGHT, FORWARD, TOGGLE = oracle.LEFT, oracle.RIGHT, oracle.FORWARD, oracle.TOGGLE
EAST, SOUTH, WEST, NORTH = range(4)


def world(*rows: str) -> Codes:
    return np.array([[CODES[symbol] for symbol in row] for row in rows], dtype=np.uint8).transpose(1, 0, 2)


def test_a_straight_way_needs_no_turn_and_one_behind_two() -> None:
    hall = world("#####", "#..G#", "#####")
    assert oracle.route_to_goal(hall, (1, 1, EAST)) == [FORWARD, FORWARD]
    assert oracle.route_to_goal(hall, (1, 1, NORTH)) == [RIGHT, FORWARD, FORWARD]
    route = oracle.route_to_goal(hall, (1, 1, WEST))
    assert route in ([LEFT, LEFT, FORWARD, FORWARD], [RIGHT, RIGHT, FORWARD, FORWARD])
    assert oracle.route_to_goal(hall, (3, 1, WEST)) == []


def test_fewest_actions_count_turns_too() -> None:
    """Along the edge: 2 forward, a turn, 2 forward. In steps a staircase would be as short, but it takes three turns."""
    room = world("#####", "#...#", "#...#", "#..G#", "#####")
    assert oracle.route_to_goal(room, (1, 1, EAST)) == [FORWARD, FORWARD, RIGHT, FORWARD, FORWARD]


def test_a_closed_door_costs_a_toggle_and_an_open_one_nothing() -> None:
    assert oracle.route_to_goal(world("#####", "#.oG#", "#####"), (1, 1, EAST)) == [FORWARD, FORWARD]
    assert oracle.route_to_goal(world("#####", "#.cG#", "#####"), (1, 1, EAST)) == [TOGGLE, FORWARD, FORWARD]


@pytest.mark.parametrize("barrier", ["L", "x", "B", "#"])
def test_nothing_leads_through_lava_locked_doors_objects_or_walls(barrier: str) -> None:
    assert oracle.route_to_goal(world("#####", f"#.{barrier}G#", "#####"), (1, 1, EAST)) is None
    way_round = world("#####", f"#.{barrier}G#", "#...#", "#####")
    assert oracle.route_to_goal(way_round, (1, 1, SOUTH)) == [FORWARD, LEFT, FORWARD, FORWARD, LEFT, FORWARD]


@pytest.mark.skipif(find_spec("minigrid") is None, reason="needs minigrid")
def test_the_bot_gives_up_instead_of_searching_for_ever() -> None:
    """In some levels of UnlockToUnlock the package's bot never answers."""
    config = MiniGridConfig(id="BabyAI-UnlockToUnlock-v0")
    config.check()
    num_stuck = 0
    for seed in range(8):
        expert = oracle.Expert(config.make_level, seed)
        played: list[int] = []
        while (plan := expert.plan(played)) and len(played) < 100:
            played.append(plan[0])
        num_stuck += expert._bot.num_searches > oracle.MAX_SEARCHES
    assert num_stuck > 0
