"""The base of every environment: episodes begin and end where they should, seeds decide, faults raise."""

from __future__ import annotations

import warnings

import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from ragen.environments import registry
from ragen.environments.spaces import AnyText, NamedActions
from ragen.errors import ConfigError
from tests.support.corridor import Broken, Corridor, CorridorConfig, num_open


def test_an_episode_worked_by_hand() -> None:
    env = Corridor()
    assert env.reset(seed=0) == ("P _ _ _ G", {})
    assert [env.step("Right")[0] for _ in range(3)] == ["_ P _ _ G", "_ _ P _ G", "_ _ _ P G"]
    observation, reward, terminated, truncated, info = env.step("Right")
    assert (observation, reward, terminated, truncated) == ("_ _ _ _ P", 1.0, True, False)
    assert info["success"] is True
    env.close()


def test_stepping_what_was_never_begun_or_has_ended_raises() -> None:
    env = Corridor(CorridorConfig(start=3))
    with pytest.raises(ResetNeeded):
        env.step("Right")
    env.reset(seed=0)
    env.step("Right")
    with pytest.raises(ResetNeeded):
        env.step("Right")
    env.reset(seed=0)
    env.close()
    with pytest.raises(ResetNeeded):
        env.step("Right")


def test_a_reset_that_fails_leaves_nothing_to_step() -> None:
    env = Corridor()
    env.reset(seed=0)
    env.config.raise_in_reset = True
    with pytest.raises(Broken):
        env.reset(seed=0)
    with pytest.raises(ResetNeeded):
        env.step("Right")
    env.close()


def test_an_unknown_action_raises_with_the_near_match_and_changes_nothing() -> None:
    env = Corridor()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action 'Rigth' is unknown; did you mean 'Right'\? \(actions: Left, Right\)"):
        env.step("Rigth")
    assert env.step(" right ")[0] == "_ P _ _ G"
    env.close()


def test_an_unknown_reset_option_raises() -> None:
    env = Corridor()
    with pytest.raises(ValueError, match="dynamics_sed"):
        env.reset(seed=0, options={"dynamics_sed": 1})
    env.close()


def test_the_task_seed_decides_the_start_and_the_dynamics_seed_the_rest() -> None:
    env = Corridor(CorridorConfig(start=None, slip=0.5))

    def play(task_seed: int, dynamics_seed: int) -> tuple[str, ...]:
        first, _ = env.reset(seed=task_seed, options={"dynamics_seed": dynamics_seed})
        return first, *(env.step("Left")[0] for _ in range(3))

    assert play(1, 1) == play(1, 1)
    starts = {play(task_seed, 0)[0] for task_seed in range(30)}
    assert len(starts) == 4  # the goal itself is no start
    assert {play(3, dynamics_seed)[0] for dynamics_seed in range(30)} == {play(3, 0)[0]}
    assert len({play(3, dynamics_seed) for dynamics_seed in range(30)}) > 1
    env.close()


def test_equal_task_and_dynamics_seeds_still_give_two_streams() -> None:
    env = Corridor()
    env.reset(seed=5, options={"dynamics_seed": 5})
    assert env.np_random.random() != env.dynamics_random.random()
    env.close()


def test_without_a_dynamics_seed_the_task_seed_decides_everything() -> None:
    env = Corridor(CorridorConfig(slip=0.5))

    def play() -> list[str]:
        env.reset(seed=11)
        return [env.step("Right")[0] for _ in range(4)]

    assert play() == play()
    env.reset()  # goes on with both streams
    env.close()


def test_the_action_space_is_that_of_the_episode() -> None:
    env = registry.make("bandit")
    assert isinstance(env.action_space, AnyText)
    env.reset(seed=0)
    assert env.action_space == NamedActions(env.action_names or ())
    env.close()


def test_a_config_out_of_range_is_refused_also_without_the_registry() -> None:
    before = num_open()
    with pytest.raises(ConfigError, match="start=9"):
        Corridor(CorridorConfig(start=9))
    assert num_open() == before


def test_closing_twice_counts_once() -> None:
    before = num_open()
    env = Corridor()
    assert num_open() == before + 1
    env.close()
    env.close()
    assert num_open() == before


def test_gymnasium_accepts_an_environment_too() -> None:
    env = Corridor(CorridorConfig(slip=0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about render modes and spec, which a text environment does without
        check_env(env, skip_render_check=True, skip_close_check=True)
    env.close()
