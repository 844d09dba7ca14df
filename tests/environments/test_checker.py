"""Every registered environment keeps the contract, and the checker notices each way of breaking it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tests.support.corridor  # noqa: F401  (registers "corridor")
from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.text_env import StepAnswer, TextEnv
from ragen.errors import ConfigError, EnvironmentFailure
from tests.support.corridor import Corridor, num_open


@pytest.mark.parametrize("name", registry.names())
def test_every_registered_environment_keeps_the_contract(name: str) -> None:
    check_environment(name)


@pytest.mark.parametrize("names", ["train", "test", "phoenix_dragon"])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_bandit_keeps_the_contract_with_all_its_options(names: str, reverse: bool) -> None:
    check_environment("bandit", {"names": names, "reversed": reverse})


def test_a_corridor_with_chance_keeps_the_contract() -> None:
    check_environment("corridor", {"slip": 0.5, "start": None, "observation": "unicode", "both_flags": True})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"observation": "none"}, "str"),
        ({"reward": "none"}, "reward"),
        ({"reward": "nan"}, "reward"),
        ({"flags": "number"}, "terminated"),
        ({"info": "no_success"}, "success"),
        ({"raise_in_reset": True}, "Broken: reset"),
        ({"raise_at_step": 2}, "Broken: step 2"),
        ({"raise_in_close": True}, "Broken: close"),
    ],
)
def test_each_fault_is_named_and_leaves_nothing_open(options: dict[str, Any], says: str) -> None:
    before = num_open()
    with pytest.raises(EnvironmentFailure, match=says) as caught:
        check_environment("corridor", options)
    assert "'corridor'" in str(caught.value)
    assert num_open() == before


class DynamicsInPrompt(Corridor):
    """The payoff stream also draws the prompt, so that members of a group read different ones."""

    def _begin(self) -> str:
        return f"{super()._begin()} {self.dynamics_random.integers(10**6)}"


class GlobalNumpy(Corridor):
    def _begin(self) -> str:
        np.random.seed(4321)
        return super()._begin()


class GlobalRandom(Corridor):
    def _play(self, action: str) -> StepAnswer:
        random.random()
        return super()._play(action)


class Forgetful(Corridor):
    """Remembers the episodes before."""

    num_episodes = 0

    def _begin(self) -> str:
        self.num_episodes += 1
        return f"{super()._begin()} episode {self.num_episodes}"


class Unseeded(Corridor):
    def _begin(self) -> str:
        return f"{super()._begin()} {np.random.default_rng().integers(10**9)}"


class Endless(Corridor):
    """Plays on after the end."""

    def step(self, action: str) -> StepAnswer:
        answer = super().step(action)
        self._in_episode = True
        return answer


class Silent(Corridor):
    def _begin(self) -> str:
        observation = super()._begin()
        self.instruction = " "
        return observation


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (DynamicsInPrompt, "dynamics seed must not change"),
        (GlobalNumpy, "global generators"),
        (GlobalRandom, "global generators"),
        (Forgetful, "those before it"),
        (Unseeded, "equal seeds"),
        (Endless, "after the end must raise ResetNeeded"),
        (Silent, "instruction"),
    ],
)
def test_each_broken_promise_is_named(environment: type[TextEnv], says: str) -> None:
    name = f"broken-{environment.__name__}"
    registry.register(name, environment, "breaks one promise")
    try:
        with pytest.raises(EnvironmentFailure, match=says):
            check_environment(name)
    finally:
        registry._entries.pop(name)


def test_an_environment_that_cannot_be_made_is_a_config_error() -> None:
    with pytest.raises(ConfigError):
        check_environment("corridor", {"start": 9})
