"""The benchmark of the state manager measures what it says; how fast it is is for `ragen bench env` to tell."""

from __future__ import annotations

import pytest

from ragen.environments import registry
from ragen.rollout.benchmark import ACTION, Idle, manager_overhead


@pytest.mark.parametrize("runs_in", ["inline", "thread"])
def test_the_overhead_is_what_a_step_takes_beyond_the_environment(runs_in: str) -> None:
    measured = manager_overhead(5, runs_in=runs_in, repeats=2)
    assert measured.num_live == 5
    assert measured.overhead_us == measured.step_us - measured.bare_step_us > 0
    assert measured.begin_us > measured.bare_step_us > 0
    assert measured.close_us > 0


def test_ten_thousand_environments_are_held_at_once() -> None:
    assert manager_overhead(10_000, repeats=1).num_live == 10_000


def test_the_idle_environment_can_be_named_and_never_ends() -> None:
    env = registry.make(f"{Idle.__module__}:{Idle.__name__}")
    env.reset(seed=0)
    assert [env.step(ACTION)[1:4] for _ in range(3)] == [(0.0, False, False)] * 3
