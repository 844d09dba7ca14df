"""The frozen lake's transition table against Gymnasium's, its policies against lakes worked by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ragen.environments.frozen_lake.env import FrozenLakeConfig, FrozenLakeEnv
from ragen.environments.frozen_lake.rules import Lake, draw_lake, read_map
from ragen.environments.frozen_lake.solver import best_directions, success_odds, transitions

LEFT, DOWN, RIGHT, UP = range(4)
PAGE = Path(__file__).parents[3] / "docs/environments/frozen_lake.md"


def written(lake: Lake) -> list[str]:
    """The lake as Gymnasium reads it."""
    symbols = {lake.start: "S", lake.goal: "G", **dict.fromkeys(lake.holes, "H")}
    text = "".join(symbols.get(cell, "F") for cell in range(lake.num_cells))
    return [text[i : i + lake.width] for i in range(0, lake.num_cells, lake.width)]


def gymnasium_table(lake: Lake, success_rate: float) -> Any:
    """P[cell][action] = [(probability, next cell, reward, terminated), ...] of FrozenLake-v1, an independent implementation."""
    env = gymnasium.make("FrozenLake-v1", desc=written(lake), is_slippery=success_rate < 1.0, success_rate=success_rate)
    return env.unwrapped.P  # type: ignore[attr-defined]


@pytest.mark.parametrize("success_rate", [1 / 3, 0.8, 1.0])
def test_the_transition_table_is_gymnasiums(success_rate: float) -> None:
    random = np.random.default_rng(5)
    for size in (2, 3, 4, 4, 5, 8):
        lake = draw_lake(size, 0.8, 1, random)
        expected = np.zeros((4, lake.num_cells, lake.num_cells))
        for cell, actions in gymnasium_table(lake, success_rate).items():
            for action, outcomes in actions.items():
                for probability, to, reward, _ in outcomes:
                    expected[action, cell, to] += probability
                    assert reward == (to == lake.goal and cell != lake.goal)
        np.testing.assert_allclose(transitions(lake, success_rate), expected, atol=1e-12)


@pytest.mark.parametrize("success_rate", [1 / 3, 0.8, 1.0])
def test_the_odds_are_those_of_gymnasiums_table(success_rate: float) -> None:
    """Backward induction in plain Python over Gymnasium's transitions."""
    lake = draw_lake(4, 0.8, 2, np.random.default_rng(8))
    table = gymnasium_table(lake, success_rate)
    best = fair = {cell: float(cell == lake.goal) for cell in range(16)}
    for _ in range(7):
        of_best = {s: [sum(p * best[to] for p, to, _, _ in table[s][a]) for a in range(4)] for s in range(16)}
        of_fair = {s: [sum(p * fair[to] for p, to, _, _ in table[s][a]) for a in range(4)] for s in range(16)}
        best = {s: max(values) for s, values in of_best.items()}
        fair = {s: sum(values) / 4 for s, values in of_fair.items()}
    odds = success_odds(lake, success_rate, 7)
    assert odds["best"] == pytest.approx(best[lake.start], abs=1e-12)
    assert odds["random"] == pytest.approx(fair[lake.start], abs=1e-12)
    assert odds["unlimited"] <= odds["best"] + 1e-12


def test_with_time_to_wait_the_safe_way_is_best_and_without_it_the_fast_one() -> None:
    """S and G side by side above two holes, success_rate 0.8.

    Right: 0.8 goal, 0.1 stay (slip up), 0.1 hole. Up: never the hole, 0.1 goal (slip right), else stay.
    Playing Up for ever succeeds surely. V1 = 0.8; V2 = max(0.8 + 0.1 * 0.8, 0.1 + 0.9 * 0.8) = 0.88 by Right;
    V3 = max(0.8 + 0.1 * 0.88, 0.1 + 0.9 * 0.88) = 0.892 by Up.
    """
    plan = best_directions(read_map(["SG", "HH"]), 0.8, 4)
    assert [directions[0] for directions in plan] == [UP, RIGHT, RIGHT, UP, UP]
    for num_actions, best in ((1, 0.8), (2, 0.88), (3, 0.892)):
        assert success_odds(read_map(["SG", "HH"]), 0.8, num_actions)["best"] == pytest.approx(best, abs=1e-12)


def test_on_safe_ice_it_takes_the_shortest_way() -> None:
    """bug-log row 40's map, and a detour: (0,0) down, right, right, up; going right would cost a hole."""
    assert best_directions(read_map(["SFFG"]), 1.0)[0][:3] == (RIGHT, RIGHT, RIGHT)
    plan = best_directions(read_map(["SHG", "FFF"]), 1.0)[0]
    assert (plan[0], plan[3], plan[4], plan[5]) == (DOWN, RIGHT, RIGHT, UP)


def test_a_horizon_too_short_for_the_way_still_goes_the_way() -> None:
    assert [directions[0] for directions in best_directions(read_map(["SFFFFG"]), 1.0, 3)] == [RIGHT] * 4


@pytest.mark.parametrize("success_rate", [1 / 3, 0.8])
def test_the_unlimited_policy_succeeds_as_often_as_any_policy_ever_can(success_rate: float) -> None:
    """After 3000 moves next to no walk is still on its way: its odds must meet those of backward induction."""
    random = np.random.default_rng(2)
    for _ in range(10):
        odds = success_odds(draw_lake(4, 0.7, 1, random), success_rate, 3000)
        assert odds["unlimited"] == pytest.approx(odds["best"], abs=2e-3)
        assert odds["unlimited"] > odds["random"] - 1e-9


def test_a_lake_of_the_largest_size_is_solved() -> None:
    lake = draw_lake(20, 0.9, 30, np.random.default_rng(3))
    odds = success_odds(lake, 1.0, 100)
    assert odds["unlimited"] == odds["best"] == 1.0


def test_the_page_gives_floor_and_ceiling_as_they_are() -> None:
    """bug-log row 43: the settings stand beside the figures, and random and optimal play are given for each."""
    rows = re.findall(r"^\| (1/3|0\.8|1\.0) \| (0\.[89]) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [(rate, density) for rate, density, *_ in rows] == [("1/3", "0.9"), ("0.8", "0.9"), ("1.0", "0.9"), ("1/3", "0.8")]
    for rate, density, *figures in rows:
        success_rate = {"1/3": 1 / 3, "0.8": 0.8, "1.0": 1.0}[rate]
        env = FrozenLakeEnv(FrozenLakeConfig(success_rate=success_rate, frozen_prob=float(density)))
        odds = []
        for seed in range(1000):
            env.reset(seed=seed)
            odds.append(success_odds(env.lake, success_rate, 10))
        for name, figure in zip(("random", "unlimited", "best"), figures, strict=True):
            assert float(figure) == pytest.approx(np.mean([each[name] for each in odds]), abs=0.0006)
