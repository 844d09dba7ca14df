"""What is exported: which episodes, whole, and where."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragen.cli.export import export
from ragen.errors import ConfigError, StorageError
from ragen.evaluation.export import find_source, write_parquet
from ragen.records import EndReason, Group, Trajectory
from ragen.rollout.recorder import SCHEMA, read_rollout, write_rollout
from tests.support.finished import Episode, Played

WON = Episode(success=True, turns=(Played(reward=-0.1, text="a"), Played(reward=0.25, text="b"))).made()
LOST = Episode(seed=3, turns=(Played(reward=1.0),)).made()  # well paid, and no success all the same
BROKEN = Episode(seed=5, end_reason=EndReason.TIMEOUT, error="no answer").made()


def recorded(folder: Path, *trajectories: Trajectory, step: int = 1) -> Path:
    """A recorder file of these episodes, a group each."""
    path = folder / f"step-{step:06d}.parquet"
    groups = [
        Group(trajectories=() if t.end_reason.is_infrastructure else (t,), failed=(t,) if t.end_reason.is_infrastructure else ())
        for t in trajectories
    ]
    write_rollout(path, groups)
    return path


def seeds(target: Path, keep: str) -> list[int]:
    return [row.trajectory.key.task_seed for rows in find_source(target, keep=keep).rows() for row in rows]


@pytest.mark.parametrize(("keep", "expected"), [("all", [1, 3, 5]), ("scored", [1, 3]), ("successes", [1])])
def test_what_is_kept_follows_from_end_and_success_and_never_from_the_reward(
    tmp_path: Path, keep: str, expected: list[int]
) -> None:
    """bug-log row 94: the well paid episode is none of the successes."""
    path = recorded(tmp_path, WON, LOST, BROKEN)
    assert seeds(path, keep) == expected
    write_parquet(find_source(path, keep=keep), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["task_seed"].to_pylist() == expected


def test_a_run_means_the_rollouts_of_its_training_in_the_order_of_steps(tmp_path: Path) -> None:
    recorded(tmp_path / "rollouts", LOST, step=2)
    recorded(tmp_path / "rollouts", WON, step=1)
    recorded(tmp_path / "eval", BROKEN)
    assert seeds(tmp_path, "all") == [1, 3]
    assert seeds(tmp_path / "eval", "all") == [5]


def test_one_file_of_whole_trajectories_is_read_like_the_recorder_s_own(tmp_path: Path) -> None:
    recorded(tmp_path / "rollouts", WON, BROKEN, step=1)
    recorded(tmp_path / "rollouts", LOST, step=2)
    out = tmp_path / "all.parquet"
    export(str(tmp_path), str(out), to="parquet")
    assert pq.read_schema(out).names == SCHEMA.names
    fields = [{k: v for k, v in vars(row.trajectory).items() if k != "segments"} for row in read_rollout(out)]
    assert fields == [{k: v for k, v in vars(t).items() if k != "segments"} for t in (WON, BROKEN, LOST)]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source, out = recorded(tmp_path / "rollouts", WON), tmp_path / "out.jsonl"
    out.write_text("mine")
    with pytest.raises(StorageError, match=r"out\.jsonl: is there already"):
        export(str(source), str(out), to="chat")
    assert out.read_text() == "mine"


def test_fine_tuning_takes_successes_unless_told_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(recorded(tmp_path / "rollouts", WON, LOST))
    export(source, str(tmp_path / "a"), to="sft")
    export(source, str(tmp_path / "b"), to="sft", keep="scored")
    export(source, str(tmp_path / "c.jsonl"), to="chat")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ->")[0] for line in lines] == [
        "1 episodes in 2 rows (successes of 1 files)",
        "2 episodes in 3 rows (scored of 1 files)",
        "2 episodes (all of 1 files)",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "no recorded episodes"),
        ("none.parquet", "no such file"),
        ("none.json", "cannot read"),
        ("bare.json", "not an evaluation result"),
    ],
)
def test_a_source_without_episodes_is_said(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "bare.json").write_text(json.dumps({}))
    with pytest.raises(StorageError, match=said):
        find_source(tmp_path / name, keep="all")


def test_an_unknown_form_or_choice_is_refused_with_the_near_match(tmp_path: Path) -> None:
    source = recorded(tmp_path, WON)
    with pytest.raises(ConfigError, match=r"--to=parquett: must be one of parquet, chat, datasets, sft; did you mean 'parquet'"):
        export(str(source), str(tmp_path / "x"), to="parquett")
    with pytest.raises(ConfigError, match=r"--keep=success: must be one of all, scored, successes; did you mean 'successes'"):
        export(str(source), str(tmp_path / "x"), to="chat", keep="success")


def test_an_empty_choice_is_an_empty_file_and_not_an_error(tmp_path: Path) -> None:
    source = find_source(recorded(tmp_path / "rollouts", LOST), keep="successes")
    written = write_parquet(source, tmp_path / "none.parquet")
    assert (written.num_episodes, pq.read_table(written.path).num_rows) == (0, 0)


def test_another_file_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "step-000001.parquet"
    path.write_bytes(b"no parquet")
    source = dataclasses.replace(find_source(path, keep="all"))
    with pytest.raises(StorageError, match="cannot read this rollout"):
        write_parquet(source, tmp_path / "out.parquet")
    assert [each.name for each in tmp_path.iterdir()] == ["step-000001.parquet"]
