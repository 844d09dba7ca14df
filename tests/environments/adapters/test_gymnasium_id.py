"""Any registered id of Gymnasium: limits, flags, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from ragen.environments import registry
from ragen.environments.adapters.gymnasium_id import GymnasiumEnv
from ragen.environments.checker import check_environment
from ragen.errors import ConfigError
from tests.support import outside_envs
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.adapters.gymnasium_id:GymnasiumEnv"
RIVER = {"desc": ["SFFG"], "is_slippery": False}
MOVES = ["left", "down", "right", "up"]


@pytest.fixture
def own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of other makers, gone afterwards."""
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    gymnasium.register("NestedLimits-v0", entry_point=outside_envs.nested_limits, max_episode_steps=10)
    gymnasium.register("Restarting-v0", entry_point=outside_envs.restarting)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"id": "Blackjack-v1", "action_names": ["stick", "hit"]},
        {"id": "CartPole-v1", "success_threshold": 475.0},
        {"id": "CliffWalking-v1", "max_episode_steps": 30, "announce_limit": True},
        {"id": "Taxi-v4", "observation": "values"},
        {"id": "tests.support.outside_envs:Acrobot-v1"},
    ],
)
def test_registered_ids_keep_the_contract(options: dict[str, Any]) -> None:
    check_environment(NAME, options)


def test_an_episode_is_the_one_that_gymnasium_plays() -> None:
    """Against the raw environment: the same start, and from there the same chance as its own generator gives."""
    env = registry.make(NAME, {"id": "Blackjack-v1", "action_names": ["stick", "hit"]})
    raw = gymnasium.make("Blackjack-v1")
    for seed in range(30):
        observation, _ = env.reset(seed=seed, options={"dynamics_seed": seed})
        start, _ = raw.reset(seed=seed)
        assert observation == ", ".join(map(str, start))
        raw.unwrapped.np_random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        ended = False
        while not ended:
            action = int(start[0] < 17)
            ours = env.step(("stick", "hit")[action])
            start, reward, ended, _, _ = raw.step(action)
            assert ours[:3] == (", ".join(map(str, start)), float(reward), ended)
        assert ours[4]["success"] is (reward > 0)


def test_what_is_drawn_in_colour_is_read_as_words() -> None:
    env = registry.make(NAME, {"kwargs": RIVER, "action_names": MOVES, "instruction": "Reach G."})
    assert env.reset(seed=0)[0] == "[red:S]FFG"
    assert env.instruction == ("Reach G.\n[red:X] is an X shown in red; other colours likewise.\nActions: left, down, right, up.")
    assert env.step("right")[0] == "  (Right)\nS[red:F]FG"


def test_a_goal_reached_on_the_limit_step_is_a_success_and_ends_once() -> None:
    """Bug-log row 40: map SFFG, limit 3, right three times. Gymnasium sets both flags, and a fourth step raises nothing there."""
    env = registry.make(NAME, {"kwargs": RIVER, "action_names": MOVES, "max_episode_steps": 3})
    env.reset(seed=0)
    env.step("right")
    env.step("right")
    _, reward, terminated, truncated, info = env.step("right")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    with pytest.raises(ResetNeeded):
        env.step("right")


def test_running_into_the_limit_is_a_cut_unless_the_agent_was_told() -> None:
    options: dict[str, Any] = {"kwargs": RIVER, "action_names": MOVES, "max_episode_steps": 2, "instruction": "Reach G."}
    for announced in (False, True):
        env = registry.make(NAME, options | {"announce_limit": announced})
        env.reset(seed=0)
        assert ("The episode ends after 2 actions." in env.instruction) is announced
        env.step("left")
        _, _, terminated, truncated, info = env.step("right")
        assert (terminated, truncated, info["success"]) == (announced, not announced, False)
    with pytest.raises(ConfigError, match=r"announce_limit=True: Blackjack-v1 has no step limit; set max_episode_steps"):
        registry.configure(NAME, {"id": "Blackjack-v1", "announce_limit": True})


