"""How fast an environment is on one core, text observation included; and peers of other projects, measured the same way."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np

from ragen.environments import registry
from ragen.environments.text_env import TextEnv
from ragen.errors import ConfigError, EnvironmentFailure, RagenError, boundary

MAX_STEPS = 100  # of an episode; some never end under a random agent
WARM_UP = 0.2  # of the time of a repeat, before the first one


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Medians over the repeats. A step includes its text observation, a reset the making of its task."""

    steps_per_s: float
    reset_us: float  # microseconds
    num_steps: int  # timed, in all repeats
    num_resets: int


class Player(Protocol):
    """An environment and its random agent, as `measure` drives them; only `reset` and `play` are timed."""

    def reset(self, seed: int) -> None: ...

    def actions(self, random: np.random.Generator) -> Sequence[Any]:
        """At most MAX_STEPS actions for the episode that has begun."""
        ...

    def play(self, actions: Sequence[Any]) -> int:
        """Play until the episode ends or the actions do; the number of steps."""
        ...


class TextPlayer:
    """A RAGEN environment. Where any text is an action, the random agent repeats what the oracle says first."""

    def __init__(self, env: TextEnv) -> None:
        self.env = env

    def reset(self, seed: int) -> None:
        self.env.reset(seed=seed)

    def actions(self, random: np.random.Generator) -> Sequence[str]:
        names = self.env.action_names or (self.env.oracle_action() or "hello",)
        return [names[i] for i in random.integers(len(names), size=MAX_STEPS).tolist()]

    def play(self, actions: Sequence[str]) -> int:
        step = self.env.step
        for number, action in enumerate(actions, start=1):
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                return number
        return len(actions)


class FrozenLakePlayer:
    """Gymnasium's FrozenLake-v1, 4x4 and slippery, with its own text picture after every reset and step."""

    def __init__(self) -> None:
        self.env: gymnasium.Env[Any, Any] = gymnasium.make("FrozenLake-v1", render_mode="ansi").unwrapped

    def reset(self, seed: int) -> None:
        self.env.reset(seed=seed)
        self.env.render()

    def actions(self, random: np.random.Generator) -> Sequence[int]:
        drawn: list[int] = random.integers(4, size=MAX_STEPS).tolist()
        return drawn

    def play(self, actions: Sequence[int]) -> int:
        env = self.env
        for number, action in enumerate(actions, start=1):
            _, _, terminated, truncated, _ = env.step(action)
            env.render()
            if terminated or truncated:
                return number
        return len(actions)


class GymSokobanPlayer:
    """gym-sokoban, 6x6 with one box. It draws an image at every reset and step; its rooms come from the global generators."""

    def __init__(self) -> None:
        module = importlib.import_module("gym_sokoban.envs.sokoban_env")
        # Nothing of it can be seeded but these generators, so this process must not need them for anything else.
        self.env = module.SokobanEnv(dim_room=(6, 6), max_steps=MAX_STEPS, num_boxes=1, reset=False)

    def reset(self, seed: int) -> None:
        self.env.reset()

    def actions(self, random: np.random.Generator) -> Sequence[int]:
        drawn: list[int] = random.integers(1, 5, size=MAX_STEPS).tolist()  # the four pushes
        return drawn

    def play(self, actions: Sequence[int]) -> int:
        env = self.env
        for number, action in enumerate(actions, start=1):
            _, _, done, _ = env.step(action)
            if done:
                return number
        return len(actions)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another project's environment of the same game."""

    name: str
    game: str  # the registered name of ours
    package: str  # that must be installed
    make: Callable[[], Player]


PEERS = (
    Peer(name="gymnasium FrozenLake-v1", game="frozen_lake", package="gymnasium", make=FrozenLakePlayer),
    Peer(name="gym-sokoban 6x6", game="sokoban", package="gym_sokoban", make=GymSokobanPlayer),
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One line of the benchmark. `game` is the registered name; `problem` says why there is no speed.

    `is_unmade`: it was not even made, for want of an option or a package that are yours to give.
    """

    name: str
    game: str
    speed: Speed | None
    problem: str = ""
    is_peer: bool = False
    is_unmade: bool = False


def measure_all(environments: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Iterator[Measured]:
    """Measure environments, label -> (registered name or module:Class, options), and behind them their installed peers."""
    for label, (game, options) in environments.items():
        yield _measured(label, game, partial(_text_player, game, options))
    games = {game for game, _ in environments.values()}
    for peer in PEERS:
        if peer.game in games and importlib.util.find_spec(peer.package) is not None:
            yield _measured(peer.name, peer.game, peer.make, is_peer=True)


def speed_ratios(rows: Sequence[Measured]) -> dict[str, float]:
    """How much faster each of ours is than its peer: `<name>_steps` in steps per second, `<name>_resets` in time per reset."""
    ratios = {}
    for peer in rows:
        for own in rows:
            if peer.is_peer and not own.is_peer and peer.game == own.game and peer.speed and own.speed:
                ratios[f"{own.name}_steps"] = own.speed.steps_per_s / peer.speed.steps_per_s
                ratios[f"{own.name}_resets"] = peer.speed.reset_us / own.speed.reset_us
    return ratios


def _measured(name: str, game: str, make: Callable[[], Player], *, is_peer: bool = False) -> Measured:
    speed, problem, is_unmade = None, "", False
    try:
        with boundary(EnvironmentFailure, "cannot be played"):
            speed = measure(make())
    except RagenError as error:  # needs options, or a package that is not here
        problem, is_unmade = str(error), isinstance(error, ConfigError)
    return Measured(name=name, game=game, speed=speed, problem=problem, is_peer=is_peer, is_unmade=is_unmade)


def _text_player(name: str, options: Mapping[str, Any]) -> TextPlayer:
    return TextPlayer(registry.make(name, options))


def measure(player: Player, *, seconds: float = 0.3, repeats: int = 3, on_episode: Callable[[], None] = lambda: None) -> Speed:
    """Play episodes from ever new seeds for about `seconds` per repeat; at least one episode each."""
    seeds = itertools.count()
    random = np.random.default_rng(0)
    _repeat(player, seeds, random, seconds * WARM_UP, on_episode)
    seen = [_repeat(player, seeds, random, seconds, on_episode) for _ in range(repeats)]
    return Speed(
        steps_per_s=statistics.median(num_steps / step_s for num_steps, step_s, _, _ in seen),
        reset_us=statistics.median(1e6 * reset_s / num_resets for _, _, num_resets, reset_s in seen),
        num_steps=sum(num_steps for num_steps, *_ in seen),
        num_resets=sum(num_resets for _, _, num_resets, _ in seen),
    )


def _repeat(
    player: Player, seeds: itertools.count[int], random: np.random.Generator, seconds: float, on_episode: Callable[[], None]
) -> tuple[int, float, int, float]:
    """(steps, seconds in them, resets, seconds in them)."""
    num_steps = num_resets = 0
    step_s = reset_s = 0.0
    clock = time.perf_counter
    while num_resets == 0 or step_s + reset_s < seconds:
        on_episode()
        begun = clock()
        player.reset(next(seeds))
        reset_s += clock() - begun
        num_resets += 1
        actions = player.actions(random)
        begun = clock()
        num_steps += player.play(actions)
        step_s += clock() - begun
    return num_steps, step_s, num_resets, reset_s
