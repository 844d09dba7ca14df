"""Gymnasium's own checker on a text environment, and its render modes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.passive_env_checker import env_render_passive_checker

from ragen.environments.checker.report import Weak
from ragen.environments.checker.subject import Subject

# What Gymnasium warns of by the way in which it is asked here, not because of the environment.
_EXPECTED = ("due to the environment not having a spec", "is different from the unwrapped version", "No render fps was declared")
_COLOUR = re.compile(r"\x1b\[\d+m")


class ByPosition(gymnasium.Wrapper[str, Any, str, str]):
    """Takes actions by their position among the names.

    Gymnasium's checker draws an action, resets, and plays it then; where the names follow from the seed, it may be gone by then.
    """

    def __init__(self, env: gymnasium.Env[str, str], touch: Callable[[], None]) -> None:
        super().__init__(env)
        self._touch = touch
        env.reset(seed=0)
        self._by_name = env.unwrapped.action_names is not None  # type: ignore[attr-defined]
        if self._by_name:
            self.action_space = gymnasium.spaces.Discrete(len(self._names))

    @property
    def _names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self.env.unwrapped.action_names  # type: ignore[attr-defined]
        return names

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._touch()
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        self._touch()
        return self.env.step(self._names[int(action) % len(self._names)] if self._by_name else action)


def gymnasium_api(subject: Subject) -> str:
    """`check_env` and every render mode; a complaint that Gymnasium itself thinks not worth an error is a warning."""
    modes = []
    with _complaints() as complaints:
        check_env(ByPosition(subject.make(), subject.touch), skip_render_check=True, skip_close_check=True)
        for mode in subject.make().metadata["render_modes"]:
            env = subject.make(render_mode=mode)
            subject.begin(env, subject.seeds[0])
            env_render_passive_checker(env)
            modes.append(mode)
    if complaints:
        raise Weak("; ".join(complaints))
    return f"check_env, and rendering as {', '.join(modes) or 'nothing'}"


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what Gymnasium warns of inside, once each and without colours; warnings of others are not shown either."""
    complaints: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield complaints
    for warning in caught:
        text = _COLOUR.sub("", str(warning.message)).removeprefix("WARN: ")
        if text not in complaints and not any(part in text for part in _EXPECTED):
            complaints.append(text)
