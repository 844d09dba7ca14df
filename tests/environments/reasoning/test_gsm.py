"""gsm: word problems with a number for an answer."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.reasoning.gsm import GsmConfig, GsmEnv
from ragen.environments.reasoning.library import word_problem
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.reasoning.gsm:GsmEnv"
pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="needs reasoning-gym")


def begun(seed: int, **options: int) -> tuple[GsmEnv, str]:
    """An environment and the right answer of its problem."""
    env = GsmEnv(GsmConfig(**options))
    env.reset(seed=seed)
    return env, env.oracle_action() or ""


def test_it_keeps_the_contract() -> None:
    check_environment(NAME, {})


def test_a_value_is_right_however_it_is_written() -> None:
    for seed in range(20):
        _, answer = begun(seed)
        for written in (answer, f"{float(answer):,}", f"${answer}", f"{answer} apples", f"The answer is {answer}."):
            assert begun(seed)[0].step(written)[1:3] == (1.0, True)


def test_a_first_or_lone_number_in_an_explanation_is_no_answer() -> None:
    """The library's own scorer takes the first number of the text; that makes the order of an explanation decide."""
    env, answer = begun(1)
    observation, reward, *_ = env.step(f"{answer} because 1 + 1 = 2")
    assert (observation, reward) == ("Your answer is not one number. Attempts left: 4.", 0.0)
    assert env.step(f"{answer} {answer}")[0] == "Your answer is not one number. Attempts left: 3."
    assert env.step(answer)[1] == 0.25


def test_the_wrong_number_earns_nothing() -> None:
    env, answer = begun(1)
    observation, reward, _, _, info = env.step(str(float(answer) + 1))
    assert (observation, reward, info["effective"]) == ("Wrong. Attempts left: 4.", 0.0, True)


def test_problems_keep_to_the_number_of_steps_asked_for() -> None:
    """Counted from the worked solutions: those of at most 2 lines and those of at least 5 are never the same problem."""
    short, long = ([word_problem(low, high, seed).question for seed in range(30)] for low, high in ((1, 2), (5, 20)))
    assert not set(short) & set(long)
    assert sum(map(len, short)) < sum(map(len, long))  # longer stories need more steps
    assert [word_problem(1, 20, seed) for seed in range(30)] == [word_problem(1, 20, seed) for seed in range(30)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_steps": 0}, "min_steps=0: must be within 1..max_steps, which is 20"),
        ({"min_steps": 4, "max_steps": 3}, "min_steps=4: must be within 1..max_steps, which is 3"),
        ({"min_steps": 30, "max_steps": 40}, "min_steps=30: no word problem was found with 30 to 40 steps"),
    ],
)
def test_impossible_numbers_of_steps_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        registry.configure(NAME, options, where="env")
    assert str(error.value) == f"env.{message}"


def test_the_first_prompt_is_the_same_in_another_process() -> None:
    assert first_prompt_elsewhere(NAME, {}, 11, hash_seed=5) == first_prompt(NAME, {}, 11)
