"""What all question-and-answer environments do with an answer, on a question whose scorer is written here."""

from __future__ import annotations

import copy
import pickle

import pytest

from ragen.environments import registry
from ragen.environments.answers.env import AnswerConfig, AnswerEnv, Verdict
from ragen.environments.checker import check_environment
from ragen.errors import ConfigError


class HalfWordEnv(AnswerEnv):
    """The word is "right"; its beginnings score by their length. Digits cannot be read."""

    def _pose(self) -> str:
        return f"Question {self.np_random.integers(1000)}: which word?"

    def _judge(self, answer: str) -> Verdict:
        if answer.isdigit():
            return Verdict(score=0.0, problem="Your answer is not a word.")
        return Verdict(score=len(answer) / 5 if "right".startswith(answer) else 0.0)

    def oracle_action(self) -> str:
        return "right"


def begun(num_attempts: int = 5) -> HalfWordEnv:
    env = HalfWordEnv(AnswerConfig(num_attempts=num_attempts))
    env.reset(seed=0)
    return env


def test_it_keeps_the_contract() -> None:
    registry.register("half_word", HalfWordEnv, "for this test")
    check_environment("half_word", {"num_attempts": 2})


def test_a_right_answer_ends_the_episode_and_pays_by_the_attempt() -> None:
    expected = {"success": True, "effective": True, "attempts": 1, "score": 1.0}
    assert begun().step("right") == ("Correct.", 1.0, True, False, expected)
    env = begun()
    env.step("wrong")
    assert env.step(" right\n")[:3] == ("Correct.", 0.5, True)


def test_attempts_count_down_to_the_end() -> None:
    env = begun(2)
    assert env.step("wrong") == (
        "Wrong. Attempts left: 1.",
        0.0,
        False,
        False,
        {"success": False, "effective": True, "attempts": 1, "score": 0.0},
    )
    assert env.step("false")[:4] == ("Wrong. Attempts left: 0.", 0.0, True, False)


def test_a_partial_score_is_told_and_paid_once() -> None:
    env = begun()
    assert env.step("ri")[:2] == ("Not right: score 0.4 of 1. Attempts left: 4.", 0.4)
    assert env.step("rig")[:2] == ("Not right: score 0.6 of 1. Attempts left: 3.", 0.0)  # 0.6 / 2 is below 0.4
    assert env.step("ri")[:2] == ("You gave this answer before. Attempts left: 2.", 0.0)
    assert env.step("right")[1] == 0.0  # 1 / 8 is below 0.4


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "Your answer is empty."),
        (" \n\t", "Your answer is empty."),
        ("7", "Your answer is not a word."),
        ("x" * 1_000_000, "Your answer is too long: 1000000 characters, at most 20000."),
    ],
)
def test_an_answer_that_cannot_be_read_is_told_so_and_uses_up_an_attempt(answer: str, said: str) -> None:
    """Bug-log row 47: answers in the wrong form must not go on for ever."""
    env = begun(2)
    observation, reward, terminated, truncated, info = env.step(answer)
    assert (observation, reward, terminated, truncated) == (f"{said} Attempts left: 1.", 0.0, False, False)
    assert info == {"success": False, "effective": False, "attempts": 1, "score": 0.0}
    assert env.step(answer)[2] is True


def test_the_instruction_says_what_an_answer_is_and_how_attempts_are_paid() -> None:
    assert begun(1).instruction == (
        "Solve the problem. Answer with the final answer only, without explanation.\n"
        "You have one attempt. A right answer earns 1 point."
    )
    assert "You have 3 attempts; the best one counts." in begun(3).instruction


def test_a_copy_in_the_middle_of_an_episode_goes_on_the_same() -> None:
    env = begun()
    env.step("ri")
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin.step("ri")[0] == "You gave this answer before. Attempts left: 3."
        assert twin.step("right")[1] == 0.0
    assert env.step("right")[1] == pytest.approx(0.1)


@pytest.mark.parametrize("num_attempts", [0, 101])
def test_an_impossible_number_of_attempts_is_refused(num_attempts: int) -> None:
    with pytest.raises(ConfigError, match=rf"^num_attempts={num_attempts}: must be within 1..100$"):
        HalfWordEnv(AnswerConfig(num_attempts=num_attempts))
