"""What differs between two configurations, setting by setting."""

from __future__ import annotations

from ragen.config.changes import changes
from ragen.config.load import load


def test_equal_configurations_differ_in_nothing() -> None:
    assert changes(load("bandit"), load("bandit")) == []


def test_each_setting_that_differs_is_named_with_both_values() -> None:
    found = changes(load("bandit", ["trainer.steps=4"]), load("bandit", ["trainer.steps=5", "seed=3"]))
    assert [(change.key, change.old, change.new) for change in found] == [("seed", 0, 3), ("trainer.steps", 4, 5)]
    assert str(found[1]) == "trainer.steps=5 (it was 4)"


def test_an_option_that_only_one_has_is_a_change() -> None:
    (change,) = changes(load("bandit"), load("bandit", ["environments.bandit.options.low_score=0.1"]))
    assert (change.key, change.old, change.new) == ("environments.bandit.options.low_score", None, 0.1)
