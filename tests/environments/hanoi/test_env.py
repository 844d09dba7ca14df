"""The Tower of Hanoi as an environment: what is read and paid, and that it can be solved."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.hanoi.env import HanoiConfig, HanoiEnv
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.hanoi.env:HanoiEnv"
STANDARD_SOLUTION = ("A to C", "A to B", "C to B", "A to C", "B to A", "B to C", "A to C")


def standard() -> HanoiEnv:
    """Three disks on peg A."""
    env = HanoiEnv(HanoiConfig(start="standard"))
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_disks": 1},
        {"num_disks": 4, "num_pegs": 4, "goal": "random"},
        {"num_pegs": 5, "num_disks": 3, "start": "standard", "goal": "random"},
    ],
)
def test_it_keeps_the_contract(options: dict[str, Any]) -> None:
    check_environment(NAME, options)


def test_the_seven_moves_of_three_disks() -> None:
    env = standard()
    assert env.reset()[0] == "A: 3 2 1\nB: empty\nC: empty"
    answers = [env.step(move) for move in STANDARD_SOLUTION]
    assert [answer[0] for answer in answers[:2]] == ["A: 3 2\nB: empty\nC: 1", "A: 3\nB: 2\nC: 1"]
    assert answers[-1] == ("A: empty\nB: empty\nC: 3 2 1", 1.0, True, False, {"success": True, "effective": True})
    assert [answer[1] for answer in answers] == [0.0] * 6 + [1.0]
    with pytest.raises(ResetNeeded):
        env.step("C to A")


def test_a_move_that_is_not_allowed_changes_nothing_and_says_why() -> None:
    env = standard()
    expected = {"success": False, "effective": False}
    assert env.step("B to C") == ("Not allowed: peg B is empty.\nA: 3 2 1\nB: empty\nC: empty", 0.0, False, False, expected)
    env.step("A to C")
    observation = "Not allowed: disk 2 cannot lie on disk 1, which is smaller.\nA: 3 2\nB: empty\nC: 1"
    assert env.step("A to C") == (observation, 0.0, False, False, expected)


def test_the_oracle_solves_the_standard_tower_in_seven_moves_and_replans() -> None:
    env = standard()
    assert [_step_oracle(env) for _ in range(7)] == list(STANDARD_SOLUTION)
    env = standard()
    env.step("A to B")  # the wrong way: 1 to B, now eight moves in all
    moves = 1
    while env.oracle_action() is not None:
        _step_oracle(env)
        moves += 1
    assert moves == 8


def _step_oracle(env: HanoiEnv) -> str:
    action = env.oracle_action()
    assert action is not None
    env.step(action)
    return action


def test_a_random_start_differs_from_the_goal_and_from_seed_to_seed() -> None:
    env = HanoiEnv(HanoiConfig(num_disks=1))
    assert {(env.reset(seed=seed), env.state)[1] for seed in range(30)} == {(0,), (1,)}
    env = HanoiEnv()
    assert len({(env.reset(seed=seed), env.state)[1] for seed in range(300)}) == 26


def test_the_instruction_says_everything_but_the_budget() -> None:
    env = standard()
    for needed in ("move all disks to peg C", "A, B, C", "1 is the smallest, 3 the largest", "bottom to the top", '"A to B"'):
        assert needed in env.instruction
    assert "reward 1" in env.instruction
    env = HanoiEnv(HanoiConfig(goal="random", num_pegs=4))
    env.reset(seed=0)
    assert "reach this position:\nA: " in env.instruction
    assert "The pegs are A, B, C, D." in env.instruction


def test_a_random_goal_is_reached_in_the_position_that_is_written() -> None:
    env = HanoiEnv(HanoiConfig(goal="random"))
    for seed in range(10):
        observation, _ = env.reset(seed=seed)
        success = False
        while not success:
            observation, *_, info = env.step(env.oracle_action() or "")
            success = info["success"]
        assert f"reach this position:\n{observation}\n" in env.instruction


def test_a_copy_in_mid_episode_goes_on_identically() -> None:
    env = HanoiEnv()
    env.reset(seed=3)
    env.step("A to B")
    twins = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    episodes = [[twin.step(action) for action in ("A to B", "B to A", "A to B")] for twin in twins]
    assert episodes[0] == episodes[1] == episodes[2]


def test_the_same_seed_gives_the_same_position_in_another_process() -> None:
    options = {"num_disks": 5, "num_pegs": 4, "goal": "random"}
    assert first_prompt_elsewhere(NAME, options, 12, hash_seed=1) == first_prompt(NAME, options, 12)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_disks": 0}, "num_disks=0: must be within 1..9"),
        ({"num_disks": 10}, "num_disks=10: must be within 1..9"),
        ({"num_pegs": 2}, "num_pegs=2: must be within 3..5"),
        ({"num_pegs": 6}, "num_pegs=6: must be within 3..5"),
        ({"num_pegs": 4, "num_disks": 8}, "num_disks=8: must be at most 7 with num_pegs=4"),
        ({"start": "standart"}, "did you mean 'standard'?"),
        ({"goal": "anywhere"}, "goal='anywhere': must be one of standard, random"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_in_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.make(NAME, options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
