"""A class that is a gymnasium.Env plays as a TextEnv without a change to it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments import registry
from ragen.environments.adapters.gymnasium_env import wrap
from ragen.environments.checker import check_environment
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere
from tests.support.outside_envs import Drift, GuessNumber, Steering

HERE = "tests.support.outside_envs"
GUESS = f"{HERE}:GuessNumber"
DRIFT = f"{HERE}:Drift"


@pytest.mark.parametrize(
    ("name", "options"),
    [(GUESS, {"high": 9}), (DRIFT, {}), (DRIFT, {"observation": "values", "slip": 0.0}), (f"{HERE}:Undocumented", {})],
)
def test_a_wrapped_class_keeps_the_contract(name: str, options: dict[str, Any]) -> None:
    check_environment(name, options)


def test_text_in_and_text_out_are_passed_through_and_scalars_become_plain() -> None:
    env = registry.make(GUESS, {"high": 9})
    plain = GuessNumber(high=9)
    assert env.reset(seed=3) == plain.reset(seed=3) == ("Hello. From 1 to 9.", {})
    assert (env.instruction, env.action_names) == ("Guess the hidden number. Reply with digits.", None)
    assert env.step("what?\n") == ("That is no number.", 0.0, False, False, {"success": False, "effective": False})
    answer = env.step(str(plain.number))
    assert answer == ("Yes.", 1.0, True, False, {"guess": plain.number, "success": True, "effective": True})
    assert [type(value) for value in answer[1:4]] == [float, bool, bool]


def test_the_arguments_of_the_constructor_are_options() -> None:
    options = {option.name: (option.type, option.default) for option in registry.describe(DRIFT).options}
    assert options["slip"] == ("float", 0.5)
    assert options["name"] == ("str | None", None)
    assert options["check_flags"] == ("bool", False)
    assert "render_mode" not in options
    assert options["observation"] == ("str", "auto")
    assert registry.make(DRIFT, {"slip": 0}).config.slip == 0.0
    with pytest.raises(ConfigError, match=r"Drift.slip='x': must be float, not str"):
        registry.make(DRIFT, {"slip": "x"})
    with pytest.raises(ConfigError, match=r"GuessNumber\.high is missing"):
        registry.make(GUESS)


def test_a_list_in_the_constructor_is_nobody_elses() -> None:
    first, second = registry.make(GUESS, {"high": 3}), registry.make(GUESS, {"high": 3})
    first.outside.greetings.append("changed")
    assert first.config.greetings == ["Hello."]
    first.config.greetings.append("changed")
    assert (second.outside.greetings, second.config.greetings) == (["Hello."], ["Hello."])
    assert registry.make(GUESS, {"high": 3}).outside.greetings == ["Hello."]


def test_discrete_actions_are_called_by_name_and_counted_from_their_start() -> None:
    env = registry.make(DRIFT, {"slip": 0.0})
    env.reset(seed=0)
    position = env.outside.position
    assert env.action_names == ("left", "right")
    assert env.step(" RIGHT ")[0] == "." * (position + 1) + "[green:P]" + "." * (2 - position)
    numbered = registry.make(DRIFT, {"slip": 0.0, "action_names": ["5", "6"]})
    numbered.reset(seed=0)
    assert numbered.step("6")[0] == env.outside.render().replace("\x1b[32;1m", "[green:").replace("\x1b[0m", "]")


def test_what_is_no_text_is_rendered_if_it_can_be_and_else_written_out() -> None:
    env = registry.make(DRIFT, {"observation": "values"})
    observation, _ = env.reset(seed=0)
    assert observation == f"position: {env.outside.position}\nwind: 0.25 0"
    assert env.outside.render_mode is None
    drawn = registry.make(DRIFT, {"observation": "ansi"})
    assert "[green:P]" in drawn.reset(seed=0)[0]
    assert "[red:X] is an X shown in red" in drawn.instruction
    with pytest.raises(ConfigError, match=r"observation='ansi': GuessNumber does not offer render_mode='ansi'"):
        registry.make(GUESS, {"high": 3, "observation": "ansi"})


def test_the_instruction_is_the_option_else_the_attribute_else_the_docstring() -> None:
    env = registry.make(DRIFT, {"instruction": "Go."})
    env.reset(seed=0)
    assert env.instruction.splitlines()[0] == "Go."
    assert env.instruction.splitlines()[-1] == "Actions: left, right."
    env = registry.make(DRIFT)
    env.reset(seed=0)
    assert env.instruction.startswith("Walk to position 3.\n")
    env = registry.make(f"{HERE}:Undocumented")
    env.reset(seed=0)
    assert env.instruction == "Guess the hidden number. Reply with digits."  # its parent's; never Gymnasium's own


def test_an_end_reached_on_the_last_step_is_terminated_and_a_success() -> None:
    """Bug-log row 40: both flags set on one step. It counts as success, and the episode ends once."""
    env = registry.make(DRIFT, {"slip": 0.0})
    seed = next(seed for seed in range(20) if Drift().reset(seed=seed)[0]["position"] == 0)
    env.reset(seed=seed)
    env.step("right")
    env.step("right")
    raw = copy.deepcopy(env.outside).step(6)
    assert raw[2:4] == (True, True)
    assert env.step("right")[1:4] == (1.0, True, False)
    with pytest.raises(ResetNeeded):
        env.step("right")


def test_a_cut_is_truncated_and_no_success() -> None:
    env = registry.make(DRIFT, {"slip": 1.0})
    env.reset(seed=0)
    env.step("right")
    env.step("right")
    _, reward, terminated, truncated, info = env.step("right")
    assert (reward, terminated, truncated, info) == (0.0, False, True, {"is_success": False, "success": False, "effective": True})


def test_what_changes_nothing_is_not_effective() -> None:
    env = registry.make(DRIFT, {"slip": 1.0})
    env.reset(seed=0)
    assert env.step("right")[4]["effective"] is False


def test_members_of_a_group_share_the_start_and_not_the_chance() -> None:
    env = registry.make(DRIFT)
    for seed in range(5):
        starts, ways = set(), set()
        for dynamics_seed in range(30):
            starts.add(env.reset(seed=seed, options={"dynamics_seed": dynamics_seed})[0])
            ways.add((env.step("right")[0], env.step("right")[0]))
        position = Drift().reset(seed=seed)[0]["position"]
        assert starts == {"." * position + "[green:P]" + "." * (3 - position)}
        assert len(ways) == 4  # each of the two steps slips or does not
    assert env.outside.np_random is env.dynamics_random


def test_the_start_is_that_of_the_task_seed_and_a_huge_seed_is_hashed() -> None:
    env = registry.make(GUESS, {"high": 10**6})
    plain = GuessNumber(high=10**6)
    for seed in (0, 1, 2**31 - 1):
        env.reset(seed=seed)
        plain.reset(seed=seed)
        assert env.outside.number == plain.number
    numbers = set()
    for seed in (0, 2**31, 2**32, 2**62, 2**63 + 5):  # those of NumPy's legacy generators would overflow or agree
        env.reset(seed=seed)
        numbers.add(env.outside.number)
    assert len(numbers) == 5


def test_without_a_seed_episodes_go_on_from_the_stream() -> None:
    first, second = registry.make(GUESS, {"high": 10**6}), registry.make(GUESS, {"high": 10**6})
    runs = []
    for env in (first, second):
        env.reset(seed=4)
        numbers = []
        for _ in range(3):
            env.reset()
            numbers.append(env.outside.number)
        runs.append(numbers)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3


def test_instances_and_options_survive_pickle_and_copy_in_the_middle_of_an_episode() -> None:
    env = registry.make(DRIFT, {"slip": 0.5})
    for seed in range(5):
        env.reset(seed=seed, options={"dynamics_seed": 9})
        env.step("left")
        copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        expected = [env.step("right") for _ in range(2)]
        for each in copies:
            assert type(each) is type(env)
            assert each.config == env.config
            assert [each.step("right") for _ in range(2)] == expected
            assert each.outside.np_random is each.dynamics_random  # one stream, also after the copy


def test_the_same_class_and_name_give_the_same_type() -> None:
    assert wrap(Drift, "a") is wrap(Drift, "a")
    assert wrap(Drift, "a") is not wrap(Drift, "b")
    assert registry.load(DRIFT) is wrap(Drift, DRIFT)


def test_an_argument_of_the_constructor_goes_before_an_option_of_that_name() -> None:
    env = registry.make(f"{HERE}:Shadowing", {"instruction": "guess", "observation": 4})
    assert env.reset(seed=0)[0] == "Hello. From 1 to 4."
    assert env.instruction == "Said by the constructor: guess"
    with pytest.raises(ConfigError, match=r"Checked.*argument 'check' must have another name"):
        registry.make(f"{HERE}:Checked")


def test_other_action_spaces_are_refused_in_one_line_before_anything_is_played() -> None:
    with pytest.raises(
        ConfigError, match=r"action_space=Box\(-1.0, 1.0, \(1,\), float32\) of Steering: must be Discrete, or Text"
    ):
        registry.configure(f"{HERE}:Steering", {})
    assert Steering().action_space.shape == (1,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_names": ["left"]}, r"action_names=\['left'\]: must be 2 names, one for each action of Drift"),
        ({"action_names": ["a", "A"]}, "must differ by more than case"),
        ({"observation": "asni"}, "did you mean 'ansi'"),
        ({"success_key": "won", "success_threshold": 1.0}, "cannot stand beside success_key"),
        ({"slip": [1]}, "must be float"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.configure(DRIFT, options)


def test_a_constructor_that_raises_is_a_fault_of_the_options() -> None:
    with pytest.raises(ConfigError, match="cannot be made: IndexError"):
        registry.configure(f"{HERE}:FailsToBegin", {})


def test_names_turn_a_text_space_into_a_choice() -> None:
    env = registry.make(GUESS, {"high": 2, "action_names": ["1", "2"]})
    env.reset(seed=0)
    assert env.action_names == ("1", "2")
    assert env.instruction.splitlines()[-1] == "Actions: 1, 2."
    with pytest.raises(ValueError, match="action '3' is unknown"):
        env.step("3")


def test_a_text_outside_the_text_space_is_answered_and_not_played() -> None:
    env = registry.make(GUESS, {"high": 9})
    env.reset(seed=0)
    assert env.step("9" * 10**6) == (
        "An action must have 1 to 20 characters, not 1000000.",
        0.0,
        False,
        False,
        {"success": False, "effective": False},
    )
    letters = registry.make(f"{HERE}:Lowercase", {})
    letters.reset(seed=0)
    assert letters.step("aB")[0] == "The character 'B' cannot be part of an action."
    assert letters.step("ab")[0] == "That is no number."


@given(st.text())
def test_any_text_at_all_is_answered(text: str) -> None:
    env = registry.make(GUESS, {"high": 9})
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(text)
    assert isinstance(observation, str)
    assert isinstance(reward, float)
    assert not (terminated and truncated)
    assert isinstance(info["effective"], bool)


def test_another_process_reads_the_same() -> None:
    assert first_prompt_elsewhere(DRIFT, {}, 3, hash_seed=7) == first_prompt(DRIFT, {}, 3)
