"""Countdown as an environment: what is read, what is paid, when it ends, which problems belong to which split."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.checker import check_environment
from ragen.environments.countdown.env import CountdownConfig, CountdownEnv
from ragen.environments.countdown.rules import Problem
from ragen.environments.registry import configure
from ragen.errors import ConfigError
from ragen.records import Split
from ragen.rollout.state_manager import episode_seeds

NAME = "ragen.environments.countdown.env:CountdownEnv"
PROBLEM = Problem(numbers=(2, 3, 7), target=13, solution="2 * 3 + 7")


def playing(problem: Problem = PROBLEM, **options: Any) -> CountdownEnv:
    """An environment in the middle of an episode with a problem made by hand."""
    env = CountdownEnv(CountdownConfig(**options))
    env.reset(seed=0)
    env.problem = problem
    return env


@pytest.mark.parametrize("options", [{}, {"num_attempts": 3}, {"operations": "+-", "max_numbers": 3}])
def test_the_contract_is_kept(options: dict[str, Any]) -> None:
    check_environment(NAME, options)


@pytest.mark.parametrize(
    ("answer", "observation", "reward", "success", "effective"),
    [
        ("2 * 3 + 7", "Correct. Your expression equals 13.", 1.0, True, True),
        ("2 + 3 + 7", "Your expression equals 12, not 13.", 0.1, False, True),
        ("2 / 3 + 7", "Your expression equals 23/3, not 13.", 0.1, False, True),
        ("6 + 7", "Use each of 2, 3, 7 exactly once. You used 6, 7.", 0.0, False, False),
        ("2 3 7", "This is not an expression: '3' was not expected after '2'.", 0.0, False, False),
    ],
)
def test_one_answer_is_paid_and_ends_the_episode(
    answer: str, observation: str, reward: float, success: bool, effective: bool
) -> None:
    assert playing().step(answer) == (observation, reward, True, False, {"success": success, "effective": effective})


def test_several_attempts_are_announced_and_each_is_worth_half_the_last() -> None:
    env = playing(num_attempts=3)
    task = "Target: 13\nNumbers: 2, 3, 7\nAttempts left: "
    wrong = {"success": False, "effective": True}
    assert env.step("2 + 3 + 7") == (f"Your expression equals 12, not 13.\n{task}2", 0.0, False, False, wrong)
    assert env.step("2 + 3 - 7") == (f"Your expression equals -2, not 13.\n{task}1", 0.0, False, False, wrong)
    assert env.step("2 * 3 + 7")[1:4] == (0.25, True, False)
    last = playing(num_attempts=2)
    last.step("hello")
    assert last.step("2 + 3 + 7")[1:4] == (0.1, True, False)


def test_answers_that_cannot_be_read_use_up_attempts_too() -> None:
    """bug-log row 47: an agent that always answers in the wrong form must not go on for ever."""
    env = playing(num_attempts=3)
    assert [env.step("hello")[2] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("text", ["", "9**9**9", "9" * 1_000_000, "(" * 1_000_000, "\0", "\ud800", "😀" * 300, "1" * 200])
def test_any_text_is_answered_with_one_line_that_can_be_encoded(text: str) -> None:
    observation, reward, terminated, _, info = playing().step(text)
    observation.encode()
    assert "\n" not in observation
    assert len(observation) < 500
    assert (reward, terminated, info["effective"]) == (0.0, True, False)


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert playing().step(text)[1] in (0.0, 0.1, 1.0)


def test_the_oracle_earns_the_most_there_is() -> None:
    for options in ({}, {"num_attempts": 3}, {"operations": "*/"}, {"min_numbers": 6, "max_numbers": 6, "max_target": 1000}):
        env = CountdownEnv(CountdownConfig(**options))
        for seed in range(50):
            env.reset(seed=seed)
            _, reward, terminated, _, info = env.step(env.oracle_action())
            assert (reward, terminated, info["success"]) == (env.max_return(), True, True)


def test_no_validation_problem_is_ever_a_training_problem() -> None:
    """Few problems exist under these options, so that both splits see all of theirs; numbers and target make a problem."""
    env = CountdownEnv(CountdownConfig(max_numbers=3, max_number=9, max_target=12))
    seen: dict[Split, set[tuple[tuple[int, ...], int]]] = {Split.TRAIN: set(), Split.VALIDATION: set()}
    for split, problems in seen.items():
        for group in range(600):
            seed, _ = episode_seeds(run_seed=0, split=split, step=0, group=group, member=0)
            env.reset(seed=seed)
            problems.add((tuple(sorted(env.problem.numbers)), env.problem.target))
    assert min(map(len, seen.values())) > 30
    assert not seen[Split.TRAIN] & seen[Split.VALIDATION]


def test_a_stream_of_resets_without_seeds_stays_in_its_split() -> None:
    for seed in (4, 5):
        env = CountdownEnv()
        env.reset(seed=seed)
        drawn = []
        for _ in range(20):
            env.reset()
            drawn.append(env.problem)
        assert {problem.split_bit for problem in drawn} == {seed % 2}
        assert len(set(drawn)) > 15
    CountdownEnv().reset()  # never seeded at all


def test_the_same_seed_gives_the_same_prompt_in_another_process() -> None:
    script = (
        "from ragen.environments.countdown.env import CountdownEnv; env = CountdownEnv(); observation, _ = env.reset(seed=11); "
        "print(env.instruction, observation)"
    )
    env = CountdownEnv()
    observation, _ = env.reset(seed=11)
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True
        )
        assert done.stdout == f"{env.instruction} {observation}\n", done.stderr


def test_the_instruction_tells_a_small_model_all_it_needs() -> None:
    env = CountdownEnv()
    observation, _ = env.reset(seed=0)
    assert observation == f"Target: {env.problem.target}\nNumbers: {', '.join(map(str, env.problem.numbers))}"
    for needed in ("every given number exactly once", "no other number", "+ - * /", "brackets", "Reward: 1", "0.1", "1 attempt."):
        assert needed in env.instruction
    assert len(env.instruction.split()) < 110


def test_the_instruction_follows_the_options() -> None:
    env = CountdownEnv(CountdownConfig(operations="-", num_attempts=2, format_score=0.0))
    env.reset(seed=0)
    assert "You may use - and brackets" in env.instruction
    assert "8 - 2 makes the target 6" in env.instruction
    assert "Reward: 1 for the target in the first attempt, half as much in each later one, 0 otherwise. You have 2 attempts." in (
        env.instruction
    )
    assert "7 / 2" not in env.instruction


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_numbers": 1}, "min_numbers=1: must be within 2..6"),
        ({"min_numbers": 4, "max_numbers": 3}, "max_numbers=3: must be within 4..6"),
        ({"max_number": 1}, "max_number=1: must be within 2..1000"),
        ({"max_target": 9}, "max_target=9: must be within 10..1000"),
        ({"num_attempts": 0}, "num_attempts=0: must be within 1..8"),
        ({"operations": ""}, "operations='': must be one or more of + - * /, each once, such as '+-'"),
        ({"operations": "++"}, "operations='++': must be one or more of + - * /, each once, such as '+-'"),
        ({"operations": "+%"}, "operations='+%': must be one or more of + - * /, each once, such as '+-'"),
        ({"format_score": -0.1}, "format_score=-0.1: must be at least 0 and below 1, the last attempt's worth"),
        ({"num_attempts": 5}, "format_score=0.1: must be at least 0 and below 0.0625, the last attempt's worth"),
        (
            {"operations": "*", "max_number": 3, "min_target": 90},
            "operations='*': hardly make a target within 90..99 of 3..4 numbers up to 3; widen these ranges",
        ),
    ],
)
def test_options_out_of_range_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configure(NAME, options, where="countdown")
    assert str(refused.value) == f"countdown.{message}"
