"""The bandit with many pulls as an environment: what is read, what is paid, who succeeds."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.multi_turn_bandit.env import MultiTurnBanditConfig, MultiTurnBanditEnv
from ragen.environments.multi_turn_bandit.rules import Arm
from ragen.errors import ConfigError
from tests.support.chance import surprise
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.multi_turn_bandit.env:MultiTurnBanditEnv"
ALPHA = 1e-6  # a right implementation fails one of these tests less than once in a million seeds


def with_arms(*arms: Arm, num_pulls: int = 4) -> MultiTurnBanditEnv:
    """An episode with arms of known worth; the first one is best."""
    env = MultiTurnBanditEnv(MultiTurnBanditConfig(num_pulls=num_pulls))
    env.reset(seed=0)
    env.arms, env.best = arms, arms[0]
    env.action_names = tuple(arm.name for arm in arms)
    env._take_names(env.action_names)
    return env


SURE = Arm(name="Red", prob=1.0)
NEVER = Arm(name="Blue", prob=0.0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_pulls": 2, "num_arms": 10, "gap": 0.01},
        {"arms": "steady_risky"},
        {"arms": "steady_risky", "names": "test", "num_pulls": 20},
        {"names": "train"},
    ],
)
def test_it_keeps_the_contract(options: dict[str, Any]) -> None:
    check_environment(NAME, options)


def test_every_observation_says_what_was_paid_and_how_many_pulls_are_left() -> None:
    env = with_arms(SURE, NEVER, num_pulls=3)
    assert env.step("Red") == (
        "Red paid 1 point. Pulls left: 2.",
        1.0,
        False,
        False,
        {"success": False, "effective": True, "best_arm": True, "regret": 0.0},
    )
    assert env.step("Blue") == (
        "Blue paid 0 points. Pulls left: 1.",
        0.0,
        False,
        False,
        {"success": False, "effective": True, "best_arm": False, "regret": 1.0},
    )
    observation, _, terminated, truncated, info = env.step("Red")
    assert (observation, terminated, truncated) == ("Red paid 1 point. Pulls left: 0.", True, False)
    assert not info["success"]  # of the last two pulls one went to Red: not more than half
    with pytest.raises(ResetNeeded):
        env.step("Red")


def test_success_is_to_prefer_the_best_arm_in_the_end_whatever_it_paid() -> None:
    unlucky = Arm(name="Red", prob=0.0, low=0.0, high=9.0)
    env = with_arms(unlucky, NEVER)
    answers = [env.step(name) for name in ("Blue", "Blue", "Red", "Red")]
    assert [answer[4]["success"] for answer in answers] == [False, False, False, True]
    assert sum(answer[1] for answer in answers) == 0.0


def test_the_instruction_says_everything_but_the_reply_format() -> None:
    env = MultiTurnBanditEnv()
    observation, _ = env.reset(seed=1)
    first, second = env.action_names or ()
    assert observation == f"Choose between {first} and {second}. Pulls left: 10."
    for needed in ("10 pulls", f"2 arms, named {first} and {second}", "1 point or nothing", "more than half of the last 5 pulls"):
        assert needed in env.instruction
    assert "hint" not in env.instruction
    assert "<" not in env.instruction


def test_names_are_called_a_hint_only_where_they_are_one() -> None:
    for options, is_hint in (({"names": "train"}, True), ({"names": "neutral"}, False)):
        env = registry.make(NAME, {"arms": "steady_risky", **options})
        env.reset(seed=0)
        assert ("hint" in env.instruction) == is_hint
        assert "0.15 points" in env.instruction
        assert "1 point with some probability" in env.instruction


def test_members_of_a_group_read_the_same_and_are_paid_differently() -> None:
    env = MultiTurnBanditEnv()
    for task_seed in range(3):
        prompts, paid = set(), set()
        for dynamics_seed in range(30):
            observation, _ = env.reset(seed=task_seed, options={"dynamics_seed": dynamics_seed})
            prompts.add((env.instruction, observation, env.action_names, env.arms))
            paid.add(tuple(env.step(name)[1] for name in env.action_names or () for _ in range(5)))
        assert len(prompts) == 1
        assert len(paid) > 1


def test_arms_pay_as_often_as_their_mean_says() -> None:
    """Exact binomial tests of 1000 pulls of each of 5 arms from each of 2 task seeds, each at level ALPHA."""
    env = MultiTurnBanditEnv(MultiTurnBanditConfig(num_arms=5, num_pulls=1000, gap=0.05))
    for task_seed in (0, 1):
        for place in range(5):
            env.reset(seed=task_seed, options={"dynamics_seed": place})
            arm = env.arms[place]
            paid = sum(env.step(arm.name)[1] for _ in range(1000))
            assert surprise(int(paid), 1000, arm.mean) > ALPHA


def test_the_risky_arm_pays_once_in_four_times_and_the_steady_one_always() -> None:
    env = MultiTurnBanditEnv(MultiTurnBanditConfig(arms="steady_risky", names="phoenix_dragon", num_pulls=1000))
    env.reset(seed=0)
    assert {env.step("Phoenix")[1] for _ in range(1000)} == {0.15}
    env.reset(seed=0)
    paid = [env.step("Dragon")[1] for _ in range(1000)]
    assert set(paid) == {0.0, 1.0}
    assert surprise(int(sum(paid)), 1000, 0.25) > ALPHA


def test_the_oracle_pulls_the_best_arm_and_has_no_regret() -> None:
    env = MultiTurnBanditEnv(MultiTurnBanditConfig(num_arms=4))
    for seed in range(20):
        env.reset(seed=seed)
        assert env.oracle_action() == max(env.arms, key=lambda arm: arm.prob).name
        infos = [env.step(env.oracle_action())[4] for _ in range(10)]
        assert infos[-1]["success"]
        assert sum(info["regret"] for info in infos) == 0.0


def test_a_copy_in_mid_episode_goes_on_identically() -> None:
    env = MultiTurnBanditEnv(MultiTurnBanditConfig(num_pulls=30))
    env.reset(seed=3)
    names = env.action_names or ()
    env.step(names[0])
    twins = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    episodes = [[twin.step(names[i % 2]) for i in range(29)] for twin in twins]
    assert episodes[0] == episodes[1] == episodes[2]


def test_the_same_seed_gives_the_same_arms_in_another_process() -> None:
    here = first_prompt(NAME, {"num_arms": 4}, 12)
    assert first_prompt_elsewhere(NAME, {"num_arms": 4}, 12, hash_seed=1) == here


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_pulls": 1}, "num_pulls=1: must be within 2..1000"),
        ({"num_pulls": 1001}, "num_pulls=1001: must be within 2..1000"),
        ({"num_arms": 1}, "num_arms=1: must be within 2..10"),
        ({"num_arms": 11}, "num_arms=11: must be within 2..10"),
        ({"num_arms": 3, "names": "train"}, "num_arms=3: must be 2 with names='train'"),
        ({"num_arms": 3, "arms": "steady_risky"}, "num_arms=3: must be 2 with arms='steady_risky'"),
        ({"gap": 0.0}, "gap=0.0: must be above 0 and below 1"),
        ({"gap": 1.0}, "gap=1.0: must be above 0 and below 1"),
        ({"gap": 0.3, "arms": "steady_risky"}, "gap=0.3: has no effect with arms='steady_risky'"),
        ({"arms": "bernouli"}, "did you mean 'bernoulli'?"),
        ({"names": "tets"}, "did you mean 'test'?"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_in_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.make(NAME, options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
