"""The bandit as an environment: what is read, what is paid, who succeeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import ragen
from ragen.environments import registry
from ragen.environments.bandit.env import BanditConfig, BanditEnv
from ragen.environments.bandit.rules import PAIRS

STEADY = {steady for pairs in PAIRS.values() for steady, _ in pairs}


def other(env: BanditEnv) -> str:
    """The arm that the oracle does not choose."""
    (name,) = set(env.action_names or ()) - {env.oracle_action()}
    return name


def test_the_steady_arm_pays_fifteen_hundredths_and_is_no_success() -> None:
    env = BanditEnv()
    env.reset(seed=4, options={"dynamics_seed": 0})
    arm = other(env)
    assert arm in STEADY
    assert env.step(arm) == (f"{arm}: 0.15 points", 0.15, True, False, {"success": False, "effective": True})


def test_the_risky_arm_is_a_success_whatever_it_paid() -> None:
    env = BanditEnv()
    seen = set()
    for dynamics_seed in range(40):
        env.reset(seed=4, options={"dynamics_seed": dynamics_seed})
        arm = env.oracle_action()
        assert arm not in STEADY
        observation, reward, terminated, truncated, info = env.step(arm)
        assert (terminated, truncated, info["success"]) == (True, False, True)
        seen.add((observation, reward))
    assert seen == {(f"{arm}: 0 points", 0.0), (f"{arm}: 1 points", 1.0)}


def test_members_of_a_group_read_the_same_and_are_paid_differently() -> None:
    env = BanditEnv()
    for task_seed in range(5):
        prompts, payoffs = set(), set()
        for dynamics_seed in range(40):
            observation, _ = env.reset(seed=task_seed, options={"dynamics_seed": dynamics_seed})
            prompts.add((env.instruction, observation, env.action_names))
            payoffs.add(env.step(env.oracle_action())[1])
        assert len(prompts) == 1
        assert payoffs == {0.0, 1.0}


def test_the_instruction_says_everything_but_the_reply_format() -> None:
    env = BanditEnv()
    observation, _ = env.reset(seed=0)
    first, second = env.action_names or ()
    assert observation == f"Choose between {first} and {second}."
    for needed in ("2 arms", f"{first} and {second}", "maximize your reward", "hint", "once"):
        assert needed in env.instruction
    assert "<" not in env.instruction
    assert len((env.instruction + observation).split()) < 60  # a small model reads it


def test_numbers_are_written_without_noise() -> None:
    env = BanditEnv(BanditConfig(low_score=0.1 + 0.2, high_score=2.5, high_prob=1.0))
    env.reset(seed=0)
    assert env.step(other(env))[0].endswith(": 0.3 points")
    env.reset(seed=0)
    assert env.step(env.oracle_action())[0].endswith(": 2.5 points")


def test_reversed_turns_success_to_the_steady_name() -> None:
    env = BanditEnv(BanditConfig(reversed=True, high_prob=1.0))
    for seed in range(10):
        env.reset(seed=seed)
        arm = env.oracle_action()
        assert arm in STEADY
        _, reward, _, _, info = env.step(arm)
        assert (reward, info["success"]) == (1.0, True)


@pytest.mark.parametrize("names", ["train", "test", "phoenix_dragon"])
def test_arms_come_from_the_list_that_was_asked_for(names: str) -> None:
    env = registry.make("bandit", {"names": names})
    shown = set()
    for seed in range(200):
        env.reset(seed=seed)
        shown.update(env.action_names or ())
    assert shown == {word for pair in PAIRS[names] for word in pair}


@pytest.mark.parametrize(
    ("tag", "names", "reverse"),
    [
        ("bandit", "train", False),
        ("bandit_test", "test", False),
        ("bandit_paper", "phoenix_dragon", False),
        ("bandit_reversed", "phoenix_dragon", True),
    ],
)
def test_each_tag_deals_from_its_list(tag: str, names: str, reverse: bool) -> None:
    written = OmegaConf.load(Path(ragen.__file__).parent / f"conf/env/{tag}.yaml")
    options = OmegaConf.to_container(written.get("options", OmegaConf.create({})))
    assert isinstance(options, dict)
    env = registry.make(written.name, {str(key): value for key, value in options.items()})
    pairs = {pair[::-1] if reverse else pair for pair in PAIRS[names]}
    for seed in range(20):
        env.reset(seed=seed)
        assert isinstance(env, BanditEnv)
        assert (other(env), env.oracle_action()) in pairs
