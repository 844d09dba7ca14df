"""The cube as an environment: what is read and paid, how it ends, what the oracle does after any action."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.rubiks_cube.env import RubiksCubeEnv
from ragen.environments.rubiks_cube.rules import ALL_TURNS, QUARTER_TURNS, SOLVED, is_solved, show, turn
from ragen.environments.rubiks_cube.solver import distances
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.rubiks_cube.env:RubiksCubeEnv"


def at(cube: str, **options: object) -> RubiksCubeEnv:
    """An episode that stands at `cube`."""
    env = registry.make(NAME, options)
    assert isinstance(env, RubiksCubeEnv)
    env.reset(seed=0)
    env.cube = cube
    return env


def test_it_keeps_the_contract() -> None:
    check_environment(NAME)
    check_environment(NAME, {"scramble_depth": 5, "half_turns": True, "step_penalty": 0.01})


def test_the_last_turn_is_paid_and_ends_the_episode_with_success() -> None:
    env = at(turn(turn(SOLVED, "R"), "U"))
    text, reward, terminated, truncated, info = env.step("U'")
    assert (text, reward, terminated, truncated) == (show(turn(SOLVED, "R")), 0.0, False, False)
    assert info == {"success": False, "effective": True}
    text, reward, terminated, truncated, info = env.step("R'")
    assert (text, reward, terminated, truncated) == (f"The cube is solved.\n{show(SOLVED)}", 1.0, True, False)
    assert info == {"success": True, "effective": True}


def test_it_may_be_solved_the_other_way_round() -> None:
    """L after R' solves as well: the same cube, held differently."""
    env = at(turn(SOLVED, "R"))
    _, reward, terminated, _, info = env.step("L'")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert env.cube != SOLVED


@pytest.mark.parametrize("half_turns", [False, True])
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_a_scramble_is_as_deep_as_asked_for(depth: int, half_turns: bool) -> None:
    env = registry.make(NAME, {"scramble_depth": depth, "half_turns": half_turns})
    assert isinstance(env, RubiksCubeEnv)
    for seed in range(20):
        env.reset(seed=seed)
        assert not is_solved(env.cube)
        assert distances(half_turns=half_turns)(env.cube) == depth


def test_the_oracle_earns_the_best_return() -> None:
    env = registry.make(NAME, {"scramble_depth": 4, "step_penalty": 0.05})
    for seed in range(10):
        env.reset(seed=seed)
        rewards, terminated = [], False
        while not terminated:
            _, reward, terminated, _, info = env.step(env.oracle_action() or "")
            rewards.append(reward)
        assert info["success"]
        assert rewards == [-0.05, -0.05, -0.05, 0.95]
        assert env.max_return() == pytest.approx(sum(rewards), abs=1e-12)
        assert env.oracle_action() is None


def test_the_oracle_plans_again_after_any_turn() -> None:
    env = RubiksCubeEnv()
    env.reset(seed=0)
    for action in np.random.default_rng(3).choice(QUARTER_TURNS, 40):
        if env.step(str(action))[2]:
            break
        before = distances(half_turns=False)(env.cube)
        assert distances(half_turns=False)(turn(env.cube, env.oracle_action() or "")) == before - 1


def test_half_turns_are_actions_only_where_asked_for() -> None:
    env, more = RubiksCubeEnv(), registry.make(NAME, {"half_turns": True})
    env.reset(seed=0)
    more.reset(seed=0)
    assert env.action_names == QUARTER_TURNS
    assert more.action_names == ALL_TURNS
    assert "2 after" not in env.instruction
    assert "A 2 after it turns it by half." in more.instruction


def test_the_instruction_says_how_to_read_and_turn() -> None:
    env = registry.make(NAME, {"step_penalty": 0.01})
    env.reset(seed=0)
    for needed in ("every face shows one colour", "U (up)", "Y yellow", "upper row / lower row", "clockwise", "costs 0.01"):
        assert needed in env.instruction
    assert ", ".join(QUARTER_TURNS) in env.instruction


def test_a_copy_in_the_middle_of_an_episode_goes_on_identically() -> None:
    env = registry.make(NAME, {"scramble_depth": 8})
    env.reset(seed=1)
    env.step("U")
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = [env.step(action) for action in ("F", "L'", "D", "B'")] + [env.oracle_action()]
    for other in copies:
        assert [other.step(action) for action in ("F", "L'", "D", "B'")] + [other.oracle_action()] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scramble_depth": 0}, r"scramble_depth=0: must be within 1\.\.14; 14 quarter turns solve any cube"),
        ({"scramble_depth": 15}, r"scramble_depth=15: must be within 1\.\.14"),
        ({"scramble_depth": 12, "half_turns": True}, r"scramble_depth=12: must be within 1\.\.11; 11 turns solve any cube"),
        ({"step_penalty": -0.1}, "step_penalty=-0.1: must be at least 0"),
    ],
)
def test_an_impossible_option_is_refused_in_one_line(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.make(NAME, options)


def test_another_process_scrambles_alike() -> None:
    assert first_prompt_elsewhere(NAME, {}, 11, hash_seed=1) == first_prompt(NAME, {}, 11)
