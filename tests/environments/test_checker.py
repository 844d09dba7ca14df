"""Every shipped environment and tag keeps the contract, and the checker notices each way of breaking it."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragen.config.environments import tags
from ragen.config.evaluation import load_for_evaluation
from ragen.environments import registry
from ragen.environments.checker import Outcome, Report, check, check_environment, run
from ragen.environments.checker.answers import ACTION_SEPARATOR, MAX_OBSERVATION_CHARS
from ragen.environments.checker.randomness import tell
from ragen.environments.checker.run import CHECKS
from ragen.environments.checker.subject import HOSTILE_TEXTS, Subject, task_seeds
from ragen.errors import ConfigError, EnvironmentFailure
from ragen.rollout.context_manager import ContextConfig
from tests.support import faulty
from tests.support.corridor import num_open

FAULTY = "tests.support.faulty"
SHIPPED = sorted({*tags(), *(name for name in registry.names() if registry.portable_name(name).startswith("ragen."))})
SHIPPED.remove("openenv")  # has no default for its url; tests/environments/adapters/test_openenv_env.py checks it over a server


def finding(report: Report, title: str) -> tuple[Outcome, str]:
    (found,) = (each for each in report.findings if each.check == title)
    return found.outcome, found.detail


def failures(report: Report) -> dict[str, str]:
    return {each.check: each.detail for each in report.of(Outcome.FAILED)}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_environment_and_tag_keeps_the_contract(name: str) -> None:
    """With the options of the tag, and solved by its oracle within the budget of the tag."""
    config = load_for_evaluation("tiny", None, names=[name]).environments[name]
    budget = min(config.max_actions, config.max_turns * config.max_actions_per_turn) if name in tags() else None
    report = check(config.name, config.options, num_seeds=4, max_actions=budget, thorough=False)
    assert failures(report) == {}


@pytest.mark.parametrize("names", ["train", "test", "phoenix_dragon"])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_bandit_keeps_the_contract_with_all_its_options(names: str, reverse: bool) -> None:
    check_environment("bandit", {"names": names, "reversed": reverse})


@pytest.mark.parametrize("name", ["Steady", "Calculator"])
def test_an_environment_that_keeps_every_promise_passes_every_check(name: str) -> None:
    report = check(f"{FAULTY}:{name}", num_seeds=4)
    assert report.ok
    assert {each.check: each.outcome for each in report.findings if each.check != "speed"} == dict.fromkeys(
        [title for title in CHECKS if title != "speed"], Outcome.PASSED
    )
    assert num_open() == 0


@pytest.mark.parametrize(
    ("options", "title", "says"),
    [
        ({"observation": "none"}, "reset", "observation of reset must be a str, not None"),
        ({"observation": "number"}, "reset", "observation of reset must be a str, not 3"),
        ({"observation": "surrogate"}, "answers", "UTF-8"),
        ({"observation": "huge"}, "text size", "100000 characters"),
        ({"reward": "none"}, "answers", "reward must be a finite float, not None"),
        ({"reward": "nan"}, "answers", "reward must be a finite float, not nan"),
        ({"reward": "bool"}, "answers", "reward must be a finite float, not True"),
        ({"flags": "number"}, "answers", "terminated must be a bool, not 1"),
        ({"info": "none"}, "answers", "info must be a dict"),
        ({"info": "no_success"}, "answers", r"info\['success'\] must be a bool"),
        ({"both_flags": True}, "end flags", "never be set together"),
        ({"raise_in_reset": True}, "reset", r"reset\(seed=0\): Broken: reset"),
        ({"raise_at_step": 1}, "random agent", "Broken: step 1"),
        ({"raise_in_close": True}, "close", "Broken: close"),
    ],
)
def test_each_fault_of_an_answer_is_named_and_leaves_nothing_open(options: dict[str, Any], title: str, says: str) -> None:
    with pytest.raises(EnvironmentFailure, match=f"breaks its contract: {title}: .*{says}"):
        check_environment(f"{FAULTY}:Steady", options)
    assert num_open() == 0


@pytest.mark.parametrize(
    ("name", "title", "says"),
    [
        ("EmptyInstruction", "reset", "instruction must be a non-empty text"),
        ("FourParts", "answers", "tuple of five, not tuple"),
        ("NumpyReward", "answers", r"finite float, not np.float64"),
        ("InfiniteInfo", "answers", r"info\['distance'\] must be finite"),
        ("NumberForSuccess", "answers", r"info\['success'\] must be a bool after every step, not 0"),
        ("SolvedAndCut", "end flags", "terminated, not truncated"),
        ("Separator", "action names", r"'Left \|\| Right' must not contain the separator"),
        ("CaseTwins", "reset", "must differ by more than case"),
        ("ChangingNames", "action names", "must not change within an episode"),
        ("Unseeded", "determinism", "the first prompts differ"),
        ("UnseededSteps", "determinism", "the reward of step 1 differs"),
        ("GlobalStart", "determinism", "the first prompts differ"),
        ("Sharing", "determinism", "the first prompts differ"),
        ("Forgetful", "history", "must not depend on those before it"),
        ("IgnoredSeed", "task seed", "reset must hand the seed on"),
        ("DynamicsInPrompt", "dynamics seed", "must not change the first prompt"),
        ("GlobalNumpy", "global randomness", "changed: numpy"),
        ("GlobalRandom", "global randomness", "changed: random"),
        ("GlobalTorch", "global randomness", "changed: torch"),
        ("Endless", "order of calls", "after the end must raise ResetNeeded"),
        ("Eager", "order of calls", "before reset must raise ResetNeeded"),
        ("ClosedTwice", "close", "OSError: already closed"),
        ("CopiedByReference", "copies", "after deepcopy, copy and original must go on identically"),
        ("WrongMaximum", "oracle", "max_return says 1.0"),
        ("Detour", "oracle", "the oracle returns"),
        ("Dawdler", "oracle", "must solve it; after 1000 actions it has not"),
        ("Misspelt", "oracle", "'Rigth' is not an action"),
        ("Clueless", "oracle", "knows no first action"),
        ("WorseThanChance", "oracle", "succeeds in 0 of 5 episodes, the random agent in 4"),
        ("StuckAfterAMistake", "oracle", "LookupError: off the path"),
        ("Exits", "random agent", "SystemExit: enough"),
        ("Trusting", "random agent", "ValueError: invalid literal for int"),
        ("Echo", "text size", "a text of 100009 characters"),
    ],
)
def test_each_broken_promise_is_named(name: str, title: str, says: str) -> None:
    with pytest.raises(EnvironmentFailure, match=f"breaks its contract: {title}: .*{says}"):
        check_environment(f"{FAULTY}:{name}")


def test_what_depends_on_the_order_of_a_set_shows_in_another_process_only() -> None:
    report = check(f"{FAULTY}:OrderOfASet", num_seeds=2)
    assert failures(report) == {
        "other process": "another process, with another PYTHONHASHSEED, must see equal episodes",
    }


def test_what_another_process_cannot_import_is_skipped_there() -> None:
    class Local(faulty.Steady):
        pass

    registry.register("local", Local)
    try:
        report = check("local", num_seeds=2)
    finally:
        registry._entries.pop("local")
    assert finding(report, "other process")[0] is Outcome.SKIPPED


def test_another_process_is_told_of_by_a_number_that_follows_from_the_episodes(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for name, seeds in (("Steady", [1, 2]), ("Steady", [1, 2]), ("Steady", [1, 3]), ("Calculator", [1, 2])):
        tell(json.dumps([f"{FAULTY}:{name}", {}, seeds]))
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert len(set(told)) == 3


@pytest.mark.parametrize(
    ("name", "title", "outcome", "says"),
    [
        ("DrawnForNothing", "task seed", Outcome.WARNED, "reset draws from np_random, yet 4 seeds all give the same start"),
        ("OneStart", "task seed", Outcome.SKIPPED, "one start: reset draws nothing from np_random"),
        ("HiddenStart", "task seed", Outcome.PASSED, "one first prompt, but other episodes behind it from 4 seeds"),
        (
            "Handle",
            "copies",
            Outcome.WARNED,
            "cannot be copied, so neither saved nor moved to another process: pickle: TypeError: ",
        ),
        ("NumberForPicture", "gymnasium", Outcome.WARNED, "ANSI/ASCII rendering should produce a string, got <class 'int'>"),
    ],
)
def test_what_is_allowed_but_odd_is_no_failure(name: str, title: str, outcome: Outcome, says: str) -> None:
    report = check(f"{FAULTY}:{name}", num_seeds=4, thorough=False)
    assert report.ok
    found, detail = finding(report, title)
    assert found is outcome
    assert detail.startswith(says)


def test_an_environment_without_oracle_has_none_to_check() -> None:
    assert finding(check(f"{FAULTY}:Lost", num_seeds=2, thorough=False), "oracle") == (Outcome.SKIPPED, "no oracle")


def test_the_budget_of_a_tag_must_let_the_oracle_arrive() -> None:
    """From the first cell the goal is four steps away; one of four seeds begins there."""
    enough = check(f"{FAULTY}:Steady", num_seeds=4, max_actions=4, thorough=False)
    assert finding(enough, "oracle") == (Outcome.PASSED, "scores the maximum from all 4 seeds")
    short = check(f"{FAULTY}:Steady", num_seeds=20, max_actions=3, thorough=False)
    assert "must solve it within the budget of 3 actions; after 3 actions it has not" in failures(short)["oracle"]


@pytest.mark.parametrize(("name", "title"), [("Hangs", "random agent"), ("HangsInReset", "reset")])
def test_an_environment_that_hangs_is_given_up(name: str, title: str) -> None:
    report = check(f"{FAULTY}:{name}", num_seeds=2, deadline_s=0.2)
    assert failures(report) == {title: "did not answer within 0.2 s"}
    later = report.findings[[each.check for each in report.findings].index(title) + 1 :]
    assert later
    assert {(each.outcome, each.detail) for each in later} == {(Outcome.SKIPPED, "left out: the environment hangs")}


def test_a_slow_environment_that_answers_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is for one answer, not for a check of many."""

    def many_answers(subject: Subject) -> str:
        for _ in range(10):
            subject.touch()
            time.sleep(0.1)
        return "ten answers"

    monkeypatch.setattr(run, "CHECKS", {"patience": (many_answers, "")})
    (found,) = check("bandit", deadline_s=0.7).findings
    assert (found.outcome, found.detail) == (Outcome.PASSED, "ten answers")


