"""The kit on our own estimators in all their settings, and on estimators of one's own that are right or wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ragen.credit.config import READS, AdvantageConfig
from ragen.environments.checker.report import Outcome, Report
from ragen.errors import ConfigError, TrainingError
from ragen.testing.estimators import PROMISES, check_estimator, promises_of
from ragen.testing.run import require_kept

TURN_DISCOUNT: dict[str, Any] = {"gamma": 0.9, "discount_per": "turn"}
TOKEN_DISCOUNT: dict[str, Any] = {"gamma": 0.9, "discount_per": "token"}
SETTINGS: list[dict[str, Any]] = [
    {"estimator": "gae"},
    {"estimator": "gae", "whiten": False},
    {"estimator": "gae", "whiten": False, "lam": 0.8, **TOKEN_DISCOUNT},
    {"estimator": "gae", "whiten": False, "lam": 0.8, **TURN_DISCOUNT},
    {"estimator": "gae", "grouping": "tag", "gamma": 0.9, "discount_per": "action"},
    {"estimator": "turn_gae", "whiten": False},
    {"estimator": "turn_gae", "lam": 0.8, **TURN_DISCOUNT},
    {"estimator": "bi_level_gae"},
    {"estimator": "bi_level_gae", "whiten": False, "gamma": 0.9, "lam": 0.9, "lam_turn": 0.8},
    {"estimator": "grpo"},
    {"estimator": "grpo", "method": "mean"},
    {"estimator": "grpo", "method": "asym_clip"},
    {"estimator": "brpo"},
    {"estimator": "brpo", "method": "mean", "grouping": "tag"},
    {"estimator": "arpo"},
    {"estimator": "rloo"},
    {"estimator": "reinforce_pp"},
    {"estimator": "reinforce_pp", "whiten": False, **TURN_DISCOUNT},
    {"estimator": "reinforce_pp", "grouping": "tag", **TOKEN_DISCOUNT},
    {"estimator": "reinforce_pp", "rewards_at": "end"},
    {"estimator": "reinforce_pp_baseline"},
    {"estimator": "reinforce_pp_baseline", "whiten": False},
    {"estimator": "return_batch_norm"},
    {"estimator": "return_batch_norm", "method": "mean", "grouping": "tag", **TURN_DISCOUNT},
    {"estimator": "turn_rloo"},
    {"estimator": "turn_rloo", "rewards_at": "end", **TURN_DISCOUNT},
    {"estimator": "gigpo"},
    {"estimator": "gigpo", "method": "mean", "anchor_weight": 0.5, **TURN_DISCOUNT},
]


def broken(report: Report) -> list[str]:
    return [finding.check for finding in report.of(Outcome.FAILED)]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(map(str, settings.values())))
def test_ours_keep_what_all_must_keep_and_what_they_promise(settings: dict[str, Any]) -> None:
    require_kept(check_estimator(AdvantageConfig(**settings)))


def test_every_estimator_and_every_promise_is_among_them() -> None:
    assert {settings["estimator"] for settings in SETTINGS} == READS.keys()
    assert set().union(*(promises_of(AdvantageConfig(**settings)) for settings in SETTINGS)) == PROMISES.keys()


@pytest.mark.parametrize(
    ("promise", "settings"),
    [
        ("centred", {"estimator": "arpo"}),
        ("linear", {"estimator": "grpo"}),
        ("scale_free", {"estimator": "rloo"}),
        ("lone_zero", {"estimator": "brpo"}),
        ("group_local", {"estimator": "brpo"}),
        ("whole", {"estimator": "turn_rloo"}),
        ("turn_split", {"estimator": "turn_rloo"}),
        ("causal", {"estimator": "grpo"}),
    ],
)
def test_a_promise_that_an_estimator_cannot_keep_is_found_broken(promise: str, settings: dict[str, Any]) -> None:
    assert broken(check_estimator(AdvantageConfig(**settings), promises=[promise])) == [promise]


def test_a_critic_that_is_not_listened_to_is_found() -> None:
    assert broken(check_estimator(AdvantageConfig(estimator="arpo"), promises=["critic"])) == ["critic"]


@pytest.mark.parametrize(
    ("name", "promises", "expected"),
    [
        ("half_grpo", ["centred", "group_local", "lone_zero"], []),
        ("reward_minus_value", None, []),
        ("zscore_of_everything", ["centred"], ["few tokens", "centred"]),
        ("zscore_of_everything", None, ["few tokens"]),
    ],
)
def test_an_estimator_of_one_s_own(name: str, promises: list[str] | None, expected: list[str]) -> None:
    assert broken(check_estimator(AdvantageConfig(estimator=f"tests.support.plugins:{name}"), promises=promises)) == expected


@pytest.mark.parametrize("name", ["one_for_all", "one_number", "plain_numbers", "raises", "not_a_number"])
def test_whatever_an_estimator_of_one_s_own_does_ends_as_findings(name: str) -> None:
    report = check_estimator(AdvantageConfig(estimator=f"tests.support.plugins:{name}"))
    assert "answers" in broken(report)
    assert all("\n" not in finding.detail for finding in report.findings)
    with pytest.raises(TrainingError, match=f"^tests.support.plugins:{name} breaks an invariant: answers: "):
        require_kept(report)


def test_a_promise_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"promise 'centred_': must be one of centred, .*; did you mean 'centred'"):
        check_estimator(AdvantageConfig(), promises=["centred_"])


def test_findings_are_heard_of_as_they_come() -> None:
    heard: list[str] = []
    report = check_estimator(AdvantageConfig(estimator="arpo"), on_finding=lambda finding: heard.append(finding.check))
    assert heard == [finding.check for finding in report.findings]
