"""Evaluations written down by hand: which seed was solved how often, in run folders as training leaves them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen.credit.rewards import RewardsConfig
from ragen.evaluation.measure import summarise
from ragen.evaluation.results import EvaluationResult, write_result
from ragen.records import Group
from tests.support.finished import Episode, Played

Outcomes = Mapping[int, Sequence[bool]]  # task seed -> for each of its samples whether it was solved


def evaluated(
    outcomes: Outcomes, *, tags: Sequence[str] = ("bandit",), step: int = 16, kind: str = "validation", **settings: Any
) -> EvaluationResult:
    """Every tag with the same outcomes; a solved episode returns 1, another 0. The episodes themselves are left behind."""
    groups = [
        Group(
            trajectories=tuple(
                Episode(seed=seed, success=won, turns=(Played(reward=float(won)),), tag=tag).made() for won in wins
            )
        )
        for tag in tags
        for seed, wins in outcomes.items()
    ]
    told = {"temperature": 0.5, "environments": {tag: {"name": tag, "options": {}} for tag in tags}, **settings}
    result = summarise(groups, model="tiny", step=step, kind=kind, seconds=1.0, settings=told, rewards=RewardsConfig())
    return dataclasses.replace(result, groups=())


def kept(folder: Path, *results: EvaluationResult, rows: Sequence[Mapping[str, float]] = ()) -> Path:
    """A run folder with these evaluations and, if there are any, with these rows of metrics."""
    for result in results:
        write_result(folder / "eval", result)
    if rows:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(dict(row)) + "\n" for row in rows))
    return folder


def solving(num_solved: int, num_seeds: int, *, first: int = 0) -> dict[int, list[bool]]:
    """One sample a seed: of the odd seeds from 1 on, `num_solved` in a row are solved, beginning with number `first`."""
    return {2 * i + 1: [first <= i < first + num_solved] for i in range(num_seeds)}
