from __future__ import annotations

import re
from typing import Any

import pytest

from ragen.credit.filters import FilterConfig
from ragen.errors import ConfigError

F = "algorithm.filter"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"rule": "top_frac", "value": 0.25},  # StarPO-S
        {"drop_zero_spread": True, "refill_frac": 2.0},  # DAPO's dynamic sampling
        {"rule": "top_p", "value": 0.9, "slack": 0.01, "drop_zero_spread": True, "loss_scale": "linear"},  # RAGEN-2
        {"rule": "top_k", "value": 4.0, "score": "mean", "prefer": "smallest"},
        {"rule": "top_p_softmax", "value": 0.9, "score": "sum", "refill_frac": 0.5, "refill_rounds": 1},
        {"rule": "min_p", "value": 1.0, "score": "balance", "engage_ratio": 0.5},
        {"weighting": "max", "score": "variance"},
    ],
)
def test_what_can_act_passes(config: dict[str, Any]) -> None:
    FilterConfig(**config).check()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"rule": "topp"}, f"{F}.rule='topp': must be one of all, top_frac, top_k, top_p, top_p_softmax, min_p; did you mean"),
        ({"score": "stdd"}, f"{F}.score='stdd': must be one of std, variance, range,"),
        ({"prefer": "big"}, f"{F}.prefer='big': must be one of largest, smallest"),
        ({"weighting": "softmax"}, f"{F}.weighting='softmax': must be one of none, max, mean"),
        ({"loss_scale": "log"}, f"{F}.loss_scale='log': must be one of none, linear, sqrt"),
        ({"value": 0.5}, f"{F}.value=0.5: has no effect with {F}.rule=all"),
        ({"rule": "top_frac"}, f"{F}.value=null: {F}.rule=top_frac needs a number"),
        ({"rule": "top_frac", "value": 1.0}, f"{F}.value=1: must lie in (0, 1) with {F}.rule=top_frac; rule=all keeps"),
        ({"rule": "top_p", "value": 0.0}, f"{F}.value=0: must lie in (0, 1) with"),
        ({"rule": "min_p", "value": 1.5}, f"{F}.value=1.5: must lie in (0, 1] with {F}.rule=min_p"),
        ({"rule": "top_k", "value": 0.25}, f"{F}.value=0.25: must be a whole number of at least 1 with {F}.rule=top_k"),
        ({"rule": "top_p", "value": 0.9, "slack": -0.1}, f"{F}.slack=-0.1: must be at least 0"),
        ({"refill_rounds": 0}, f"{F}.refill_rounds=0: must be at least 1"),
        (
            {"rule": "top_p", "value": 0.9, "score": "mean"},
            f"{F}.score=mean: may be negative, and {F}.rule=top_p compares ratios",
        ),
        ({"rule": "top_k", "value": 2, "score": "sum", "weighting": "max"}, f"{F}.score=sum: may be negative, which"),
        (
            {"rule": "top_k", "value": 2, "prefer": "smallest", "weighting": "max"},
            f"{F}.weighting=max: weighs by large scores; impossible with {F}.prefer=smallest",
        ),
        ({"score": "range"}, f"{F}.score=range: has no effect without a rule or a weighting"),
        ({"prefer": "smallest"}, f"{F}.prefer=smallest: has no effect without a rule"),
        ({"rule": "min_p", "value": 0.5, "slack": 0.1}, f"{F}.slack=0.1: has no effect without rule=top_p"),
        ({"engage_ratio": 0.5}, f"{F}.engage_ratio=0.5: has no effect without a rule"),
        ({"weighting": "max", "loss_scale": "sqrt"}, f"{F}.loss_scale=sqrt: has no effect without a rule or drop_zero_spread"),
        (
            {"rule": "top_k", "value": 2, "refill_frac": 1.0},
            f"{F}.refill_frac=1.0: has no effect without drop_zero_spread=true or",
        ),
        ({"drop_zero_spread": True, "refill_rounds": 2}, f"{F}.refill_rounds=2: has no effect without refill_frac above 0"),
    ],
)
def test_what_cannot_act_is_refused_in_one_line(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}") as caught:
        FilterConfig(**config).check()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "num_groups", "group_size", "says"),
    [
        ({"rule": "top_k", "value": 9}, 8, 4, f"{F}.value=9: must be at most 8, the number of groups in a step"),
        ({"drop_zero_spread": True, "refill_frac": 0.1}, 8, 4, f"{F}.refill_frac=0.1: is less than one group of 8"),
        ({"drop_zero_spread": True}, 8, 1, "rollout.group_size=1: must be at least 2 with a filter by spread"),
        ({"rule": "top_frac", "value": 0.5}, 8, 1, "rollout.group_size=1: must be at least 2"),
        (
            {"rule": "top_frac", "value": 0.5, "score": "length", "engage_ratio": 1.0},
            8,
            1,
            "rollout.group_size=1: must be at least 2",
        ),
    ],
)
def test_a_filter_that_cannot_act_in_the_step_is_refused(
    config: dict[str, Any], num_groups: int, group_size: int, says: str
) -> None:
    """Bug-log row 17 among them: the spread of a single member."""
    filter_ = FilterConfig(**config)
    filter_.check()
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}"):
        filter_.check_groups(num_groups, group_size)


def test_no_filter_and_filters_without_spread_bear_groups_of_one() -> None:
    FilterConfig().check_groups(1, 1)
    FilterConfig(rule="top_frac", value=0.5, score="length").check_groups(2, 1)


def test_what_is_wanted_and_what_may_be_played_beyond_it() -> None:
    assert FilterConfig(rule="top_frac", value=0.25).num_wanted(8) == 2
    assert FilterConfig(rule="top_k", value=3).num_wanted(8) == 3
    assert FilterConfig(rule="top_p", value=0.9).num_wanted(8) == FilterConfig().num_wanted(8) == 8
    assert [FilterConfig(refill_frac=frac).num_extra(8) for frac in (0.0, 0.5, 0.9, 2.0)] == [0, 4, 7, 16]
