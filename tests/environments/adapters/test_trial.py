"""Reading a configuration makes an environment once, and a constructor that hangs cannot hold it up for ever."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import pytest

from ragen.environments import registry
from ragen.environments.adapters import trial
from ragen.errors import ConfigError
from tests.support import outside_faults

HERE = "tests.support.outside_faults"


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Patience for a moment only; what was left waiting is let go afterwards."""
    monkeypatch.setattr(trial, "LIMIT_S", 0.05)
    outside_faults.released.clear()
    yield
    outside_faults.released.set()


@pytest.mark.usefixtures("short_limit")
def test_a_constructor_that_hangs_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        registry.configure(f"{HERE}:Hanging", {})
    assert str(caught.value).endswith("outside_faults:Hanging' cannot be made: its constructor did not end within 0.05 s")


@pytest.mark.usefixtures("short_limit")
def test_a_registered_id_that_hangs_is_refused_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        gymnasium.registry, "Hanging-v0", gymnasium.envs.registration.EnvSpec("Hanging-v0", outside_faults.hanging)
    )
    with pytest.raises(ConfigError, match=r"id='Hanging-v0': Gymnasium cannot make it: its constructor did not end within"):
        registry.configure("gymnasium", {"id": "Hanging-v0", "observation": "values"})


def test_a_constructor_that_is_only_slow_is_waited_for() -> None:
    env = registry.make(f"{HERE}:Slow")
    assert env.reset(seed=0)[0] == "hello"


def test_what_the_trial_raises_reaches_the_caller_whatever_it_is() -> None:
    with pytest.raises(KeyboardInterrupt):
        registry.configure(f"{HERE}:Interrupted", {})
