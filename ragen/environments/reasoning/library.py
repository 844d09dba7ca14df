"""reasoning-gym as functions: check settings, make a problem, score an answer. The library itself runs in a helper process."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import lru_cache

from ragen.environments.answers.child import Child, ChildLost
from ragen.environments.answers.env import Verdict
from ragen.errors import ConfigError, EnvironmentFailure

MAKE_LIMIT_S = 60.0  # some generators search for seconds
SCORE_LIMIT_S = 5.0  # scorers take milliseconds

_child = Child("ragen.environments.reasoning.gym_child")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a problem comes from: a generator of reasoning-gym, its own settings as JSON text, its curriculum's level, a seed."""

    dataset: str
    config: str
    level: int | None
    seed: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A question, and an answer of full score where one is known."""

    question: str
    answer: str | None


def require(option: str) -> None:
    """Raise ConfigError, naming the option that needs it, if the library is not installed."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError(f"{option}: needs the package reasoning-gym: pip install 'ragen-rl[reasoning]'")


@lru_cache(maxsize=256)  # every instance asks again
def check(dataset: str, config: str, levels: tuple[int, ...]) -> None:
    """Raise ConfigError unless the generator exists and makes problems with these settings at each of these levels."""
    require(f"dataset={dataset!r}")
    try:
        _child.ask("check", {"dataset": dataset, "config": config, "levels": levels}, limit_s=MAKE_LIMIT_S)
    except ChildLost:
        raise ConfigError(f"dataset={dataset!r}: made no problem within {MAKE_LIMIT_S:g} s; choose easier settings") from None


@lru_cache(maxsize=256)
def check_word_problems(min_steps: int, max_steps: int) -> None:
    """Raise ConfigError unless there are word problems with so many steps."""
    require(f"min_steps={min_steps}")
    word_problem(min_steps, max_steps, 0)


@lru_cache(maxsize=4096)  # members of a group share the problem
def make(source: Source) -> Problem:
    """The problem. Raises EnvironmentFailure if the generator fails or takes longer than MAKE_LIMIT_S."""
    return Problem(**_child.ask("make", vars(source), limit_s=MAKE_LIMIT_S))


def score(source: Source, answer: str) -> Verdict:
    """The verdict of the generator's own scorer. An answer on which it fails, or takes longer than SCORE_LIMIT_S, scores 0."""
    try:
        return Verdict(score=_child.ask("score", vars(source) | {"answer": answer}, limit_s=SCORE_LIMIT_S))
    except EnvironmentFailure:
        return Verdict(score=0.0, problem="Your answer could not be read.")


@lru_cache(maxsize=4096)
def word_problem(min_steps: int, max_steps: int, seed: int) -> Problem:
    """A word problem whose worked solution has `min_steps` to `max_steps` lines. Raises ConfigError if there is none."""
    arguments = {"min_steps": min_steps, "max_steps": max_steps, "seed": seed}
    return Problem(**_child.ask("word_problem", arguments, limit_s=MAKE_LIMIT_S))
