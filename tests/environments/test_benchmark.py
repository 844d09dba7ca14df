"""The benchmark counts what it times: steps, resets and seconds, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import tests.support.faulty  # noqa: F401  (what is measured by its import path)
from ragen.environments import benchmark, registry
from ragen.environments.benchmark import FrozenLakePlayer, TextPlayer, measure, measure_all
from tests.support.corridor import NUM_CELLS


class Clock:
    """Stands where time.perf_counter is read; the player below moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class ThreeSteps:
    """Episodes of three steps, 10 ms each, after a reset of 5 ms; choosing the actions takes a second, which must not count."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seeds: list[int] = []

    def reset(self, seed: int) -> None:
        self.seeds.append(seed)
        self.clock.now += 0.005

    def actions(self, random: np.random.Generator) -> Sequence[int]:
        self.clock.now += 1.0
        return [0, 1, 2]

    def play(self, actions: Sequence[int]) -> int:
        self.clock.now += 0.010 * len(actions)
        return len(actions)


def test_only_resets_and_steps_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1 s a repeat: three episodes of 35 ms; the warm-up of 0.02 s is one more and counts nothing."""
    clock = Clock()
    monkeypatch.setattr(benchmark.time, "perf_counter", clock)
    player = ThreeSteps(clock)
    episodes: list[int] = []
    speed = measure(player, seconds=0.1, repeats=3, on_episode=lambda: episodes.append(1))
    assert speed.steps_per_s == pytest.approx(100.0)
    assert speed.reset_us == pytest.approx(5000.0)
    assert (speed.num_steps, speed.num_resets) == (27, 9)
    assert player.seeds == list(range(10))
    assert len(episodes) == 10


def test_a_text_environment_is_played_until_it_ends() -> None:
    player = TextPlayer(registry.make("tests.support.faulty:Steady"))
    player.reset(1)
    distance = NUM_CELLS - 1 - player.env.cell  # type: ignore[attr-defined]
    assert player.play(["Right"] * 50) == distance
    player.reset(1)
    assert player.play(["Left"] * 50) == 50
    player.reset(1)
    assert set(player.actions(np.random.default_rng(0))) == {"Left", "Right"}


def test_where_any_text_is_an_action_the_oracle_is_repeated() -> None:
    player = TextPlayer(registry.make("tests.support.faulty:Calculator"))
    player.reset(1)
    assert set(player.actions(np.random.default_rng(0))) == {player.env.oracle_action()}


def test_the_peer_of_gymnasium_plays_episodes() -> None:
    player = FrozenLakePlayer()
    player.reset(0)
    actions = player.actions(np.random.default_rng(0))
    assert set(actions) == {0, 1, 2, 3}
    assert 1 <= player.play(actions) <= len(actions)


def test_environments_are_measured_in_order_and_their_peers_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    speed = benchmark.Speed(steps_per_s=1.0, reset_us=1.0, num_steps=1, num_resets=1)
    monkeypatch.setattr(benchmark, "measure", lambda player: seen.append(player) or speed)
    ours = "tests.support.faulty:Steady"
    peer = benchmark.Peer(name="another", game=ours, package="gymnasium", make=FrozenLakePlayer)
    absent = benchmark.Peer(name="absent", game=ours, package="no_such_package", make=FrozenLakePlayer)
    other = benchmark.Peer(name="other game", game="bandit", package="gymnasium", make=FrozenLakePlayer)
    monkeypatch.setattr(benchmark, "PEERS", (peer, absent, other))
    rows = list(measure_all({"slippery": (ours, {"slip": 0.5}), "wrong": (ours, {"slipp": 0.5})}))
    assert [(row.name, row.speed, row.is_peer) for row in rows] == [
        ("slippery", speed, False),
        ("wrong", None, False),
        ("another", speed, True),
    ]
    assert "did you mean 'slip'?" in rows[1].problem
    first, last = seen
    assert isinstance(first, TextPlayer)
    assert first.env.config.slip == 0.5  # type: ignore[attr-defined]
    assert isinstance(last, FrozenLakePlayer)


def test_an_environment_that_breaks_is_a_line_and_no_traceback() -> None:
    (row,) = measure_all({"broken": ("tests.support.faulty:Steady", {"raise_in_reset": True})})
    assert row.speed is None
    assert row.problem == "cannot be played: Broken: reset"