def test_what_cannot_be_looked_at_any_more_is_left_out() -> None:
    report = check(f"{FAULTY}:Unseeded", num_seeds=2, thorough=False)
    assert list(failures(report)) == ["determinism"]
    assert finding(report, "history") == (Outcome.SKIPPED, "left out: needs 'determinism'")
    assert finding(report, "oracle")[0] is Outcome.PASSED


def test_findings_are_told_as_they_come() -> None:
    heard: list[str] = []
    report = check("bandit", num_seeds=2, thorough=False, on_finding=lambda each: heard.append(each.check))
    assert heard == [each.check for each in report.findings] == [t for t in CHECKS if t not in ("other process", "speed")]


@pytest.mark.parametrize("name", ["GlobalNumpy", "GlobalRandom"])
def test_the_global_generators_are_as_before_whatever_the_environment_does(name: str) -> None:
    before = random.getstate(), repr(np.random.get_state())
    check(f"{FAULTY}:{name}", num_seeds=2, thorough=False)
    assert (random.getstate(), repr(np.random.get_state())) == before


def test_an_environment_that_cannot_be_made_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="start=9"):
        check_environment("corridor", {"start": 9})
    with pytest.raises(ConfigError, match="seeds=0: must be at least 1"):
        check("bandit", num_seeds=0)


def test_seeds_are_small_ones_and_large_ones_that_differ() -> None:
    seeds = task_seeds(20)
    assert seeds[:2] == (0, 1)
    assert len(set(seeds)) == 20
    assert all(2**50 < seed < 2**63 for seed in seeds[2:])
    assert task_seeds(1) == (0,)


def test_the_limits_are_those_of_a_run() -> None:
    context = ContextConfig()
    assert (context.max_observation_chars, context.action_separator) == (MAX_OBSERVATION_CHARS, ACTION_SEPARATOR)


def test_hostile_texts_hold_what_breaks_parsers() -> None:
    assert {"", "9**9**9", "\x00", "||"} <= set(HOSTILE_TEXTS)
    assert max(map(len, HOSTILE_TEXTS)) == len(HOSTILE_TEXTS[-1]) == 100_000


def test_the_page_lists_every_check_in_order() -> None:
    page = Path(__file__).parents[2] / "docs" / "playing_and_checking.md"
    assert re.findall(r"^\| `([^`]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE) == list(CHECKS)