@pytest.mark.usefixtures("own_ids")
def test_the_limit_that_counts_is_the_tightest_and_one_that_could_not_hold_is_refused() -> None:
    """Bug-log row 41: a limit of 2 inside one of 10. Episodes end at 2, whatever the outer one says."""
    env = registry.make(NAME, {"id": "NestedLimits-v0", "observation": "values"})
    assert isinstance(env, GymnasiumEnv)
    assert env.step_limit == 2
    env.reset(seed=0)
    assert [env.step("right")[2:4] for _ in range(2)] == [(False, False), (False, True)]
    with pytest.raises(ConfigError, match=r"max_episode_steps=10: NestedLimits-v0 itself ends episodes after 2 steps"):
        registry.configure(NAME, {"id": "NestedLimits-v0", "max_episode_steps": 10, "observation": "values"})
    tighter = registry.make(NAME, {"id": "NestedLimits-v0", "max_episode_steps": 1, "observation": "values"})
    assert isinstance(tighter, GymnasiumEnv)
    assert tighter.step_limit == 1
    lake = registry.make(NAME, {})
    assert isinstance(lake, GymnasiumEnv)
    assert lake.step_limit == 100
    blackjack = registry.make(NAME, {"id": "Blackjack-v1"})
    assert isinstance(blackjack, GymnasiumEnv)
    assert blackjack.step_limit is None


@pytest.mark.usefixtures("own_ids")
def test_no_action_crosses_into_the_next_episode() -> None:
    """Bug-log row 42: under auto-reset the step after the end ignores its action and answers the next episode's start."""
    env = registry.make(NAME, {"id": "Restarting-v0", "observation": "values", "action_names": ["left", "right"]})
    env.reset(seed=0)
    ended = False
    while not ended:
        observation, _, ended, _, _ = env.step("right")
    assert observation.startswith("position: 3\n")
    with pytest.raises(ResetNeeded):
        env.step("right")
    assert not env.reset(seed=1)[0].startswith("position: 3\n")


def test_success_can_be_a_return_that_is_reached_however_the_episode_ends() -> None:
    env = registry.make(
        NAME, {"id": "CartPole-v1", "max_episode_steps": 5, "success_threshold": 5.0, "action_names": ["left", "right"]}
    )
    env.reset(seed=0)
    answers = [env.step(("left", "right")[i % 2]) for i in range(5)]
    assert [answer[4]["success"] for answer in answers] == [False] * 4 + [True]
    assert answers[-1][2:4] == (False, True)


def test_an_episode_goes_on_identically_in_a_copy() -> None:
    env = registry.make(NAME, {"action_names": MOVES})
    env.reset(seed=2, options={"dynamics_seed": 5})
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = [env.step("up") for _ in range(3)]
    assert all([each.step("up") for _ in range(3)] == expected for each in copies)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "FrozenLak-v1"}, r"id='FrozenLak-v1': Gymnasium knows no such environment; did you mean 'FrozenLake-v1'\?"),
        ({"id": "FrozenLake-v99"}, "id='FrozenLake-v99': Environment version `v99`"),
        ({"id": "no_such_module:Maze-v0"}, "no_such_module cannot be imported"),
        ({"id": "Pendulum-v1"}, r"action_space=Box\(.*\) of Pendulum-v1: must be Discrete, or Text for free text"),
        ({"id": "CartPole-v1", "observation": "ansi"}, "CartPole-v1 does not offer render_mode='ansi'"),
        ({"kwargs": {"is_slipery": True}}, "Gymnasium cannot make it: TypeError: .*is_slipery"),
        ({"action_names": ["left", "right"]}, "must be 4 names, one for each action of FrozenLake-v1"),
        ({"max_episode_steps": 0}, "must be at least 1, or null"),
        ({"success_threshold": 1.0, "success_key": "x"}, "cannot stand beside success_key"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        registry.configure(NAME, options)
    assert "\n" not in str(caught.value)


def test_another_process_reads_the_same() -> None:
    options = {"id": "Blackjack-v1"}
    assert first_prompt_elsewhere(NAME, options, 3, hash_seed=7) == first_prompt(NAME, options, 3)
