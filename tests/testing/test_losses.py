"""The kit on our own losses, KL terms, aggregations and filters, and on wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from ragen.algorithms import aggregation
from ragen.algorithms.config import AGGREGATIONS, LossConfig
from ragen.algorithms.kl import kl_loss
from ragen.algorithms.losses import log_ratio, policy_term
from ragen.credit.filters import FilterConfig, select
from ragen.environments.checker.report import Outcome, Report
from ragen.records import Group
from ragen.testing.aggregations import check_aggregation
from ragen.testing.filters import check_filter
from ragen.testing.losses import check_kl_term, check_policy_loss
from ragen.testing.run import require_kept


def broken(report: Report) -> list[str]:
    return [finding.check for finding in report.of(Outcome.FAILED)]


@pytest.mark.parametrize(
    "settings",
    [{}, {"dual_clip": 3.0}, {"name": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}, {"name": "cispo"}, {"name": "sapo"}],
    ids=str,
)
def test_our_losses_keep_the_invariants(settings: dict[str, Any]) -> None:
    config = LossConfig(**settings)
    require_kept(check_policy_loss(lambda *batch: policy_term(*batch, config).loss_M))


@pytest.mark.parametrize("estimator", ["k2", "k3", "unbiased"])
def test_our_kl_terms_keep_the_invariants(estimator: str) -> None:
    require_kept(check_kl_term(partial(kl_loss, estimator=estimator)))


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_our_aggregations_keep_the_invariants(name: str) -> None:
    parts = {key: partial(getattr(aggregation, key), name) for key in ("token_weight", "denominator")}
    require_kept(check_aggregation(SimpleNamespace(**parts)))


@pytest.mark.parametrize(
    ("settings", "by_spread"),
    [
        ({}, False),
        ({"drop_zero_spread": True}, False),
        ({"rule": "top_frac", "value": 0.5}, True),
        ({"rule": "top_k", "value": 2}, True),
        ({"rule": "top_k", "value": 1, "score": "variance"}, True),
        ({"rule": "top_p", "value": 0.6}, True),
        ({"rule": "top_p_softmax", "value": 0.6}, True),
        ({"rule": "min_p", "value": 0.3, "score": "range"}, True),
        ({"rule": "top_k", "value": 2, "score": "mean"}, False),
        ({"rule": "top_k", "value": 2, "score": "entropy", "prefer": "smallest"}, False),
    ],
    ids=str,
)
def test_our_filters_keep_the_invariants(settings: dict[str, Any], by_spread: bool) -> None:
    config = FilterConfig(**settings)
    config.check()
    require_kept(check_filter(lambda groups: keep(groups, config), by_spread=by_spread))


def keep(groups: Sequence[Group], config: FilterConfig) -> Sequence[int]:
    return select(groups, config, num_planned=max(1, len(groups))).kept


def reinforce(new_M: Tensor, old_M: Tensor, advantages_M: Tensor, owner_M: Tensor) -> Tensor:
    return -advantages_M * new_M


WRONG_LOSSES: dict[str, tuple[Callable[..., Tensor], list[str]]] = {
    "right": (reinforce, []),
    "sign": (lambda n, o, a, w: a * n, ["on policy"]),
    "mean": (lambda n, o, a, w: (-a * n).mean(), ["answers", "no tokens", "order of samples", "split", "on policy"]),
    "overflow": (lambda n, o, a, w: -a * (n - o).exp(), ["far apart"]),
    "whitened": (lambda n, o, a, w: -(a - a.mean()) * n, ["split", "on policy"]),
    "bonus": (lambda n, o, a, w: -a * n - 0.1 * n, ["zero advantage", "on policy", "advantage scale"]),
    "by place": (lambda n, o, a, w: -a * n * (w + 1), ["order of samples", "split", "on policy"]),
}


@pytest.mark.parametrize("name", WRONG_LOSSES)
def test_a_wrong_loss_breaks_what_it_breaks(name: str) -> None:
    loss, expected = WRONG_LOSSES[name]
    assert broken(check_policy_loss(loss)) == expected


WRONG_KL_TERMS: dict[str, tuple[Callable[..., Tensor], list[str]]] = {
    "k1": (lambda n, o, r: log_ratio(n, r), ["at home", "sign"]),  # its gradient knows nothing of the reference
    "away": (lambda n, o, r: -log_ratio(n, r).square(), ["sign"]),
    "overflow": (lambda n, o, r: (r - n).exp() - 1 + n - r, ["far apart"]),
    "mean": (lambda n, o, r: log_ratio(n, r).square().mean().expand_as(n), ["split"]),
}


@pytest.mark.parametrize("name", WRONG_KL_TERMS)
def test_a_wrong_kl_term_breaks_what_it_breaks(name: str) -> None:
    term, expected = WRONG_KL_TERMS[name]
    assert broken(check_kl_term(term)) == expected


def widest_two(groups: Sequence[Group], spread: Callable[[list[float]], float]) -> list[int]:
    spreads = [spread([t.return_ for t in group.trajectories] or [0.0]) for group in groups]
    return sorted(sorted(range(len(groups)), key=lambda i: -spreads[i])[:2])


WRONG_FILTERS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "right": (lambda groups: widest_two(groups, lambda r: max(r) - min(r)), []),
    "largest": (lambda groups: widest_two(groups, max), ["wider first", "shift"]),
    "first two": (lambda groups: list(range(len(groups)))[:2], ["order of groups", "wider first"]),
    "failed too": (
        lambda groups: widest_two([Group(trajectories=(*g.trajectories, *g.failed)) for g in groups], lambda r: max(r) - min(r)),
        ["left out"],
    ),
    "groups": (lambda groups: groups, ["answers", "nothing", "order of groups", "order of members", "left out"]),
    "raises when empty": (lambda groups: [max(range(len(groups)), key=lambda i: i)], ["nothing", "order of groups"]),
}


@pytest.mark.parametrize("name", WRONG_FILTERS)
def test_a_wrong_filter_breaks_what_it_breaks(name: str) -> None:
    function, expected = WRONG_FILTERS[name]
    assert broken(check_filter(function, by_spread=True))[: len(expected)] == expected
    assert bool(expected) == bool(broken(check_filter(function, by_spread=True)))
