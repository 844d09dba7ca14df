"""MiniGrid and BabyAI levels as environments."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from ragen.environments import registry
from ragen.environments.adapters.minigrid_env import MiniGridConfig, MiniGridEnv
from ragen.environments.checker import check_environment
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.adapters.minigrid_env:MiniGridEnv"
GO_TO = "BabyAI-GoToLocal-v0"
SYMBOLS_OF_MINIGRID = {"A": "B", "B": "X", "K": "K", "D": "D", "L": "L"}  # its letters for ball, box, key, doors -> ours


def make(**options: Any) -> MiniGridEnv:
    env = registry.make(NAME, options)
    assert isinstance(env, MiniGridEnv)
    return env


def solve(env: MiniGridEnv, limit: int = 100) -> tuple[float, bool, int]:
    """(return, success, number of actions) of the oracle from here."""
    total, success = 0.0, False
    for num_actions in range(limit):
        action = env.oracle_action()
        if action is None:
            return total, success, num_actions
        _, reward, terminated, _, info = env.step(action)
        total, success = total + reward, info["success"]
        if terminated:
            return total, success, num_actions + 1
    return total, success, limit


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"id": "MiniGrid-FourRooms-v0", "observation": "map", "actions": "turns"},
        {"id": GO_TO},
        {"id": GO_TO, "actions": "turns", "observation": "map"},
        {"id": "MiniGrid-Dynamic-Obstacles-6x6-v0"},
        {"id": "MiniGrid-GoToObject-6x6-N2-v0"},
    ],
)
def test_levels_keep_the_contract(options: dict[str, Any]) -> None:
    check_environment(NAME, options, num_seeds=3)


def test_the_published_reward_for_a_goal_five_steps_away() -> None:
    """Seed 1: facing north at (2, 3), the goal at (4, 4). East, east, south are 2 + 1 + 2 = 5 steps: 1 - 0.9 * 5 / 144."""
    env = make()
    observation, _ = env.reset(seed=1)
    assert observation.splitlines() == [
        "Steps: 0 of 144. You face north and carry nothing.",
        "North: 2 free, then a wall.",
        "West: 1 free, then a wall.",
        "East: 2 free, then a wall.",
        "In sight: no objects.",
    ]
    assert env.max_return() == 1 - 0.9 * 5 / 144
    assert env.step("east")[0].splitlines()[-1] == "In sight: green goal (1 east, 1 south)."
    env.step("east")
    answer = env.step("south")
    assert answer[1:4] == (1 - 0.9 * 5 / 144, True, False)
    assert answer[4] == {"success": True, "effective": True, "steps": 5}


def test_a_compass_move_turns_as_needed_and_walls_do_not_move() -> None:
    env = make()
    env.reset(seed=1)
    assert env.step("west")[4] == {"success": False, "effective": True, "steps": 2}
    answer = env.step("west")
    assert answer[4] == {"success": False, "effective": False, "steps": 3}
    assert env.step("west")[0].splitlines()[1] == "West: a wall."
    assert env.step("east")[4]["steps"] == 7  # about face (2) and a step


def test_the_limit_that_the_instruction_names_is_a_failure_and_not_a_cut() -> None:
    env = make(max_steps=3)
    env.reset(seed=1)
    assert "within 3 steps: the reward is 1 - 0.9 * steps / 3." in env.instruction
    env.step("west")
    assert env.step("west")[1:] == (0.0, True, False, {"success": False, "effective": True, "steps": 3})


def test_a_goal_reached_on_the_last_step_counts() -> None:
    """Bug-log row 40: MiniGrid sets both flags then."""
    env = make(max_steps=5)
    env.reset(seed=1)
    env.step("east")
    env.step("east")
    _, reward, terminated, truncated, info = env.step("south")
    assert (terminated, truncated, info["success"]) == (True, False, True)
    assert reward == pytest.approx(0.1)


def test_the_map_agrees_with_the_package_s_own_drawing() -> None:
    """MiniGrid's pprint_grid is the independent source, letter by letter."""
    for seed in range(5):
        env = make(id="BabyAI-MiniBossLevel-v0", observation="map")
        observation, _ = env.reset(seed=seed)
        theirs = env._level.pprint_grid().splitlines()
        for row, line in zip(theirs, observation.splitlines()[1:], strict=True):
            for i, ours in enumerate(line.split()):
                cell = row[2 * i : 2 * i + 2]
                if cell in ("WG", "  ", ">>", "VV", "<<", "^^"):
                    assert ours == {"WG": "##", "  ": ".."}.get(cell, cell.lower())
                else:
                    colour = {"R": "r", "G": "ge", "B": "b", "P": "p", "Y": "y"}[cell[1]]  # it has one letter for two colours
                    assert ours[0] == SYMBOLS_OF_MINIGRID[cell[0]]
                    assert ours[1] in colour


def test_the_instruction_lists_exactly_the_symbols_in_use() -> None:
    env = make(id="MiniGrid-DoorKey-5x5-v0", observation="map")
    observation, _ = env.reset(seed=1)
    assert "Oy open yellow door, Dy closed yellow door, Ly locked yellow door, Ky yellow key, GG green goal." in env.instruction
    shown = set(" ".join(observation.splitlines()[1:]).split())
    assert shown == {"##", "..", "vv", "Ly", "Ky", "GG"}
    assert "~~" not in env.instruction
    assert "Br" not in env.instruction


