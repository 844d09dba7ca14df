"""Whatever an environment does to its process, the check in another one names it and comes back."""

from __future__ import annotations

import time

import pytest

from ragen.check_apart import check_apart, settings
from ragen.environments.checker import Outcome, Report, check
from ragen.environments.checker.run import CHECKS, total_seconds
from ragen.environments.checker.subject import Subject
from ragen.errors import ConfigError
from tests.support.deadly import Talks

DEADLY = "tests.support.deadly"


def verdict(report: Report) -> tuple[dict[str, str], set[str]]:
    """(what failed, why later checks were left out)."""
    failed = {each.check: each.detail for each in report.of(Outcome.FAILED)}
    return failed, {each.detail for each in report.of(Outcome.SKIPPED)}


def test_a_good_environment_gets_the_same_findings_as_in_this_process() -> None:
    heard: list[str] = []
    apart = check_apart("bandit", ["names=test"], num_seeds=2, on_finding=lambda each: heard.append(each.check))
    here = check("bandit", {"names": "test"}, num_seeds=2, max_actions=1)
    assert heard == list(CHECKS)
    assert (apart.name, apart.options, apart.num_seeds) == ("bandit", {"names": "test"}, 2)
    of_the_process = ("speed", "global randomness")  # the second names torch where that is loaded
    assert [(each.check, each.outcome, each.detail) for each in apart.findings if each.check not in of_the_process] == [
        (each.check, each.outcome, each.detail) for each in here.findings if each.check not in of_the_process
    ]


@pytest.mark.parametrize(
    ("name", "how"), [("Exits", "exit code 7"), ("ExitsWithSuccess", "exit code 0"), ("Crashes", "signal SIGSEGV")]
)
def test_an_environment_that_ends_its_process_fails_the_check_under_way(name: str, how: str) -> None:
    report = check_apart(f"{DEADLY}:{name}", num_seeds=2)
    assert verdict(report) == ({"random agent": f"the process died with {how}"}, {"left out: the process died"})
    assert [each.check for each in report.findings] == list(CHECKS)


def test_an_environment_that_dies_while_it_is_made_is_named() -> None:
    report = check_apart(f"{DEADLY}:DiesWhenMade", num_seeds=2)
    assert verdict(report) == ({"make": "the process died with exit code 3"}, {"left out: the process died"})


def test_an_environment_that_hangs_while_it_is_made_is_given_up_at_the_deadline() -> None:
    report = check_apart(f"{DEADLY}:NeverMade", num_seeds=2, deadline_s=0.5)
    assert verdict(report) == ({"make": "did not answer within 0.5 s"}, {"left out: the environment hangs"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Interrupts", "it raised KeyboardInterrupt: no message"),
        ("NotEvenAnError", "it raised BaseException: nobody expects this"),
    ],
)
def test_what_no_handler_catches_is_a_failure_with_a_name(name: str, says: str) -> None:
    failed, _ = verdict(check(f"{DEADLY}:{name}", num_seeds=2, thorough=False))
    assert failed["random agent"] == says


def test_a_real_ctrl_c_still_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(self: object, *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ragen.check_apart._Child.hear", pressed)
    with pytest.raises(KeyboardInterrupt):
        check_apart("bandit", num_seeds=2)


def test_errors_of_the_settings_are_those_of_this_process() -> None:
    with pytest.raises(ConfigError, match="did you mean 'reversed'"):
        check_apart("bandit", ["revresed=true"])
    with pytest.raises(ConfigError, match="did you mean 'bandit'"):
        check_apart("bandti")
    with pytest.raises(ConfigError, match="its Config must be a dataclass"):
        check_apart(f"{DEADLY}:NoConfig")


def test_the_budget_of_a_tag_is_part_of_its_check_and_a_class_has_none() -> None:
    assert settings("bandit", ["names=test"]).max_actions == 1
    assert settings(f"{DEADLY}:Talks", []).max_actions is None


def test_enormous_texts_fail_the_text_size_and_are_not_compared() -> None:
    report = check(f"{DEADLY}:Enormous", num_seeds=2, thorough=False)
    failed, reasons = verdict(report)
    assert list(failed) == ["text size"]
    assert "left out: needs 'text size'" in reasons
    left_out = {each.check for each in report.of(Outcome.SKIPPED)}
    assert left_out >= {"determinism", "history", "task seed", "dynamics seed", "copies", "gymnasium"}


def test_an_episode_is_not_followed_after_an_enormous_text() -> None:
    subject = Subject(f"{DEADLY}:Enormous", {}, (0, 1), None)
    assert [len(episode.answers) for episode in subject.random_episodes()] == [1, 1]


def test_all_checks_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer comes in time, but there is no end of them."""

    def begin(self: Talks) -> str:
        time.sleep(0.05)
        return original(self)

    original = Talks._begin
    monkeypatch.setattr(Talks, "_begin", begin)
    report = check(f"{DEADLY}:Talks", num_seeds=50, total_s=0.5, thorough=False)
    (said,) = verdict(report)[0].values()
    assert said == "not finished: 0.5 s for all checks together are over; fewer seeds take less"
    assert "left out: the time is over" in verdict(report)[1]


def test_more_seeds_get_more_time() -> None:
    assert (total_seconds(1), total_seconds(20), total_seconds(100)) == (60.0, 60.0, 300.0)
