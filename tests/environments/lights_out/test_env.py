"""Lights Out as an environment: what is read and paid, and that it can be solved."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.lights_out.env import LightsOutConfig, LightsOutEnv
from ragen.environments.lights_out.rules import press_all
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.lights_out.env:LightsOutEnv"


def after_pressing(*buttons: int) -> LightsOutEnv:
    """A 3 x 3 board with some of its nine buttons pressed."""
    env = LightsOutEnv()
    env.reset(seed=0)
    env.lights = press_all(sum(1 << button for button in buttons), 3)
    return env


@pytest.mark.parametrize(
    "options", [{}, {"size": 2, "num_presses": 4}, {"size": 5, "num_presses": 6}, {"size": 8, "num_presses": 12}]
)
def test_it_keeps_the_contract(options: dict[str, Any]) -> None:
    check_environment(NAME, options)


def test_two_presses_put_out_what_two_presses_lit() -> None:
    env = after_pressing(0, 4)
    assert env.step("2,2") == ("110\n100\n000", 0.0, False, False, {"success": False, "effective": True})
    assert env.step("1,1") == ("000\n000\n000", 1.0, True, False, {"success": True, "effective": True})
    with pytest.raises(ResetNeeded):
        env.step("1,1")


@pytest.mark.parametrize(("size", "num_presses"), [(3, 3), (4, 7), (5, 6)])
def test_the_oracle_needs_as_many_presses_as_asked(size: int, num_presses: int) -> None:
    env = LightsOutEnv(LightsOutConfig(size=size, num_presses=num_presses))
    for seed in range(10):
        env.reset(seed=seed)
        answers = []
        while (action := env.oracle_action()) is not None:
            answers.append(env.step(action))
        assert len(answers) == num_presses
        assert [answer[1] for answer in answers] == [0.0] * (num_presses - 1) + [1.0]


def test_the_oracle_replans_after_any_press() -> None:
    """On 3 x 3 each board has one solution: a needless press is to be taken back."""
    env = after_pressing(0, 4)
    env.step("3,3")
    wanted = set()
    while (action := env.oracle_action()) is not None:
        wanted.add(action)
        env.step(action)
    assert wanted == {"1,1", "2,2", "3,3"}


def test_the_instruction_says_everything_but_the_budget() -> None:
    env = LightsOutEnv(LightsOutConfig(size=4))
    observation, _ = env.reset(seed=0)
    for needed in ("4 rows and 4 columns", "turn all lights off", "1 a light that is on", "from 1 at the top to 4", "row,column"):
        assert needed in env.instruction
    assert [len(row) for row in observation.split("\n")] == [4] * 4
    assert set(observation) <= set("01\n")
    assert len(env.action_names or ()) == 16
    assert not any("||" in name for name in env.action_names or ())


def test_a_copy_in_mid_episode_goes_on_identically() -> None:
    env = LightsOutEnv()
    env.reset(seed=3)
    env.step("1,1")
    twins = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    episodes = [[twin.step(action) for action in ("1,2", "2,3", "1,2")] for twin in twins]
    assert episodes[0] == episodes[1] == episodes[2]


def test_the_same_seed_gives_the_same_board_in_another_process() -> None:
    options = {"size": 5, "num_presses": 8}
    here = first_prompt(NAME, options, 12)
    assert first_prompt_elsewhere(NAME, options, 12, hash_seed=1) == here
    assert first_prompt(NAME, options, 13) != here


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": 1}, "size=1: must be within 2..8"),
        ({"size": 9}, "size=9: must be within 2..8"),
        ({"num_presses": 0}, "num_presses=0: must be within 1..9 for size=3"),
        ({"num_presses": 10}, "num_presses=10: must be within 1..9 for size=3"),
        ({"size": 4, "num_presses": 8}, "num_presses=8: must be within 1..7 for size=4"),
        ({"size": 5, "num_presses": 16}, "num_presses=16: must be within 1..15 for size=5"),
        ({"presses": 3}, "did you mean 'num_presses'?"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_in_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.make(NAME, options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
