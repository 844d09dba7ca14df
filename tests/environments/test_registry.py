"""Environments by name: making, configuring, describing, refusing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ragen.environments import registry
from ragen.environments.bandit.env import BanditConfig, BanditEnv
from ragen.environments.text_env import TextEnvConfig, option
from ragen.errors import ConfigError
from tests.support.corridor import Corridor


@pytest.mark.parametrize("written", ["bandti", "Bandit", "BANDIT", "bandits"])
def test_a_misspelt_name_is_refused_with_the_near_match_and_the_known_names(written: str) -> None:
    """bug-log row 86: a typo must not fail in mid-rollout with a bare key error."""
    with pytest.raises(ConfigError) as caught:
        registry.make(written)
    message = str(caught.value)
    assert repr(written) in message
    assert "did you mean 'bandit'?" in message
    assert "known: bandit" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"highprob": 0.5}, "bandit.highprob: environment 'bandit' has no such option; did you mean 'high_prob'?"),
        ({"high_prob": "0.5"}, "bandit.high_prob='0.5': must be float, not str"),
        ({"high_prob": True}, "bandit.high_prob=True: must be float, not bool"),
        ({"high_prob": None}, "bandit.high_prob=None: must be float, not NoneType"),
        ({"high_prob": float("nan")}, "bandit.high_prob=nan: must be float"),
        ({"high_prob": 1.5}, "bandit.high_prob=1.5: must be within 0..1"),
        ({"reversed": 1}, "bandit.reversed=1: must be bool, not int"),
        ({"names": "tets"}, "did you mean 'test'?"),
        ({"low_score": 0.25}, "bandit.low_score=0.25: must be below 0.25"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_in_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.make("bandit", options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_error_begins_with_the_key_of_the_run_where_one_is_given() -> None:
    with pytest.raises(ConfigError, match=r"^environments\.mine\.options\.high_prob=2\.0: must be within"):
        registry.configure("bandit", {"high_prob": 2}, where="environments.mine.options")


def test_a_whole_number_serves_as_a_float_and_becomes_one() -> None:
    config = registry.configure("bandit", {"high_score": 2})
    assert isinstance(config, BanditConfig)
    assert type(config.high_score) is float
    assert config.high_score == 2.0


def test_an_optional_option_takes_none_and_its_type_and_nothing_else() -> None:
    assert registry.make("corridor", {"start": None}).config.start is None  # type: ignore[attr-defined]
    assert registry.make("corridor", {"start": 2}).config.start == 2  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"corridor\.start='2': must be int \| None, not str"):
        registry.make("corridor", {"start": "2"})


def test_an_environment_of_ones_own_is_made_by_its_import_path() -> None:
    env = registry.make("tests.support.corridor:Corridor", {"start": 1})
    assert isinstance(env, Corridor)
    env.close()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no_such_module_anywhere:Maze", "No module named 'no_such_module_anywhere'"),
        ("tests.support.corridor:Coridor", "did you mean 'Corridor'?"),
        ("tests.support.corridor:CorridorConfig", "corridor.CorridorConfig is a class, not an environment class"),
        ("tests.support.outside_envs:nested_limits", "nested_limits is a function, not an environment class"),
        ("tests.support.corridor:os", "is a module, not an environment class"),
        ("tests/support/corridor.py:Corridor", "is a file's path: write tests.support.corridor:Corridor"),
        ("./tests/support/corridor.py:Corridor", "write tests.support.corridor:Corridor"),
        ("/no/such/folder/maze.py:Maze", "write maze:Maze"),
        ("maze.py", "write maze:Class"),
        (":Maze", "cannot be imported"),
    ],
)
def test_a_wrong_import_path_is_refused_in_one_line(path: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.make(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_of_a_module_full_of_environments_only_the_first_ten_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'Crowd10'\? \(its environments: Crowd0, .*Crowd9 and 2 more\)"):
        registry.load("tests.support.crowd:Crowd10x")


def test_registering_the_same_again_is_harmless_and_taking_a_name_is_not() -> None:
    registry.register("corridor", Corridor, "five cells, Left and Right, a switch for every fault (for tests)")
    with pytest.raises(ValueError, match="already taken"):
        registry.register("corridor", BanditEnv, "an impostor")
    assert registry.load("corridor") is Corridor


def test_names_are_sorted_and_hold_the_built_in_ones() -> None:
    assert list(registry.names()) == sorted(registry.names())
    assert "bandit" in registry.names()


def test_a_description_shows_options_with_their_defaults_and_a_real_beginning() -> None:
    described = registry.describe("corridor")
    start = described.options[0]
    assert (start.name, start.type, start.default) == ("start", "int | None", 0)
    assert "cell" in start.doc
    assert described.example.splitlines() == [
        "Walk to G. Actions: Left, Right.",
        "P _ _ _ G",
        "> Right",
        "_ P _ _ G",
        "(reward -0.1)",
    ]


@pytest.mark.parametrize("name", registry.names())
def test_every_registered_environment_is_described_in_full(name: str) -> None:
    described = registry.describe(name)
    assert described.description
    assert described.example
    assert all(option.doc for option in described.options)


def test_an_environment_given_by_path_is_described_by_its_own_docstring() -> None:
    assert registry.describe("ragen.environments.bandit.env:BanditEnv").description.startswith("Two arms")


def test_a_config_without_options_lists_none() -> None:
    @dataclass(kw_only=True)
    class Bare(TextEnvConfig):
        pass

    class BareCorridor(Corridor):
        Config = Bare  # type: ignore[assignment]

    registry.register("bare-corridor", BareCorridor, "no options")
    try:
        with pytest.raises(ConfigError, match=r"bare-corridor\.x: .*\(options: none\)"):
            registry.configure("bare-corridor", {"x": 1})
    finally:
        registry._entries.pop("bare-corridor")


def test_an_option_is_a_plain_field_with_a_phrase() -> None:
    @dataclass(kw_only=True)
    class Mine(TextEnvConfig):
        size: int = option(3, "cells")

    assert Mine().size == 3
    assert Mine(size=4).size == 4
    Mine().check()  # nothing to refuse


def test_the_example_of_a_description_has_the_options_asked_for() -> None:
    assert "P _ _ _ G" in registry.describe("corridor").example
    assert "_ _ P _ G" in registry.describe("corridor", {"start": 2}).example


@pytest.mark.parametrize("where", ["environments.mine.options", ""])
def test_an_error_of_the_environment_as_a_whole_is_not_glued_to_its_options(where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.configure("tests.support.deadly:RaisesWhenMade", {}, where=where)
    said = "environment 'tests.support.deadly:RaisesWhenMade' cannot be made: ValueError: no room for that"
    assert str(caught.value) == (f"environments.mine: {said}" if where else said)


def test_only_a_message_that_begins_with_a_field_is_put_behind_the_options() -> None:
    """A field `environment` or `size` must not claim "environment 'x' cannot be made" or "sizes=..."."""

    @dataclass(kw_only=True)
    class Config(TextEnvConfig):
        environment: str = option("", "what the message begins with")

        def check(self) -> None:
            raise ConfigError(self.environment)

    class Env(Corridor):
        pass

    Env.Config = Config
    registry.register("whole", Env)
    try:
        for message, expected in (
            ("environment=3: must be less", "environments.t.options.environment=3: must be less"),
            ("environment[2]: must be less", "environments.t.options.environment[2]: must be less"),
            ("environment.key: must be less", "environments.t.options.environment.key: must be less"),
            ("environment 'x' cannot be made", "environments.t: environment 'x' cannot be made"),
            ("environments=3: no such thing", "environments.t: environments=3: no such thing"),
        ):
            with pytest.raises(ConfigError) as caught:
                registry.configure("whole", {"environment": message}, where="environments.t.options")
            assert str(caught.value) == expected
    finally:
        registry._entries.pop("whole")
