"""What training logs of a checkpoint, what `ragen eval` measures of it and what `ragen compare` prints are one set of numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ragen.evaluation.arms import find_arms
from ragen.evaluation.compare import compare
from ragen.evaluation.results import read_result
from ragen.evaluation.target import evaluate_target, find_target
from tests.support.runs import metrics_of, run, small_config


def test_the_log_the_file_the_offline_evaluation_and_the_comparison_agree_exactly(tmp_path: Path) -> None:
    """bug-log row 93: two samples of each of five seeds, after two steps; every figure to the last digit."""
    config = small_config(tmp_path, "evaluation.samples_per_seed=2", "evaluation.temperature=1.0")
    folder = run(config)[0].folder
    offline = evaluate_target(
        find_target(str(folder), config.model, output_dir=tmp_path), config.environments, config.evaluation, config.rollout
    )
    stored = read_result(folder / "eval" / "step-000002.json")
    logged = {key: value for key, value in metrics_of(folder)[-1].items() if key.startswith("eval/")}
    assert offline.metrics() == stored.metrics() == logged
    assert {"eval/bandit/success", "eval/bandit/pass_at_2", "eval/bandit/pass_all_2"} <= set(logged)
    assert offline.settings == stored.settings
    assert dataclasses.replace(offline, kind=stored.kind, seconds=stored.seconds, groups=()) == stored
    comparison = compare(find_arms([str(folder)]))
    shown = {row.figure.key: row.cells[0].interval for row in comparison.tables[0].rows}
    assert shown["success"] == stored.environments["bandit"].success
    assert shown["pass@2"] == stored.environments["bandit"].pass_at[1]
