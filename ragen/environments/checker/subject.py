"""The environment under check: makes copies of it, plays them, knows when it last answered, closes them all."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ragen.environments import registry
from ragen.environments.text_env import TextEnv
from ragen.errors import EnvironmentFailure, boundary

MAX_STEPS = 100  # an episode that has not ended by then is not followed further
ENORMOUS_CHARS = 100_000  # nor is one after an observation beyond this: many of them would fill the memory
# What a model may write where any text is an action: nothing, noise, half a form, code, something huge, our own marks.
HOSTILE_TEXTS = (
    "", " ", "\n\t", "\x00", "hello", "🤖" * 50, "½ ٣ 漢字", "(1 + 2", "1 + + 2", "1/0", "9**9**9", "((((" * 500, "-" * 2000,
    "9" * 5000, "1e999", "nan", "None", "{}", "__import__('os')", "||", "a || b || ||", "<answer>", "</think><answer>1</answer>",
    "<|im_end|>", "x" * 100_000,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Start:
    """What an agent reads before its first action."""

    instruction: str
    observation: str
    names: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class Episode:
    """What an environment answered, as it came."""

    seed: int
    start: Start
    answers: tuple[Any, ...]


class Subject:
    """Copies of one environment. `seeds` are the task seeds to play; `max_actions` a budget to be solved within, or None."""

    def __init__(self, name: str, options: Mapping[str, Any], seeds: tuple[int, ...], max_actions: int | None) -> None:
        self.name = name
        self.options = dict(options)
        self.seeds = seeds
        self.max_actions = max_actions
        self._copies: list[TextEnv] = []
        self._answered_at = time.monotonic()
        self._random_episodes: tuple[Episode, ...] | None = None
        self._hostile_episodes: tuple[Episode, ...] | None = None

    @property
    def idle_s(self) -> float:
        """Seconds since the environment last answered or was asked."""
        return time.monotonic() - self._answered_at

    def make(self, *, render_mode: str | None = None) -> TextEnv:
        """A fresh copy, closed by `close`."""
        self.touch()
        return self.adopt(registry.make(self.name, self.options, render_mode=render_mode))

    def adopt(self, env: TextEnv) -> TextEnv:
        """Close this copy with the others."""
        self._copies.append(env)
        return env

    def touch(self, *, ahead_s: float = 0.0) -> None:
        """Say that the environment is about to be asked something, which may take `ahead_s` longer than the deadline."""
        self._answered_at = time.monotonic() + ahead_s

    def begin(self, env: TextEnv, seed: int, *, dynamics_seed: int | None = None) -> Start:
        """Reset; what comes back is not checked. By default each seed has chances of its own."""
        self.touch()
        if dynamics_seed is None:
            dynamics_seed = seed + 7
        with boundary(EnvironmentFailure, f"reset(seed={seed})"):
            observation, _ = env.reset(seed=seed, options={"dynamics_seed": dynamics_seed})
            return Start(instruction=env.instruction, observation=observation, names=env.action_names)

    def step(self, env: TextEnv, action: str) -> Any:
        """One action; what comes back is not checked."""
        self.touch()
        with boundary(EnvironmentFailure, f"step({shown(action)})"):
            return env.step(action)

    def play(self, env: TextEnv, seed: int, *, dynamics_seed: int | None = None, choices: int | None = None) -> Episode:
        """An episode of the random agent; what it chooses follows from `choices` (default: the seed)."""
        start = self.begin(env, seed, dynamics_seed=dynamics_seed)
        source = np.random.default_rng(seed if choices is None else choices)
        return Episode(seed=seed, start=start, answers=self.go_on(env, source))

    def go_on(self, env: TextEnv, source: np.random.Generator) -> tuple[Any, ...]:
        """The random agent from here on: the answers, until the episode ends, MAX_STEPS are done or an answer cannot be read."""
        names = env.action_names
        answers: list[Any] = []
        while not answers or (len(answers) < MAX_STEPS and not ends(answers[-1]) and not _is_enormous(answers[-1])):
            answers.append(self.step(env, random_action(env, names, source)))
        return tuple(answers)

    def random_episodes(self) -> tuple[Episode, ...]:
        """The random agent's episodes, one from each seed and each on a fresh copy; played once, looked at by several checks."""
        if self._random_episodes is None:
            self._random_episodes = tuple(self.play(self.make(), seed) for seed in self.seeds)
        return self._random_episodes

    def hostile_episodes(self) -> tuple[Episode, ...]:
        """One step with each hostile text, where any text is an action; played once, like the random agent's."""
        if self._hostile_episodes is None:
            texts = HOSTILE_TEXTS if self.random_episodes()[0].start.names is None else ()
            self._hostile_episodes = tuple(self._say(text) for text in texts)
        return self._hostile_episodes

    def _say(self, text: str) -> Episode:
        env = self.make()
        start = self.begin(env, self.seeds[0])
        return Episode(seed=self.seeds[0], start=start, answers=(self.step(env, text),))

    def close(self) -> None:
        """Close every copy. What a failing close says is the business of the check that is about closing."""
        copies, self._copies = self._copies, []
        for env in copies:
            self.touch()
            with suppress(EnvironmentFailure), boundary(EnvironmentFailure, "close"):
                env.close()


