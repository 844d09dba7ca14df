"""A recorded step comes out again, bit for bit, whatever learned in it; and what does not is found and told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ragen.cli import main
from ragen.errors import ConfigError, StorageError
from ragen.replay import Replay, replay
from ragen.replay_rows import compare_advantages
from ragen.rollout.recorder import Recorded, read_rollout
from tests.support.corridor import num_open
from tests.support.runs import ARPO, STATEFUL, corridor_config, run, small_config
from tests.support.samples import make_trajectory

LETTERS = "rewards.functions.letters=tests.support.grid:letters"
KEPT = ("trainer.steps=3", "trainer.keep_checkpoints=9", LETTERS)
RUNS: dict[str, tuple[str, ...]] = {
    "several epochs and minibatches, full weights": (
        *ARPO,
        "algorithm.num_epochs=2",
        "algorithm.num_minibatches=3",
        "optimizer.warmup_steps=6",
    ),
    **STATEFUL,
    "episodes that fail and are replaced, a cut distribution": (
        *ARPO,
        "+environments.bandit.options.raise_at_step=1",
        "+environments.bandit.options.raise_frac=0.2",
        "rollout.max_failed_frac=1.0",
        "rollout.sampling.top_p=0.9",
    ),
}


def different(result: Replay) -> dict[str, str]:
    return {row.what: row.difference for row in result.rows if not row.is_equal}


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS.keys())
def test_a_step_comes_out_again_bit_for_bit(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """The second step, which begins from a checkpoint, with its sampling. Nothing in the run folder is touched."""
    folder = run(corridor_config(tmp_path, *KEPT, *settings))[0].folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = replay(folder, 2, rollout=True)
    assert different(result) == {}
    assert num_open() == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    compared = {row.what for row in result.rows}
    assert {"advantages", "rollout: ids", "rollout: logprobs", "trainer/optimizer.safetensors", "state: learner"} <= compared
    if "algorithm=starpo" in " ".join(settings):
        assert {"critic/loss", "critic/weights.safetensors", "critic/optimizer.safetensors"} <= compared
    if "warmup_steps=2" not in " ".join(settings):
        assert {"update/loss", "update/grad_norm"} <= compared
    if "rollout.curriculum.rule=balance" in settings:
        assert "curriculum/other/success" in compared
    assert result.notes == ()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of which the last checkpoint alone is kept but one."""
    return run(corridor_config(tmp_path_factory.mktemp("recorded"), *ARPO, "trainer.steps=3"))[0].folder


def test_the_first_step_begins_from_the_model_as_it_is(recorded: Path) -> None:
    """And where the checkpoint after it is not kept, the metrics are compared all the same."""
    result = replay(recorded, 1)
    assert different(result) == {}
    assert {"update/loss", "advantages"} <= {row.what for row in result.rows}
    (note,) = result.notes
    assert note.startswith("weights not compared: step-000001 is not kept; trainer.save_every=1 and a larger trainer.keep_check")


def test_what_is_missing_is_named_with_the_setting_that_keeps_it(recorded: Path) -> None:
    expected = (
        r"run: step 2 begins from step-000001, which is not kept with trainer\.save_every=1 and trainer\.keep_checkpoints=2; "
        r"save_every=1 and a larger keep_checkpoints keep it; can be replayed here: 1, 3$"
    )
    with pytest.raises(StorageError, match=expected):
        replay(recorded, 2)
    with pytest.raises(
        StorageError, match=r"run: there is no rollout file of step 9; there are those of 1-3 \(trainer\.keep_rollouts=null"
    ):
        replay(recorded, 9)
    with pytest.raises(ConfigError, match="no such file"):
        replay(recorded / "eval", 1)


def copy_of(recorded: Path, folder: Path) -> Path:
    return Path(shutil.copytree(recorded, folder / "copy"))


def test_other_metrics_than_those_recorded_are_told_by_how_much(recorded: Path, tmp_path: Path) -> None:
    folder = copy_of(recorded, tmp_path)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows[3]["update/loss"] += 0.5
    del rows[3]["update/grad_norm"]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = replay(folder, 3)
    assert different(result) == {"update/loss": "by 0.5", "update/grad_norm": "only one has it"}
    assert result.num_different == 2


def test_another_learning_rate_changes_the_weights_and_nothing_else(recorded: Path, tmp_path: Path) -> None:
    """Of the first optimiser step; the second sees other weights, so its loss differs as well. The sampling comes before both."""
    folder = copy_of(recorded, tmp_path)
    config = folder / "config.yaml"
    text = config.read_text()
    assert text.count("lr: 0.001") == 1, text
    config.write_text(text.replace("lr: 0.001", "lr: 0.002"))
    found = different(replay(folder, 3, rollout=True))
    assert {"model.safetensors", "trainer/optimizer.safetensors", "update/learning_rate"} <= found.keys()
    assert found["update/learning_rate"] == "by 0.001"
    assert "advantages" not in found
    assert not any(what.startswith(("rollout", "state")) for what in found)


