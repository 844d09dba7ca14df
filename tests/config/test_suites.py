"""Suites are read from files whose every word acts or is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragen.config.check import check
from ragen.config.load import groups, load
from ragen.config.suites import load_suite, suites
from ragen.environments import registry
from ragen.errors import ConfigError
from ragen.evaluation.measurements import measurements_of
from ragen.evaluation.suites import Suite

GREEDY = "settings: {g: {mode: greedy}}"
BANDIT = "environments: {a: bandit}"


def written(tmp_path: Path, *lines: str) -> Suite:
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_suite(str(path))


def modes(suite: Suite) -> dict[str, tuple[str, int, int, float]]:
    return {
        each.name: (each.mode, each.evaluation.num_episodes, each.evaluation.samples_per_seed, each.evaluation.temperature)
        for each in suite.settings
    }


@pytest.mark.parametrize("name", suites())
def test_every_shipped_suite_loads_and_its_first_line_says_what_it_is(name: str) -> None:
    """bug-log row 90."""
    suite = load_suite(name)
    assert suite.name == name
    assert suites()[name].endswith((".", "?"))


def test_the_suite_of_the_paper_is_what_the_paper_says() -> None:
    """256 fixed prompts, temperature 0.5, 5 turns or 10 actions; StarPO, appendix B."""
    suite = load_suite("paper")
    assert modes(suite) == {"sampled": ("sampled", 256, 1, 0.5), "greedy": ("greedy", 256, 1, 0.0)}
    played = {tag: env.name for tag, env in suite.environments.items()}
    assert played == {
        "bandit": "bandit",
        "bandit_reversed": "bandit",
        "sokoban": "sokoban",
        "sokoban_vocab": "sokoban",
        "sokoban_larger": "sokoban",
        "frozen_lake": "frozen_lake",
    }
    budgets = {tag: (env.max_turns, env.max_actions) for tag, env in suite.environments.items()}
    assert set(budgets.values()) == {(1, 1), (5, 10)}  # one pull of an arm
    options = {tag: env.options for tag, env in suite.environments.items()}
    assert options["bandit_reversed"]["reversed"] is True
    assert options["sokoban_vocab"]["symbols"] == "W.GCBA@"
    assert (options["sokoban_larger"]["height"], options["sokoban_larger"]["num_boxes"]) == (8, 2)
    assert options["frozen_lake"]["success_rate"] == pytest.approx(1 / 3)


def test_the_suite_of_the_second_paper_is_what_it_says() -> None:
    """RAGEN-2: 512 validation prompts, 5 turns of up to 2 actions."""
    suite = load_suite("paper_2")
    assert modes(suite)["sampled"] == ("sampled", 512, 1, 0.5)
    limits = {tag: (env.max_turns, env.max_actions_per_turn) for tag, env in suite.environments.items()}
    assert limits == {"sokoban": (5, 2), "frozen_lake": (5, 2), "countdown": (1, 1)}
    assert suite.environments["frozen_lake"].options["success_rate"] == 1.0
    assert suite.environments["frozen_lake"].options["observation_format"] == "grid_coord"  # of the tag, not forgotten


def test_the_suite_of_the_results_has_every_environment_but_the_one_that_needs_a_server() -> None:
    played = {environment.name for environment in load_suite("shipped").environments.values()}
    there = {name for name in registry.names() if registry.load(name).__module__.startswith("ragen.")}
    assert there - played == {"openenv"}


def test_what_an_entry_says_replaces_what_its_tag_says_and_nothing_else(tmp_path: Path) -> None:
    suite = written(
        tmp_path,
        "environments: {s: {env: sokoban_vocab, max_turns: 2, options: {search_depth: 40}}}",
        "settings: {g: {mode: greedy}}",
    )
    environment = suite.environments["s"]
    assert (environment.max_turns, environment.max_actions) == (2, 10)
    assert environment.options == {"search_depth": 40, "symbols": "W.GCBA@", "max_solution_length": 10}


def test_a_file_is_named_by_its_stem_and_counts_its_episodes(tmp_path: Path) -> None:
    suite = written(
        tmp_path,
        "environments: {a: bandit, b: bandit_test}",
        "settings: {g: {mode: greedy, num_episodes: 8}, s: {mode: sampled, num_episodes: 4, samples_per_seed: 3, top_k: 5}}",
    )
    assert suite.name == "mine"
    assert modes(suite) == {"g": ("greedy", 8, 1, 0.0), "s": ("sampled", 4, 3, 0.5)}
    assert [each.num_episodes for each in measurements_of(suite)] == [2 * 8, 2 * 4 * 3]
    assert [suite.kind(setting) for setting in suite.settings] == ["mine-g", "mine-s"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a: 1"], "a: must be one of environments, settings"),
        ([GREEDY], "environments: at least one is needed"),
        ([BANDIT], "settings: at least one is needed"),
        (["environments: {a: bandti}", GREEDY], "environments.a: there is no environment 'bandti'; did you mean 'bandit'"),
        (["environments: {a: {max_turns: 2}}", GREEDY], "environments.a.env: must name an environment"),
        (["environments: {a: {env: bandit, turns: 2}}", GREEDY], "environments.a: turns: must be one of env"),
        (["environments: {a: {env: bandit, max_turns: five}}", GREEDY], "environments.a.max_turns=five: must be a whole number"),
        (["environments: {a: {env: bandit, max_turns: 0}}", GREEDY], "environments.a.max_turns=0: must be at least 1"),
        (
            ["environments: {a: {env: bandit, max_actions_per_turn: 2}}", GREEDY],
            "max_actions_per_turn=2: must be at most max_actions=1",
        ),
        (["environments: {a: {env: bandit, options: {nam: 1}}}", GREEDY], "did you mean 'names'"),
        (["environments: {a/b: bandit}", GREEDY], "'a/b': is part of file names and metrics"),
        ([BANDIT, "settings: {s: {num_episodes: 4}}"], "settings.s.mode=: must be one of greedy, sampled"),
        (
            [BANDIT, "settings: {s: {mode: greedy, temperature: 0.5}}"],
            "settings.s.temperature=0.5: has no effect with mode=greedy",
        ),
        ([BANDIT, "settings: {s: {mode: greedy, top_k: 5}}"], "settings.s.top_k=5: has no effect with mode=greedy"),
        ([BANDIT, "settings: {s: {mode: sampled, temperature: 0}}"], "settings.s.temperature=0: is greedy"),
        ([BANDIT, "settings: {s: {mode: sampled, num_episodes: 0}}"], "settings.s.num_episodes=0: must be at least 1"),
        ([BANDIT, "settings: {s: {mode: sampled, num_episodes: many}}"], "evaluation.num_episodes=many: must be a whole number"),
        ([BANDIT, "settings: {s: {mode: sampled, every: 3}}"], "settings.s: every: must be one of mode, num_episodes"),
        (["- bandit"], "must hold keys and values"),
    ],
)
def test_whatever_is_wrong_is_one_line_that_begins_with_the_file(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(tmp_path, *lines)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "mine.yaml"))
    assert said in message
    assert "\n" not in message


def test_a_suite_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no suite 'papper'; did you mean 'paper'\? \(suites: paper, paper_2, "):
        load_suite("papper")
    with pytest.raises(ConfigError, match="no such file"):
        load_suite(str(tmp_path / "none.yaml"))


def test_suites_are_no_part_of_a_configuration() -> None:
    assert "suite" not in groups()
    with pytest.raises(ConfigError, match="there is no key 'suite'"):
        load("bandit_tiny", ["suite=quick"])


def test_a_run_is_refused_for_a_suite_that_cannot_be_played(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^evaluation\.suites: there is no suite 'slow'"):
        load("bandit_tiny", ["evaluation.suites=[quick,slow]"])
    path = tmp_path / "quick.yaml"
    path.write_text(f"{BANDIT}\n{GREEDY}", encoding="utf-8")
    config = load("bandit_tiny", ["evaluation.suites=[quick]"])
    config.evaluation.suites.append(str(path))
    with pytest.raises(ConfigError, match="would both be called 'quick'"):
        check(config)
