"""Rewards of one's own: added or put in place, per turn or per trajectory, abstaining, and refused when they are no rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragen.credit.config import AdvantageConfig
from ragen.credit.rewards import RewardsConfig, score
from ragen.credit.samples import make_samples
from ragen.errors import ConfigError, TrainingError
from ragen.records import Group, Trajectory
from tests.support.rewards import answer
from tests.support.samples import make_trajectory


def config(function: str = "planted", **weights: float) -> RewardsConfig:
    return RewardsConfig(functions={"mine": f"tests.support.rewards:{function}"}, weights=weights)


def two_turns(member: int, rewards: tuple[float, float] = (1.0, 2.0)) -> Trajectory:
    return make_trajectory([1, 2], [7], [3], [8], rewards=rewards, penalties=(-0.1, 0.0), member=member)


def group(num_members: int) -> Group:
    return Group(trajectories=tuple(two_turns(member) for member in range(num_members)))


def test_without_functions_and_weights_nothing_changes() -> None:
    groups = [group(2)]
    assert score(groups, RewardsConfig()) == groups
    assert groups[0].trajectories[0].return_ == 1.0 + 2.0 - 0.1


def test_a_number_goes_to_the_last_turn_and_is_added_with_its_weight() -> None:
    answer(5.0)
    (scored,) = score([group(1)], config(mine=0.5))[0].trajectories
    assert [dict(turn.parts) for turn in scored.turns] == [
        {"format": -0.1, "environment": 1.0, "mine": 0.0},
        {"format": 0.0, "environment": 2.0, "mine": 2.5},
    ]
    assert scored.return_ == pytest.approx(1.0 + 2.0 - 0.1 + 2.5)


def test_weight_0_of_the_environment_puts_one_s_own_reward_in_its_place() -> None:
    answer(5.0)
    (scored,) = score([group(1)], config(environment=0.0))[0].trajectories
    assert scored.return_ == pytest.approx(5.0 - 0.1)
    assert scored.rewards == 3.0  # what the environment paid stays on record


def test_a_list_gives_each_turn_its_own_and_none_in_it_adds_nothing() -> None:
    (scored,) = score([group(1)], config("per_turn"))[0].trajectories
    assert [turn.parts["mine"] for turn in scored.turns] == [0.0, 1.0]
    assert [turn.total_reward for turn in scored.turns] == pytest.approx([0.9, 3.0])


def test_a_weight_alone_scales_the_environment() -> None:
    (scored,) = score([group(1)], RewardsConfig(weights={"environment": 2.0}))[0].trajectories
    assert scored.return_ == pytest.approx(2 * 3.0 - 0.1)


@pytest.mark.parametrize(
    ("answers", "kept", "advantages"),
    [
        ((1.0, None, None, None), [0], [0.0]),
        ((None, None, None, None), [], []),
        ((1.0, 0.0, None, None), [0, 1], [0.5, -0.5]),
    ],
)
def test_who_abstains_about_everything_enters_neither_mean_nor_loss(
    answers: tuple[float | None, ...], kept: list[int], advantages: list[float]
) -> None:
    """bug-log rows 18 and 19: an abstention is no zero, and no lone value divides by a spread that is not there."""
    answer(*answers)
    (scored,) = score([group(4)], config(environment=0.0))
    assert [t.key.member for t in scored.trajectories] == kept
    assert len(scored.abstained) == 4 - len(kept)
    samples = make_samples([scored], AdvantageConfig(method="mean"))
    assert [float(sample.advantages[-1]) for sample in samples] == advantages


def test_an_abstention_beside_a_rewarding_environment_only_adds_nothing() -> None:
    answer(None, 4.0)
    (scored,) = score([group(2)], config())
    assert [t.return_ for t in scored.trajectories] == pytest.approx([2.9, 6.9])
    assert scored.abstained == ()
    assert "mine" not in scored.trajectories[0].turns[0].parts


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(2), True, np.bool_(False), np.array([0.5, 1.5]), (0, 1)])
def test_numbers_of_every_kind_are_taken(value: Any) -> None:
    answer(value)
    (scored,) = score([group(1)], config())[0].trajectories
    assert all(type(turn.parts["mine"]) is float for turn in scored.turns)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([1.0], "one number per turn, 2, not 1"),
        (iter([1.0, 2.0]), "must be a finite number"),
        ("1", "must be a finite number"),
        (["1", "2"], "must be a finite number"),
        (np.ones((2, 2)), "must be a finite number"),
        (float("nan"), "must be a finite number"),
        ([float("inf"), 0.0], "must be a finite number"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_what_is_no_reward_stops_the_step_and_names_function_and_trajectory(value: Any, says: str) -> None:
    """bug-log row 32: a value of the wrong shape is never spread over others."""
    answer(0.0, value)
    with pytest.raises(TrainingError) as caught:
        score([group(2)], config())
    message = str(caught.value)
    assert message.startswith("reward 'mine' of corridor step 0 group 0 member 1: ")
    assert says in message
    assert "\n" not in message


def test_infrastructure_failures_are_not_shown_to_the_functions() -> None:
    answer(1.0)
    failed = (two_turns(3),)
    (scored,) = score([Group(trajectories=(two_turns(0),), failed=failed)], config())
    assert scored.failed == failed


@pytest.mark.parametrize(
    ("functions", "weights", "says"),
    [
        ({"environment": "m:f"}, {}, "rewards.functions.environment: must be a name"),
        ({"two words": "m:f"}, {}, "rewards.functions.two words: must be a name"),
        ({"mine": "no_colon"}, {}, "rewards.functions.mine='no_colon': must be 'module:function'"),
        ({"mine": "tests/support/rewards.py:f"}, {}, "is a file's path: write tests.support.rewards:f"),
        ({"mine": "no_such_module:f"}, {}, "cannot be imported: ModuleNotFoundError"),
        ({"mine": "math:fsim"}, {}, "math has no function 'fsim'; did you mean 'fsum'?"),
        ({"mine": "math:pi"}, {}, "math.pi is a float, not a function"),
        ({"mine": "math:fsum"}, {"mime": 1.0}, "rewards.weights.mime: there is no such reward; did you mean 'mine'?"),
        ({}, {"environment": 0.0}, "rewards.weights: at least one must differ from 0"),
        ({"mine": "math:fsum"}, {"environment": 0.0, "mine": 0.0}, "rewards.weights: at least one must differ from 0"),
    ],
)
def test_settings_that_cannot_act_are_refused_before_anything_is_loaded(
    functions: dict[str, str], weights: dict[str, float], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        RewardsConfig(functions=functions, weights=weights).check()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
