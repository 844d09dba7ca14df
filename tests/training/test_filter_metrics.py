"""What the filter dropped and what that cost, worked by hand; every key is defined."""

from __future__ import annotations

import pytest

from ragen.credit.filters import FilterConfig, select
from ragen.metrics import find
from ragen.records import EndReason, Group
from ragen.training.filter_metrics import filter_metrics
from tests.support.samples import make_group, make_trajectory

DYNAMIC = FilterConfig(drop_zero_spread=True)


def flat_group(group: int) -> Group:
    """Two members of 5 and 3 sampled tokens, the same return."""
    members = [make_trajectory([1], [2] * n, [9] * 50, group=group, member=m) for m, n in enumerate((5, 3))]
    return Group(trajectories=tuple(members))


def test_the_bill_of_a_refilled_step() -> None:
    """Planned: kept (2 tokens), flat (8), lost (6 tokens). Refilled: kept (2), flat (8). 16 of 26 tokens of 13 s are dropped."""
    lost = make_trajectory([1], [2] * 6, group=2, end_reason=EndReason.TIMEOUT)
    groups = [make_group(0.0, 1.0), flat_group(1), Group(trajectories=(), failed=(lost,))]
    groups += [make_group(0.0, 1.0, group=3), flat_group(4)]
    selection = select(groups, DYNAMIC, num_planned=3)
    metrics = filter_metrics(groups, selection, DYNAMIC, num_planned=3, num_rounds=1, seconds=13.0)
    assert metrics == {
        "filter/kept_groups": 2,
        "filter/kept_frac": 2 / 5,
        "filter/missing_groups": 1,
        "filter/zero_spread_groups": 2,
        "filter/engaged": 0,
        "filter/spread_ratio": pytest.approx(2 / 3**0.5),  # variances 1/2, 0, 1/2, 0: mean 1/4, unbiased std 1 / (2 sqrt 3)
        "filter/score_kept": pytest.approx(0.5**0.5),
        "filter/score_dropped": 0.0,
        "filter/effective_groups": 2,
        "filter/weight_mean": 1,
        "filter/loss_scale": 1,
        "filter/dropped_trajectories": 4,
        "filter/dropped_tokens": 16,
        "filter/dropped_s": pytest.approx(8.0),
        "filter/extra_groups": 2,
        "filter/extra_rounds": 1,
        "filter/skipped_update": 0,
    }
    assert all(find(key) for key in metrics)


def test_without_a_filter_there_is_nothing_to_say() -> None:
    groups = [make_group(0.0, 1.0)]
    off = FilterConfig()
    assert filter_metrics(groups, select(groups, off, num_planned=1), off, num_planned=1, num_rounds=0, seconds=1.0) == {}


def test_an_empty_result_says_so_in_finite_numbers() -> None:
    silent = Group(trajectories=tuple(make_trajectory([1], [], member=m) for m in range(2)))
    metrics = filter_metrics(
        [silent], select([silent], DYNAMIC, num_planned=1), DYNAMIC, num_planned=1, num_rounds=0, seconds=1.0
    )
    assert (metrics["filter/skipped_update"], metrics["filter/missing_groups"], metrics["filter/dropped_s"]) == (1, 1, 0)
    assert "filter/score_kept" not in metrics
