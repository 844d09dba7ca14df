"""What `ragen eval` plays: tags of a run, environments by name, or both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ragen.config import load
from ragen.config.evaluation import load_for_evaluation, load_for_suite
from ragen.config.suites import load_suite
from ragen.errors import ConfigError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with two tags, as training leaves it."""
    overrides = ["+env@environments.hard=bandit", "environments.hard.options.reversed=true", "rollout.group_size=4", "seed=9"]
    (tmp_path / "config.yaml").write_text(load.dump(load.load("bandit", overrides)), encoding="utf-8")
    return tmp_path


def test_a_run_is_measured_on_all_of_its_own_environments_under_its_own_settings(run: Path) -> None:
    assert load_for_evaluation(str(run), run) == load.load(str(run))


def test_tags_of_the_run_are_chosen_by_name_with_their_options(run: Path) -> None:
    config = load_for_evaluation(str(run), run, names=["hard"])
    assert {tag: environment.options for tag, environment in config.environments.items()} == {"hard": {"reversed": True}}
    assert (config.rollout.group_size, config.seed) == (4, 9)


def test_a_tag_of_the_run_comes_before_an_environment_of_the_same_name(run: Path) -> None:
    load_for_evaluation(str(run), run, names=["bandit"], overrides=["environments.bandit.num_groups=3"])
    config = load_for_evaluation(str(run), run, names=["bandit"], options=["low_score=0.1"])
    assert config.environments["bandit"].options == {"names": "phoenix_dragon", "reversed": True, "low_score": 0.1}


def test_a_model_is_measured_under_the_defaults_with_the_settings_that_suit_the_environment() -> None:
    config = load_for_evaluation("some/model", None, names=["bandit"], overrides=["evaluation.temperature=0"])
    assert config.model.name == "some/model"
    assert config.environments == load.load("bandit_tiny").environments  # which gives the environment no options
    assert config.evaluation.temperature == 0


def test_an_environment_of_one_s_own_goes_under_the_name_of_its_class() -> None:
    config = load_for_evaluation("m", None, names=["ragen.environments.bandit.env:BanditEnv"], options=["names=test"])
    (environment,) = config.environments.values()
    assert list(config.environments) == ["BanditEnv"]
    assert environment.name == "ragen.environments.bandit.env:BanditEnv"
    assert environment.options == {"names": "test"}


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ((), (), r"--env is missing: m is no run folder and no checkpoint; .* \(known: .*\bbandit\b.*, or module:Class\)"),
        (("bandti",), (), r"there is no environment 'bandti'; did you mean 'bandit'\? \(known: .*\bbandit\b.*"),
        (("bandit",), ("nmes=test",), r"environments\.bandit\.options\.nmes.*"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(names: tuple[str, ...], options: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_for_evaluation("m", None, names=names, options=options)
    assert re.fullmatch(expected, str(caught.value))  # "." is no line break: one line


# -- suites ------------------------------------------------------------------------------------------------------------------


def test_a_suite_says_what_is_played_and_how_and_the_run_all_the_rest(run: Path) -> None:
    planned = load_for_suite(str(run), run, "paper", overrides=["evaluation.num_episodes=4"])
    assert [kind for kind, _ in planned] == ["paper-sampled", "paper-greedy"]
    suite = load_suite("paper")
    for (_, config), temperature in zip(planned, (0.5, 0.0), strict=True):
        assert config.environments == suite.environments
        assert (config.evaluation.num_episodes, config.evaluation.temperature) == (4, temperature)
        assert (config.rollout.group_size, config.seed, config.model.name) == (4, 9, "smollm2-135m")


def test_a_policy_that_does_not_sample_is_measured_once() -> None:
    ((kind, config),) = load_for_suite("random", None, "paper")
    assert (kind, config.evaluation.num_episodes) == ("paper-sampled", 256)


@pytest.mark.parametrize(
    "override", ["evaluation.temperature=1", "env=bandit", "environments.sokoban.max_turns=2", "~environments.bandit"]
)
def test_an_override_of_what_the_suite_says_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"override {override!r}: has no effect with --suite")):
        load_for_suite("some/model", None, "quick", overrides=[override])
