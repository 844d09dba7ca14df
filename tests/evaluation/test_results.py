"""An evaluation's file: what stands in it, and that nothing is lost."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ragen.errors import StorageError
from ragen.evaluation.results import Episodes, EvaluationResult, TagResult, read_result, read_results, write_result
from ragen.evaluation.statistics import Interval
from ragen.metrics import find
from ragen.records import EndReason, Group
from ragen.rollout.recorder import read_rollout
from tests.support.finished import Episode

EPISODES = Episodes(
    seeds=(11, 13),
    successes=(True, False),
    returns=(0.5, 0.0),
    turns=(1, 2),
    valid_turns=(1, 2),
    actions=(1, 1),
    sampled_tokens=(15, 25),
    prompt_tokens=(0, 0),
)


def result(*, step: int = 16, kind: str = "validation", mean: float = 0.5, seconds: float = 12.5) -> EvaluationResult:
    tag = TagResult(
        num_episodes=2,
        success=Interval(mean=mean, low=0.1, high=0.9),
        return_=Interval(mean=0.25),
        pass_at=(Interval(mean=mean),),
        pass_all=(Interval(mean=mean),),
        format_validity=Interval(mean=1.0, low=0.8, high=1.0),
        num_turns=Interval(mean=1.5),
        num_actions=Interval(mean=1.0),
        sampled_tokens=Interval(mean=20.0),
        prompt_tokens=None,
        end_reasons={"failed": 1, "solved": 1},
        failures={"timeout": 3},
        episodes=EPISODES,
    )
    return EvaluationResult(
        model="tiny",
        step=step,
        kind=kind,
        success=Interval(mean=mean, low=0.1, high=0.9),
        seconds=seconds,
        settings={"temperature": 0.5, "environments": {"bandit": {"name": "bandit", "options": {}}}},
        environments={"bandit": tag},
    )


def test_the_file_has_what_a_reader_looks_for_at_its_top_level(tmp_path: Path) -> None:
    path = write_result(tmp_path / "eval", result())
    assert path == tmp_path / "eval" / "step-000016.json"
    data = json.loads(path.read_text())
    assert data["success"] == {"mean": 0.5, "low": 0.1, "high": 0.9}
    assert data["num_episodes"] == 2
    assert data["num_failed"] == 3
    assert data["model"] == "tiny"
    assert data["step"] == 16
    assert data["seeds"] == [11, 13]
    assert data["settings"]["temperature"] == 0.5
    assert data["environments"]["bandit"]["return"] == {"mean": 0.25, "low": None, "high": None}
    assert data["environments"]["bandit"]["episodes"]["successes"] == [True, False]


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    assert read_result(write_result(tmp_path, result())) == result()


def test_another_evaluation_of_the_same_step_never_replaces_the_first(tmp_path: Path) -> None:
    first = write_result(tmp_path, result(mean=0.5))
    second = write_result(tmp_path, result(mean=0.75))
    other_kind = write_result(tmp_path, result(mean=0.25, kind="eval"))
    assert [path.name for path in (first, second, other_kind)] == [
        "step-000016.json",
        "step-000016-2.json",
        "step-000016-eval.json",
    ]
    assert [read_result(path).success.mean for path in (first, second, other_kind)] == [0.5, 0.75, 0.25]


def test_the_same_measurement_again_is_one_file_however_long_it_took(tmp_path: Path) -> None:
    """A resumed run plays the evaluation of a step again and gets the same numbers."""
    first = write_result(tmp_path, result(seconds=10.0))
    assert write_result(tmp_path, result(seconds=99.0)) == first
    assert read_result(first).seconds == 10.0
    assert len(list(tmp_path.iterdir())) == 1


def test_writers_of_the_same_moment_all_keep_their_result(tmp_path: Path) -> None:
    """All had seen the same free name, and the last to write it was the only one left, with the episodes of another."""
    trajectories = [Episode(seed=seed, success=True).made() for seed in range(8)]
    results = [
        dataclasses.replace(result(mean=seed / 8), groups=(Group(trajectories=(trajectory,)),))
        for seed, trajectory in enumerate(trajectories)
    ]
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(write_result, [tmp_path / "eval"] * 8, results))
    assert sorted(path.stem for path in paths) == ["step-000016", *(f"step-000016-{number}" for number in range(2, 9))]
    for path, written in zip(paths, results, strict=True):
        found = read_result(path)
        assert found == written
        assert [each.key for each in found.trajectories] == [each.key for each in written.trajectories]
    assert {path.suffix for path in (tmp_path / "eval").iterdir()} == {".json", ".parquet"}  # no lock is left


def test_the_episodes_lie_beside_the_file(tmp_path: Path) -> None:
    trajectory = Episode(seed=5, success=True).made()
    path = write_result(tmp_path, dataclasses.replace(result(), groups=(Group(trajectories=(trajectory,)),)))
    (recorded,) = read_rollout(path.with_suffix(".parquet"))
    assert recorded.trajectory.key == trajectory.key
    assert recorded.trajectory.success


def test_a_result_read_back_finds_its_scored_episodes(tmp_path: Path) -> None:
    won = Episode(seed=5, success=True).made()
    lost = Episode(seed=7, turns=(), end_reason=EndReason.TIMEOUT, error="late").made()
    groups = (Group(trajectories=(won,)), Group(trajectories=(), failed=(lost,)))
    path = write_result(tmp_path, dataclasses.replace(result(), groups=groups))
    (found,) = read_result(path).trajectories
    assert found.key == won.key
    assert read_result(write_result(tmp_path, result(step=3))).trajectories == ()


def test_results_come_back_by_step_with_trainings_own_first(tmp_path: Path) -> None:
    for step, kind, mean in ((16, "eval", 0.1), (16, "validation", 0.2), (0, "validation", 0.3), (5, "eval", 0.4)):
        write_result(tmp_path, result(step=step, kind=kind, mean=mean))
    found = [(each.step, each.kind) for each in read_results(tmp_path)]
    assert found == [(0, "validation"), (5, "eval"), (16, "validation"), (16, "eval")]
    assert read_results(tmp_path / "missing") == []


@pytest.mark.parametrize("text", ["", "[]", '{"model": "tiny"}', '{"success": 1', "null"])
def test_a_spoiled_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "step-000001.json").write_text(text)
    with pytest.raises(StorageError, match=r"step-000001\.json: not an evaluation result"):
        read_results(tmp_path)


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "eval").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match=r"eval: cannot write into: File exists"):
        write_result(tmp_path / "eval", result())


def test_the_logged_metrics_carry_the_tag() -> None:
    assert result().metrics() == {
        "eval/bandit/success": 0.5,
        "eval/bandit/return": 0.25,
        "eval/bandit/format_validity": 1.0,
        "eval/bandit/turns": 1.5,
        "eval/bandit/actions": 1.0,
        "eval/bandit/sampled_tokens": 20.0,
    }


def test_with_several_samples_a_seed_every_pass_at_k_is_logged() -> None:
    both = (Interval(mean=0.5), Interval(mean=0.75))
    tag = dataclasses.replace(result().environments["bandit"], pass_at=both, pass_all=both[::-1])
    metrics = dataclasses.replace(result(), environments={"bandit": tag}).metrics()
    passes = {key: value for key, value in metrics.items() if "pass" in key}
    assert passes == {
        "eval/bandit/pass_at_1": 0.5,
        "eval/bandit/pass_at_2": 0.75,
        "eval/bandit/pass_all_1": 0.75,
        "eval/bandit/pass_all_2": 0.5,
    }
    assert all(find(key) for key in metrics)


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"columns of unequal length: .*'turns': 1"):
        dataclasses.replace(EPISODES, turns=(1,))
