"""Metrics are defined once, and what is logged is finite."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.metrics import KEYS, Reducer, find, finite_only, reduce
from ragen.records import EndReason

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"


def documented() -> list[dict[str, str]]:
    """The entries of docs/metrics.md: key, definition, and the four bullets by their bold names."""
    entries = []
    for block in re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        block = re.split(r"^## ", block, flags=re.MULTILINE)[0]
        heading, definition, bullets = block.strip().split("\n\n", 2)
        entry = {"key": heading.strip("`"), "what": " ".join(definition.split()).rstrip(".")}
        for name, text in re.findall(r"^- \*\*(.+?)\*\*: (.*?)(?=^- \*\*|\Z)", bullets, flags=re.MULTILINE | re.DOTALL):
            entry[name] = " ".join(text.split())
        entries.append(entry)
    return entries


def test_the_page_and_the_table_define_the_same_metrics_in_the_same_order() -> None:
    assert [entry["key"] for entry in documented()] == [metric.key for metric in KEYS]


def test_the_page_and_the_table_say_the_same_about_each_metric() -> None:
    for entry, metric in zip(documented(), KEYS, strict=True):
        assert entry["what"] == metric.what[0].upper() + metric.what[1:]
        assert entry["Reducer"] == metric.reducer
        assert entry["Healthy"] == metric.healthy


def test_every_entry_has_a_unit_and_says_what_to_do() -> None:
    for entry in documented():
        assert entry["Unit"], entry["key"]
        assert entry["When off"], entry["key"]


def test_every_end_reason_is_named_on_the_page() -> None:
    entry = next(entry for entry in documented() if entry["key"] == "rollout/end/<reason>")
    assert [reason.value for reason in EndReason] == re.findall(r"[a-z_]+(?=[,)])", entry["what"])


def test_keys_are_defined_once() -> None:
    keys = [metric.key for metric in KEYS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("logged", "defined"),
    [
        ("rollout/success", "rollout/success"),
        ("rollout/bandit/success", "rollout/<tag>/success"),
        ("rollout/end/turn_limit", "rollout/end/<reason>"),
        ("eval/frozen_lake/return", "eval/<tag>/return"),
    ],
)
def test_a_logged_key_is_found_under_its_definition(logged: str, defined: str) -> None:
    metric = find(logged)
    assert metric is not None
    assert metric.key == defined


@pytest.mark.parametrize("key", ["rollout/succes", "eval/success", "rollout/a/b/success", "success", ""])
def test_a_key_without_definition_is_not_found(key: str) -> None:
    assert find(key) is None


@pytest.mark.parametrize(
    ("reducer", "expected"), [(Reducer.MEAN, 2.0), (Reducer.SUM, 6.0), (Reducer.MAX, 3.0), (Reducer.LAST, 2.0)]
)
def test_absent_values_are_left_out_of_a_reduction(reducer: Reducer, expected: float) -> None:
    """Bug-log row 96: one NaN must not spoil the mean of the window."""
    assert reduce([1.0, math.nan, 3.0, math.inf, 2.0], reducer) == expected


@pytest.mark.parametrize("reducer", list(Reducer))
def test_nothing_finite_reduces_to_nothing(reducer: Reducer) -> None:
    assert reduce([math.nan, -math.inf], reducer) is None
    assert reduce([], reducer) is None


@given(st.dictionaries(st.text(), st.none() | st.floats()))
def test_what_is_logged_is_finite_and_otherwise_unchanged(values: dict[str, float | None]) -> None:
    """Invariant I4."""
    kept = finite_only(values)
    assert all(math.isfinite(value) for value in kept.values())
    assert kept == {key: value for key, value in values.items() if value is not None and math.isfinite(value)}