def test_a_step_is_replayed_under_the_settings_that_it_was_played_under(tmp_path: Path) -> None:
    """Two steps, then two with another learning rate: each comes out again, and the earlier one says what has changed since."""
    run(corridor_config(tmp_path, *ARPO, "trainer.keep_checkpoints=9", "trainer.steps=2"))
    config = corridor_config(tmp_path, *ARPO, "trainer.keep_checkpoints=9", "trainer.steps=4", "optimizer.lr=0.002")
    folder = run(config, resume=True)[0].folder
    before, after = replay(folder, 2, rollout=True), replay(folder, 3, rollout=True)
    assert (different(before), different(after)) == ({}, {})
    told = "optimizer.lr=0.002 (it was 0.001); trainer.steps=4 (it was 2)"
    assert before.notes == (f"replayed with the settings of step 2; the run has changed since: {told}",)
    assert after.notes == ()


def test_other_weights_before_the_step_are_seen_in_the_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that computes otherwise: here one weight is another, behind the back of the checksum."""
    from ragen import replay as module

    folder = run(small_config(tmp_path, *ARPO, "trainer.keep_checkpoints=9"))[0].folder
    path = folder / "checkpoints" / "step-000001" / "model.safetensors"
    tensors = load_file(path)
    name = next(key for key, tensor in tensors.items() if tensor.dim() == 2)
    tensors[name] = tensors[name] + torch.linspace(0, 1, tensors[name].shape[1])
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(StorageError, match=r"step-000001: not a whole checkpoint: model\.safetensors does not match"):
        replay(folder, 2)
    monkeypatch.setattr("ragen.training.checkpoint.find_fault", lambda folder: "")
    assert module.find_fault(folder / "checkpoints" / "step-000002") == ""
    found = different(replay(folder, 2, rollout=True))
    assert found["rollout: ids"].partition(" ")[2].startswith("differ")
    assert "the first: bandit group 0 member" in found["rollout: ids"]
    assert "update/loss" in found


def test_abstained_members_stay_out_of_the_update(tmp_path: Path) -> None:
    """A reward function that says nothing of some: they are recorded as such, and the group's mean is that of the others."""
    folder = run(
        small_config(
            tmp_path,
            *ARPO,
            "trainer.steps=1",
            "rewards.functions.some=tests.test_replay:of_even_members",
            "rewards.weights.environment=0",
        )
    )[0].folder
    rows = read_rollout(folder / "rollouts" / "step-000001.parquet")
    assert {row.trajectory.key.member for row in rows if row.abstained} == {1, 3}
    assert different(replay(folder, 1, rollout=True)) == {}


def of_even_members(trajectory: object) -> float | None:
    key = trajectory.key  # type: ignore[attr-defined]
    return None if key.member % 2 else float(key.member)


def test_a_number_off_by_its_last_bit_is_a_difference() -> None:
    trajectory = make_trajectory([1], [2, 3], group=4, member=1)
    then, now = (
        [Recorded(trajectory=trajectory, advantages=(np.array([0, 1, last], np.float32),))]
        for last in (1, np.nextafter(np.float32(1), np.float32(2)))
    )
    assert compare_advantages(then, then).is_equal
    row = compare_advantages(then, now)
    assert row.difference == "1 differ, by at most 1.2e-07, the first: corridor group 4 member 1"
    nothing = [Recorded(trajectory=trajectory, advantages=(None,))]
    assert compare_advantages(then, nothing).difference == "1 on one side alone"


# -- the command -------------------------------------------------------------------------------------------------------------


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["replay", *words])
    return int(left.value.code or 0)


def test_the_command_shows_one_table_and_ends_with_0_where_all_is_equal(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(str(recorded), "--step", "3", "--rollout") == 0
    out = capsys.readouterr().out
    assert "update/grad_norm" in out
    assert "model.safetensors" in out
    assert out.splitlines()[-1].startswith("step 3: all ")


def test_the_command_ends_with_1_where_something_differs(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(recorded, tmp_path)
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("lr: 0.001", "lr: 0.002"))
    assert command(str(folder), "--step", "3", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["equal"] is False
    assert {
        "what": "update/learning_rate",
        "recorded": "0.001",
        "replayed": "0.002",
        "difference": "by 0.001",
        "equal": False,
    } in (report["rows"])


def test_the_command_refuses_a_step_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("runs/none", "--step", "0") == 2
    assert capsys.readouterr().err == "error: --step=0: must be at least 1\n"