def test_keys_are_taken_and_doors_unlocked() -> None:
    """Seed 1 of DoorKey 5x5: key south of the agent, door east of it, goal beyond."""
    env = make(id="MiniGrid-DoorKey-5x5-v0", observation="map")
    env.reset(seed=1)
    assert (env.oracle_action(), env.max_return()) == (None, None)  # a locked door: no route
    assert env.step("drop")[4]["effective"] is False
    assert env.step("pick up")[0].splitlines()[0] == "Steps: 2 of 250. You face south and carry a yellow key."
    env.step("turn left")
    observation, *_, info = env.step("toggle")
    assert info["effective"] is True
    assert observation.splitlines()[3].split() == ["##", ">>", "Oy", "..", "##"]
    assert [env.step(action)[2] for action in ("east", "east", "south")] == [False, False, True]


def test_only_levels_in_which_it_means_something_have_done() -> None:
    for level, action in ((GO_TO, "toggle"), ("MiniGrid-GoToDoor-5x5-v0", "done")):
        env = make(id=level, actions="turns")
        env.reset(seed=0)
        assert env.action_names == ("turn left", "turn right", "move forward", "pick up", "drop", action)
    env = make(id="MiniGrid-Dynamic-Obstacles-6x6-v0", actions="turns")
    env.reset(seed=0)
    assert env.action_names == ("turn left", "turn right", "move forward")
    assert "with reward -1" in env.instruction


@pytest.mark.parametrize("actions", ["compass", "turns"])
def test_the_expert_fulfils_missions_also_after_random_actions(actions: str) -> None:
    source = np.random.default_rng(0)
    num_solved = 0
    env = make(id=GO_TO, actions=actions)
    for seed in range(20):
        env.reset(seed=seed)
        names = env.action_names or ()
        usable = [name for name in names if name not in ("pick up", "toggle")]  # an opened box can make a mission impossible
        if any(env.step(usable[source.integers(len(usable))])[2] for _ in range(8)):
            continue
        _, success, num_actions = solve(env)
        assert success
        assert num_actions < 30
        num_solved += 1
    assert num_solved > 10


def test_asking_the_expert_changes_nothing() -> None:
    asked, silent = make(id=GO_TO), make(id=GO_TO)
    for env in (asked, silent):
        env.reset(seed=6)
    for action in ("north", "turn left", "east", "drop", "south"):
        asked.oracle_action()
        assert asked.step(action) == silent.step(action)
    assert asked.oracle_action() == silent.oracle_action()


def test_where_a_box_was_opened_there_is_no_advice() -> None:
    env = make(id="BabyAI-KeyInBox-v0")  # its bot cannot solve it
    env.reset(seed=0)
    assert solve(env)[1] is False
    assert env.oracle_action() is None


@pytest.mark.parametrize("level", [GO_TO, "MiniGrid-Dynamic-Obstacles-6x6-v0", "BabyAI-PutNextLocal-v0"])
def test_an_episode_goes_on_identically_in_a_copy(level: str) -> None:
    env = make(id=level)
    env.reset(seed=3, options={"dynamics_seed": 8})
    first = (env.action_names or ())[0]
    env.oracle_action()
    env.step("turn left")
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    advice = env.oracle_action()
    expected = env.step(first)
    for each in copies:
        assert each.oracle_action() == advice
        assert each.step(first) == expected


def test_members_of_a_group_meet_obstacles_that_move_differently() -> None:
    env = make(id="MiniGrid-Dynamic-Obstacles-16x16-v0", observation="map")
    starts, ways = set(), set()
    for dynamics_seed in range(5):
        starts.add(env.reset(seed=2, options={"dynamics_seed": dynamics_seed})[0])
        ways.add(env.step("turn left")[0])
    assert len(starts) == 1
    assert len(ways) == 5


def test_a_level_that_draws_in_vain_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    env = make(id="BabyAI-GoTo-v0")
    for seed in range(20):
        env.reset(seed=seed)
    assert capsys.readouterr().out == ""


def test_a_picture_is_there_for_people() -> None:
    env = registry.make(NAME, {}, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((96, 96, 3), np.uint8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "BabyAI-GoToLocl-v0"}, "must be a level of MiniGrid or BabyAI; did you mean 'BabyAI-GoToLocal-v0'"),
        ({"id": "FrozenLake-v1"}, "id='FrozenLake-v1': must be a level of MiniGrid or BabyAI"),
        ({"actions": "compas"}, r"actions='compas': must be one of compass, turns; did you mean 'compass'\?"),
        ({"observation": "picture"}, "must be one of words, map"),
        ({"max_steps": 0}, "max_steps=0: must be at least 1, or null"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.configure(NAME, options)


def test_without_the_package_there_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(ConfigError, match=r"needs the package minigrid: pip install 'ragen-rl\[minigrid\]'"):
        MiniGridConfig().check()


def test_another_process_reads_the_same() -> None:
    for options in ({"id": GO_TO}, {"id": "BabyAI-BossLevel-v0", "observation": "map"}):
        assert first_prompt_elsewhere(NAME, options, 3, hash_seed=7) == first_prompt(NAME, options, 3)
