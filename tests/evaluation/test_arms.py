"""What a person types becomes arms."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ragen.errors import ConfigError, StorageError
from ragen.evaluation.arms import find_arms
from tests.support.evaluations import evaluated, kept, solving

ONE, TWO = solving(1, 4), solving(2, 4)


def test_a_run_folder_is_its_evaluation_of_the_highest_step(tmp_path: Path) -> None:
    run = kept(tmp_path / "run", evaluated(ONE, step=20), evaluated(TWO, step=8))
    (arm,) = find_arms([str(run)])
    assert (arm.name, arm.results[0].step, arm.sources[0].run_folder) == ("run", 20, run)
    (arm,) = find_arms([str(run)], step=8)
    assert arm.results[0].success.mean == 0.5


def test_of_one_step_the_evaluation_written_last_is_taken_and_suites_only_where_asked_for(tmp_path: Path) -> None:
    run = kept(tmp_path / "run", evaluated(ONE), evaluated(TWO, kind="eval"), evaluated(ONE, kind="paper-sampled"))
    for age, name in enumerate(("step-000016-paper-sampled", "step-000016-eval", "step-000016")):
        os.utime(run / "eval" / f"{name}.json", (1000 - age, 1000 - age))
    assert find_arms([str(run)])[0].results[0].kind == "eval"
    assert find_arms([str(run)], kind="paper-sampled")[0].results[0].kind == "paper-sampled"
    assert find_arms([str(run)], kind="validation")[0].results[0].kind == "validation"


def test_a_json_file_is_itself(tmp_path: Path) -> None:
    run = kept(tmp_path / "run", evaluated(ONE, step=3), evaluated(TWO, step=5))
    (arm,) = find_arms([str(run / "eval" / "step-000003.json")])
    assert (arm.name, arm.results[0].step) == ("run/step-000003", 3)
    with pytest.raises(ConfigError, match=r"is of step 3, kind validation; leave out --step and --kind"):
        find_arms([str(run / "eval" / "step-000003.json")], step=5)


def test_a_pattern_and_a_list_are_several_runs_of_one_arm(tmp_path: Path) -> None:
    for seed in range(3):
        kept(tmp_path / f"run-seed{seed}", evaluated(ONE))
    (arm,) = find_arms([f"{tmp_path}/run-seed*"])
    assert (arm.name, arm.num_runs) == ("run-seed*", 3)
    (arm,) = find_arms([f"ours={tmp_path}/run-seed0,{tmp_path}/run-seed2"])
    assert (arm.name, [source.run_folder for source in arm.sources]) == (
        "ours",
        [tmp_path / "run-seed0", tmp_path / "run-seed2"],
    )


def test_runs_of_one_name_are_told_apart_by_what_was_typed(tmp_path: Path) -> None:
    typed = [str(kept(tmp_path / folder / "run", evaluated(ONE))) for folder in ("a", "b")]
    assert [arm.name for arm in find_arms(typed)] == typed


def test_what_cannot_be_found_is_said_in_a_line(tmp_path: Path) -> None:
    run = kept(tmp_path / "run", evaluated(ONE, step=4))
    with pytest.raises(ConfigError, match=r"nowhere: must be a run folder, an evaluation's JSON file, or a pattern"):
        find_arms([str(tmp_path / "nowhere")])
    with pytest.raises(ConfigError, match=r"an empty name: must be"):
        find_arms([f"ours={run},"])
    with pytest.raises(StorageError, match=r"run: no evaluation of step 5; there are: step 4 \(validation\)"):
        find_arms([str(run)], step=5)
    with pytest.raises(StorageError, match=r"no evaluation; there are: none"):
        find_arms([str(tmp_path)])
    with pytest.raises(ConfigError, match=r"step-000004\.json: is named twice"):
        find_arms([str(run), f"again={run}"])
