"""Does an environment keep the contract of text_env.py? The tests ask it of every registered one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from ragen.environments import registry
from ragen.environments.text_env import TextEnv
from ragen.errors import EnvironmentFailure, boundary

_MAX_STEPS = 100  # an episode that has not ended by then is not followed further
_SEEDS = (0, 1, 2**62)


def check_environment(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Raise EnvironmentFailure with the first broken promise; ConfigError if the environment cannot be made."""
    instances: list[TextEnv] = []

    def make() -> TextEnv:
        instances.append(registry.make(name, options))
        return instances[-1]

    def require(kept: bool, promise: str) -> None:
        if not kept:
            raise EnvironmentFailure(f"environment {name!r} breaks its contract: {promise}")

    global_states = random.getstate(), np.random.get_state()
    before = repr(global_states)
    try:
        with boundary(EnvironmentFailure, f"environment {name!r}"):
            _check_types(make(), require)
            _check_seeds(make, require)
            _check_ends(make(), require)
            _check_close(make())
        after = repr((random.getstate(), np.random.get_state()))
        require(after == before, "the global generators of random and numpy must not be used")
    finally:
        random.setstate(global_states[0])
        np.random.set_state(global_states[1])
        for env in instances:
            with suppress(EnvironmentFailure), boundary(EnvironmentFailure, "close"):  # the first broken promise counts
                env.close()


_Require = Callable[[bool, str], None]
_Prompt = tuple[str, str, tuple[str, ...] | None]


def _check_types(env: TextEnv, require: _Require) -> None:
    observation, info = env.reset(seed=0, options={"dynamics_seed": 0})
    require(isinstance(observation, str) and isinstance(info, dict), "reset must answer (str, dict)")
    require(
        isinstance(env.instruction, str) and bool(env.instruction.strip()), "after reset, instruction must be a non-empty text"
    )
    names = env.action_names
    require(names is None or isinstance(names, tuple), "action_names must be a tuple of names, or None")
    oracle = env.oracle_action()
    require(oracle is None or env.action_space.contains(oracle), f"oracle_action {oracle!r} is not an action")
    observation, reward, terminated, truncated, info = env.step(_action(env, np.random.default_rng(0)))
    require(isinstance(observation, str), "step must answer a str observation")
    require(isinstance(reward, float) and bool(np.isfinite(reward)), f"the reward must be a finite float, not {reward!r}")
    require(type(terminated) is bool and type(truncated) is bool, "terminated and truncated must be bool")
    for key in ("success", "effective"):
        require(type(info.get(key)) is bool, f"info[{key!r}] must be a bool after every step")


def _check_seeds(make: Callable[[], TextEnv], require: _Require) -> None:
    reused = make()
    for seed in _SEEDS:
        prompt, episode = _play(make(), seed, dynamics_seed=7)
        require((prompt, episode) == _play(make(), seed, dynamics_seed=7), "equal seeds and actions must give equal episodes")
        require((prompt, episode) == _play(reused, seed, dynamics_seed=7), "an episode must not depend on those before it")
        require(prompt == _play(make(), seed, dynamics_seed=8)[0], "the dynamics seed must not change the first prompt")


def _check_ends(env: TextEnv, require: _Require) -> None:
    require(_refuses_step(env), "a step before reset must raise ResetNeeded")
    env.reset(seed=0)
    source = np.random.default_rng(0)
    for _ in range(_MAX_STEPS):
        _, _, terminated, truncated, _ = env.step(_action(env, source))
        if terminated or truncated:
            require(_refuses_step(env), "a step after the end must raise ResetNeeded")
            env.reset(seed=0)  # and an ended episode can be followed by another
            return


def _check_close(env: TextEnv) -> None:
    env.reset(seed=0)
    env.close()  # in the middle of an episode
    env.close()  # and again


def _play(env: TextEnv, seed: int, *, dynamics_seed: int) -> tuple[_Prompt, list[Any]]:
    observation, _ = env.reset(seed=seed, options={"dynamics_seed": dynamics_seed})
    prompt = (env.instruction, observation, env.action_names)
    source = np.random.default_rng(seed)
    episode: list[Any] = []
    for _ in range(_MAX_STEPS):
        episode.append(env.step(_action(env, source)))
        if episode[-1][2] or episode[-1][3]:
            break
    return prompt, episode


def _action(env: TextEnv, source: np.random.Generator) -> str:
    names = env.action_names
    return (env.oracle_action() or "hello") if names is None else names[int(source.integers(len(names)))]


def _refuses_step(env: TextEnv) -> bool:
    try:
        env.step(env.action_names[0] if env.action_names else "hello")
    except ResetNeeded:
        return True
    return False
