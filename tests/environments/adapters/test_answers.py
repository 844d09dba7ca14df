"""What an outside environment answers is read as it is: nothing is made a number, a flag or a text that is none."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ragen.environments import registry
from ragen.environments.text_env import StepAnswer
from tests.support.outside_faults import Echo

ECHO = "tests.support.outside_faults:Echo"


def step_that_answers(monkeypatch: pytest.MonkeyPatch, answer: Any, options: dict[str, Any] | None = None) -> StepAnswer:
    monkeypatch.setattr(Echo, "answer", answer)
    env = registry.make(ECHO, options)
    env.reset(seed=0)
    return env.step("0")


@pytest.mark.parametrize(
    ("raw", "reward"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (True, 1.0),
        (np.bool_(True), 1.0),
        (np.float32(0.25), 0.25),
        (np.int64(-3), -3.0),
        (Fraction(1, 4), 0.25),
    ],
)
def test_every_real_number_is_a_reward(monkeypatch: pytest.MonkeyPatch, raw: Any, reward: float) -> None:
    _, read, terminated, truncated, info = step_that_answers(
        monkeypatch, (np.str_("x"), raw, np.bool_(True), False, {"success": np.bool_(False)})
    )
    assert (type(read), read) == (float, reward)
    assert (terminated, truncated, info) == (True, False, {"success": False, "effective": True})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (("x", "1.5", "False", None, {}), "the reward must be a number, not '1.5'"),
        (("x", np.array([1.0]), True, False, {}), r"the reward must be a number, not array\(\[1\.\]\)"),
        (("x", None, True, False, {}), "the reward must be a number, not None"),
        (("x", 1j, True, False, {}), "the reward must be a number, not 1j"),
        (("x", 1.0, "False", False, {}), "terminated must be a bool, not 'False'"),
        (("x", 1.0, 1, False, {}), "terminated must be a bool, not 1"),
        (("x", 1.0, True, None, {}), "truncated must be a bool, not None"),
        (("x", 1.0, True, False, [1]), r"info must be a dict, not \[1\]"),
        (("x", 1.0, True, False, {"success": "no"}), r"info\['success'\] must be a bool or a finite number, not 'no'"),
        (
            ("x", 1.0, True, False, {"is_success": float("nan")}),
            r"info\['is_success'\] must be a bool or a finite number, not nan",
        ),
        (("x", 1.0, True, False, {"effective": "yes"}), r"info\['effective'\] must be a bool or a finite number, not 'yes'"),
        ((None, 1.0, True, False, {}), "the observation must be a str, as observation_space says, not None"),
        ((b"x", 1.0, True, False, {}), "the observation must be a str, as observation_space says, not b'x'"),
        (
            ("x", 1.0, True, {}),
            r"step must answer \(observation, reward, terminated, truncated, info\), not \('x', 1\.0, True, \{\}\)",
        ),
        ("abcde", "step must answer .*, not 'abcde'"),
        (("x", "9" * 10**6, True, False, {}), r"not '9{99}\.\.\.$"),
    ],
)
def test_any_other_answer_is_refused_and_the_wrong_part_named(monkeypatch: pytest.MonkeyPatch, answer: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        step_that_answers(monkeypatch, answer)


def test_the_key_that_says_solved_must_hold_a_flag_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"success_key": "won"}
    assert step_that_answers(monkeypatch, ("x", 1.0, True, False, {}), options)[4]["success"] is False
    assert step_that_answers(monkeypatch, ("x", 1.0, True, False, {"won": 1}), options)[4]["success"] is True
    with pytest.raises(TypeError, match=r"info\['won'\] must be a bool or a finite number, not 'yes'"):
        step_that_answers(monkeypatch, ("x", 1.0, True, False, {"won": "yes"}), options)


@pytest.mark.parametrize("start", ["only a text", ["hello", {}], None, ("hello", {}, 1)])
def test_a_reset_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch, start: Any) -> None:
    monkeypatch.setattr(Echo, "start", start)
    with pytest.raises(TypeError, match=r"reset must answer \(observation, info\), not "):
        registry.make(ECHO).reset(seed=0)


@pytest.mark.parametrize(
    ("space", "observation", "says"),
    [
        (spaces.Discrete(3), None, "the observation must not be None"),
        (spaces.Discrete(3), object(), "made of texts, numbers, arrays, dicts and sequences, not of object"),
        (spaces.Dict({}), {"a": {1, 2}}, "not of set"),
    ],
)
def test_an_observation_of_no_space_is_refused(
    monkeypatch: pytest.MonkeyPatch, space: gymnasium.Space[Any], observation: Any, says: str
) -> None:
    monkeypatch.setattr(Echo, "observation_space", space)
    monkeypatch.setattr(Echo, "start", (observation, {}))
    with pytest.raises(TypeError, match=says):
        registry.make(ECHO).reset(seed=0)
