"""How many failures a step stands, and which trajectories are played anew. Numbers worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragen.errors import TrainingError
from ragen.records import EndReason
from ragen.rollout.config import RolloutConfig
from ragen.rollout.faults import Faults
from tests.support.samples import make_trajectory


def faults(total: int, failed_frac: float = 1.0, replacements_frac: float = 1.0) -> Faults:
    return Faults(total, RolloutConfig(max_failed_frac=failed_frac, max_replacements_frac=replacements_frac))


def replaces(counted: Faults, group: int = 0, *, tag: str = "a", attempt: int = 0, group_size: int = 4) -> bool:
    failed = make_trajectory([1], group=group, tag=tag, end_reason=EndReason.TIMEOUT, error=f"{tag} {group} broke")
    return counted.may_replace(replace(failed, key=replace(failed.key, attempt=attempt)), group_size)


def test_replacements_are_a_share_of_the_step_rounded_down() -> None:
    counted = faults(10, replacements_frac=0.25)
    assert [replaces(counted, group) for group in range(4)] == [True, True, False, False]
    assert not replaces(faults(3, replacements_frac=0.25))
    assert not replaces(faults(100, replacements_frac=0.0))


def test_a_share_is_not_one_less_because_of_binary_fractions() -> None:
    assert int(0.29 * 100) == 28
    counted = faults(100, failed_frac=0.29, replacements_frac=0.29)
    assert [replaces(counted, group) for group in range(29)] == [True] * 29
    with pytest.raises(TrainingError, match=r"^30 of 100 trajectories failed, more than rollout\.max_failed_frac=0\.29 allows"):
        replaces(counted, 29)


def test_a_part_of_a_step_stands_what_the_step_stands() -> None:
    """A refill of four in a step of forty: a quarter of the step may fail, so one of the four does not stop the run."""
    config = RolloutConfig(max_failed_frac=0.25, max_replacements_frac=0.05)
    part = Faults(4, config, num_step=40)
    assert [replaces(part, group) for group in range(3)] == [True, True, False]
    assert part.report(2) == "3 of 4 trajectories failed, 2 are left out after 2 replacements; the first: a 0 broke"
    whole = Faults(4, config)
    assert not replaces(whole)
    with pytest.raises(TrainingError, match=r"^2 of 4 trajectories failed"):
        replaces(whole)


def test_a_group_gets_no_more_replacements_than_it_has_members() -> None:
    counted = faults(100)
    assert [replaces(counted, 7, group_size=2) for _ in range(3)] == [True, True, False]
    assert replaces(counted, 8, group_size=2)
    assert replaces(counted, 7, tag="b", group_size=2)  # another environment's group of that number


def test_the_run_stops_at_the_trajectory_that_is_one_too_many_and_names_the_first() -> None:
    counted = faults(8, failed_frac=0.25)
    assert replaces(counted, 3)
    assert replaces(counted, 4)
    expected = r"^3 of 8 trajectories failed, more than rollout\.max_failed_frac=0\.25 allows; the first: a 3 broke$"
    with pytest.raises(TrainingError, match=expected):
        replaces(counted, 5)


def test_a_replacement_that_fails_is_the_same_trajectory_again() -> None:
    counted = faults(8, failed_frac=0.125)
    assert replaces(counted, 0)
    assert replaces(counted, 0, attempt=1)
    assert replaces(counted, 0, attempt=2)
    with pytest.raises(TrainingError, match="2 of 8"):
        replaces(counted, 1)


def test_the_report_says_what_became_of_the_failures() -> None:
    counted = faults(8, replacements_frac=0.25)
    assert counted.report(num_scored=8) == ""
    replaces(counted, 1)
    assert counted.report(8) == "1 of 8 trajectories failed, 0 are left out after 1 replacement; the first: a 1 broke"
    none = faults(8, replacements_frac=0.0)
    replaces(none, 2)
    assert none.report(7) == "1 of 8 trajectories failed and are left out; the first: a 2 broke"