def task_seeds(num_seeds: int) -> tuple[int, ...]:
    """Small ones as a person types them, then numbers below 2**63 as a run draws them."""
    drawn = np.random.SeedSequence(20).generate_state(max(num_seeds, 2), np.uint64) >> np.uint64(1)
    return (0, 1, *(int(seed) for seed in drawn))[:num_seeds]


def random_action(env: TextEnv, names: tuple[str, ...] | None, source: np.random.Generator) -> str:
    """One of the names; where any text is an action, a short hostile one or what the oracle says."""
    if names is not None:
        return names[int(source.integers(len(names)))]
    text = HOSTILE_TEXTS[int(source.integers(len(HOSTILE_TEXTS) - 1))]
    return (env.oracle_action() or text) if source.random() < 0.5 else text


def ends(answer: Any) -> bool:
    """True if no further step makes sense: the episode is over, or the answer is none."""
    return not is_answer(answer) or bool(answer[2] or answer[3])


def is_answer(answer: Any) -> bool:
    """True for a tuple of five with an info that is a dict."""
    return isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict)


def _is_enormous(answer: Any) -> bool:
    return isinstance(answer[0], str) and len(answer[0]) > ENORMOUS_CHARS


_PARTS = ("the observation", "the reward", "terminated", "truncated", "info")


def difference(one: Episode, other: Episode) -> str:
    """Where two episodes part, in words; empty if they are equal."""
    where = f"seed {one.seed}" if one.seed == other.seed else f"seeds {one.seed} and {other.seed}"
    (start, *steps), (their_start, *their_steps) = comparable(one), comparable(other)
    if start != their_start:
        return f"{where}: the first prompts differ"
    for number, (step, theirs) in enumerate(zip(steps, their_steps, strict=False), start=1):
        differing = [part for part, left, right in zip(_PARTS, step, theirs, strict=True) if left != right]
        if differing:
            return f"{where}: {differing[0]} of step {number} differs"
    return "" if len(steps) == len(their_steps) else f"{where}: the lengths differ"


def comparable(episode: Episode) -> list[tuple[str, ...]]:
    """The first prompt and every answer as texts, equal for equal episodes (also where a number is NaN).

    Of info only numbers and texts count: that is all that is ever read of it.
    """
    start = episode.start
    return [(repr(start.instruction), repr(start.observation), repr(start.names)), *map(_answer_texts, episode.answers)]


def _answer_texts(answer: Any) -> tuple[str, ...]:
    if not is_answer(answer):
        return (repr(answer),) * len(_PARTS)
    *parts, info = answer
    plain = sorted((str(key), repr(value)) for key, value in info.items() if isinstance(value, (Real, str, np.bool_)))
    return (*map(repr, parts), repr(plain))


def shown(text: str) -> str:
    """A text of any length as a short literal."""
    return repr(text) if len(text) <= 40 else f"{text[:30]!r}... of {len(text)} characters"
