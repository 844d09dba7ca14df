"""Whole runs, from a configuration to a run folder: what they leave, how they stop, that they go on as if nothing had been."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen import assembly
from ragen.cli import main
from ragen.config.load import load, recipes
from ragen.errors import ConfigError, EnvironmentFailure, ModelError, NothingToDo, StorageError, TrainingError
from ragen.metrics import find
from ragen.records import EndReason
from ragen.training import trackers
from ragen.training.rollout_phase import RolloutPhase
from ragen.training.trainer import Trainer
from ragen.training.update import Learner, UpdateResult
from tests.support.corridor import num_open
from tests.support.models import tiny_llama
from tests.support.runs import (
    ARPO,
    LORA,
    SMALL,
    assert_same_run,
    corridor_config,
    interrupt,
    metrics_of,
    on_call,
    rollouts_of,
    run,
    small_config,
    weights_of,
)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != ".lock"}


# -- what a run leaves -------------------------------------------------------------------------------------------------------


def test_a_run_leaves_the_folder_that_the_design_promises(tmp_path: Path) -> None:
    """With the model alias `tiny` and a TensorBoard tracker, as a person would start it."""
    config = small_config(tmp_path, "tracking.backends=[tensorboard]", model="tiny")
    summary, seen = run(config, picture=True)
    folder = tmp_path / "run"
    assert summary.folder == folder
    expected = {"config.yaml", "metrics.jsonl", "tensorboard", "rollouts", "checkpoints", "eval", "log.txt", "learning_curve.png"}
    assert names(folder) == expected
    assert names(folder / "rollouts") == {"step-000001.parquet", "step-000002.parquet"}
    assert names(folder / "checkpoints") == {"step-000001", "step-000002"}
    assert {name for name in names(folder / "eval") if name.endswith(".json")} == {"step-000000.json", "step-000002.json"}
    assert any("tfevents" in name for name in names(folder / "tensorboard"))
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert "held-out success after 2 steps" in (folder / "log.txt").read_text()
    assert "held-out success after 2 steps" in seen
    assert [path for path in folder.rglob("*") if path.name.endswith(".tmp")] == []


def test_every_step_is_one_line_of_finite_defined_numbers(tmp_path: Path) -> None:
    """Invariant I4, step 0 included: its line is the evaluation of the start."""
    run(small_config(tmp_path, *ARPO))
    rows = metrics_of(tmp_path / "run")  # refuses NaN and Infinity
    assert [row["step"] for row in rows] == [0, 1, 2]
    whole = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for row in whole:
        del row["step"]
        assert [key for key in row if find(key) is None] == []
        assert all(math.isfinite(value) for value in row.values())
    assert {key for row in whole for key in row if key.startswith("time/")} == {
        f"time/{part}_s" for part in ("rollout", "update", "eval", "checkpoint", "step")
    }
    assert [("eval/bandit/success" in row, "rollout/success" in row) for row in rows] == [
        (True, False),
        (False, True),
        (True, True),
    ]
    assert rows[1]["update/advantage_std"] == pytest.approx(0, abs=1e-12)  # every reply was unreadable and cost 0.1
    assert rows[1]["update/grad_norm"] > 1e-3
    assert rows[2]["update/engine_gap_max"] < 1e-4


@pytest.mark.parametrize("recipe", recipes())
def test_a_shipped_recipe_gives_nothing_but_finite_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str) -> None:
    """Bug-log row 69: four steps of each, on a small model; not one number had to be left out, not one update skipped."""

    def all_finite(metrics: Mapping[str, float]) -> dict[str, float]:
        assert [key for key, value in metrics.items() if not math.isfinite(value)] == []
        return dict(metrics)

    monkeypatch.setattr(trackers, "finite_only", all_finite)
    groups = (f"environments.{tag}.num_groups=3" for tag in load(recipe).environments)
    short = (*SMALL, "trainer.steps=4", "evaluation.num_episodes=2", "evaluation.every=2")
    summary, _ = run(load(recipe, [*short, *groups, f"model.name={tiny_llama()}", f"output_dir={tmp_path}"]))
    rows = metrics_of(summary.folder)
    assert [row["step"] for row in rows if "update/tokens" in row] == [1, 2, 3, 4]
    assert [row.get("update/skipped", 0) for row in rows] == [0] * len(rows)


def test_the_closing_page_names_the_best_checkpoint_if_one_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps whose entropy is planted: the second has most of it, so it stays beside the last."""
    planted = iter((1.25, 2.5, 0.5))
    honest = Learner.update

    def update(self: Learner, *args: Any, **kwargs: Any) -> UpdateResult:
        result = honest(self, *args, **kwargs)
        return replace(result, metrics={**result.metrics, "update/entropy": next(planted)})

    monkeypatch.setattr(Learner, "update", update)
    keep = (
        "trainer.keep_checkpoints=1",
        "trainer.keep_best=update/entropy",
        "trainer.steps=3",
        "evaluation.before_training=false",
    )
    _, seen = run(small_config(tmp_path, *ARPO, *keep))
    assert f"best checkpoint {tmp_path}/run/checkpoints/step-000002 (update/entropy=2.5)\n" in seen
    assert names(tmp_path / "run" / "checkpoints") == {"step-000002", "step-000003"}


def test_what_was_sampled_is_what_was_trained_and_recorded(tmp_path: Path) -> None:
    summary, _ = run(corridor_config(tmp_path, *ARPO))
    rows, recorded = metrics_of(summary.folder), rollouts_of(summary.folder)
    for row, trajectories in zip(rows[1:], recorded.values(), strict=True):
        assert len(trajectories) == 12
        assert row["update/tokens"] == sum(r.trajectory.num_sampled for r in trajectories)
        for r in trajectories:
            (advantages,) = r.advantages
            assert advantages is not None
            assert advantages.tolist() == pytest.approx(r.trajectory.return_ * r.trajectory.segments[0].mask)
    groups = [r.trajectory.key for r in recorded["step-000001.parquet"]]
    assert [(key.group, key.member) for key in groups] == [(g, m) for g in range(3) for m in range(4)]  # bug-log row 33
    assert len({key.task_seed for key in groups}) == 3


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_a_checkpoint_opens_unchanged_in_the_libraries_of_others(tmp_path: Path, tuning: str) -> None:
    summary, _ = run(small_config(tmp_path, *ARPO, *(LORA if tuning == "lora" else ())))
    checkpoint = summary.folder / "checkpoints" / "step-000002"
    start = AutoModelForCausalLM.from_pretrained(tiny_llama())
    if tuning == "lora":
        opened: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_llama()), checkpoint)
    else:
        opened = AutoModelForCausalLM.from_pretrained(checkpoint)
    ids = torch.tensor([AutoTokenizer.from_pretrained(checkpoint)("Choose")["input_ids"]])
    assert not torch.allclose(opened(input_ids=ids).logits, start(input_ids=ids).logits, atol=1e-4)


def test_the_summary_says_what_was_measured_before_and_after(tmp_path: Path) -> None:
    summary, _ = run(small_config(tmp_path))
    assert summary.before is not None
    assert (summary.steps, summary.before.step, summary.after.step) == (2, 0, 2)
    assert summary.to_json()["after"]["num_episodes"] == 5
    json.dumps(summary.to_json(), allow_nan=False)
    without, _ = run(small_config(tmp_path, "name=other", "evaluation.before_training=false"))
    assert (without.before, without.to_json()["before"]) == (None, None)
    assert [row["step"] for row in metrics_of(without.folder)] == [1, 2]


# -- the same run again ------------------------------------------------------------------------------------------------------


def test_the_resolved_configuration_trains_the_same_run_again(tmp_path: Path) -> None:
    """Invariant I5: from the config.yaml of the folder, whatever the global generators hold."""
    summary, _ = run(corridor_config(tmp_path, *ARPO, "environments.bandit.options.slip=0.2"))
    torch.manual_seed(1234)
    again, _ = run(load(str(summary.folder), [f"output_dir={tmp_path / 'again'}"]))
    assert_same_run(summary.folder, again.folder, 2)


@pytest.mark.parametrize("difference", ["seed=1", "rollout.sampling.temperature=0.9"])
def test_another_seed_or_setting_is_another_run(tmp_path: Path, difference: str) -> None:
    a, b = (run(small_config(tmp_path, *ARPO, f"name={name}", *extra))[0] for name, extra in (("a", []), ("b", [difference])))
    assert weights_of(a.folder, 2)["model.safetensors"] != weights_of(b.folder, 2)["model.safetensors"]


def test_where_memory_is_short_layers_are_computed_again_and_no_bit_changes(tmp_path: Path) -> None:
    """A budget that nothing fits into; the size of the packs is given, since it decides about the last bits."""
    plenty, short = (small_config(tmp_path / which, "trainer.pack_tokens=128") for which in ("plenty", "short"))
    short.trainer.memory_budget = 1e-9
    said = [run(config)[1] for config in (plenty, short)]
    assert ["layers are computed again" in text for text in said] == [False, True]
    assert weights_of(tmp_path / "plenty" / "run", 2) == weights_of(tmp_path / "short" / "run", 2)


def test_members_of_a_group_differ_and_so_do_steps(tmp_path: Path) -> None:
    summary, _ = run(small_config(tmp_path, *ARPO))
    texts = [r.trajectory.turns[0].reply.text for rows in rollouts_of(summary.folder).values() for r in rows]
    assert len(set(texts)) == 24


# -- refused -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a run that is done."""
    return run(small_config(tmp_path))[0].folder


@pytest.fixture
def no_model(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads a model from now on fails the test."""

    def load_policy(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(assembly, "load_policy", load_policy)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (["seed=1"], "seed=1 (it was 0)"),
        (["model.name=tiny"], "model.name=tiny"),
        (["model.tuning=lora"], "model.tuning=lora (it was full)"),
        (["rollout.group_size=5"], "rollout.group_size=5 (it was 4)"),
        (["environments.bandit.num_groups=4"], "environments.bandit.num_groups=4 (it was 3)"),
        (["+environments.bandit.options.names=test"], "environments.bandit.options.names=test"),
        (["+env@environments.other=bandit"], "environments.other"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_what_a_run_cannot_change_is_refused_before_the_model_loads(finished: Path, change: list[str], key: str) -> None:
    """Invariant I7, and nothing in the folder is touched."""
    before = content(finished)
    with pytest.raises(ConfigError) as refused:
        run(small_config(finished.parent, "trainer.steps=9", *change), resume=True)
    assert str(refused.value).startswith(key)
    assert "cannot change when a run is resumed" in str(refused.value)
    assert content(finished) == before


@pytest.mark.usefixtures("no_model")
def test_a_run_with_nothing_left_to_do_says_so_and_touches_nothing(finished: Path) -> None:
    before = content(finished)
    with pytest.raises(NothingToDo, match=r"all 2 steps are done; trainer\.steps=N with a larger N goes on"):
        run(small_config(finished.parent), resume=True)
    assert content(finished) == before
    with pytest.raises(SystemExit) as left:
        main(["train", str(finished), "--resume"])
    assert left.value.code == 3


@pytest.mark.usefixtures("no_model")
def test_two_processes_do_not_train_in_one_folder(finished: Path) -> None:
    with (
        FileLock(finished / ".lock"),
        pytest.raises(StorageError, match=r"run: another process is training in it; wait for it, or give this run name="),
    ):
        run(small_config(finished.parent, "trainer.steps=3"), resume=True)


@pytest.mark.usefixtures("no_model")
def test_metrics_that_cannot_be_read_are_refused_before_anything_is_touched(finished: Path) -> None:
    with (finished / "metrics.jsonl").open("a") as file:
        file.write("garbage\n")
    before = content(finished)
    with pytest.raises(StorageError, match=r"metrics\.jsonl: line 4 is not a step's metrics .*; remove that line$"):
        run(small_config(finished.parent, "trainer.steps=3"), resume=True)
    assert content(finished) == before


def test_rows_of_metrics_that_are_gone_are_named(finished: Path) -> None:
    (finished / "metrics.jsonl").unlink()
    _, seen = run(small_config(finished.parent, "trainer.steps=3"), resume=True)
    assert "metrics.jsonl has no rows of steps that are done and cannot be made again: 1\n" in " ".join(seen.split(" "))


def test_a_run_that_was_moved_goes_on_where_it_lies_now(finished: Path, tmp_path: Path) -> None:
    """The folder that was named is written to, and the one that its settings name is not made again."""
    there = finished.rename(tmp_path / "moved")
    with pytest.raises(SystemExit) as left:
        main(["train", str(there), "--resume", "trainer.steps=3"])
    assert left.value.code == 0
    assert [row["step"] for row in map(json.loads, (there / "metrics.jsonl").read_text().splitlines())][-1] == 3
    assert not finished.exists()


@pytest.mark.usefixtures("no_model")
def test_an_evaluation_of_a_run_lies_in_the_run_and_nowhere_else(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["eval", str(finished), "output_dir=elsewhere"])
    assert left.value.code == 2
    assert "output_dir=elsewhere: has no effect, results of a run lie in it" in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("no_model")
def test_nothing_is_resumed_from_where_nothing_is(finished: Path) -> None:
    with pytest.raises(StorageError, match=r"no whole checkpoint to resume from; train without --resume"):
        run(small_config(finished.parent, "name=other"), resume=True)
    assert names(finished.parent) == {"run"}


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(finished: Path) -> None:
    """Bug-log row 73."""
    expected = metrics_of(finished), weights_of(finished, 2)
    weights = finished / "checkpoints" / "step-000002" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    _, seen = run(small_config(finished.parent), resume=True)
    assert re.search(r"step-000002 passed over: model\.safetensors has \d+ bytes instead of \d+", " ".join(seen.split()))
    assert "from step-000001" in seen
    assert (metrics_of(finished), weights_of(finished, 2)) == expected


def test_a_new_run_never_writes_into_the_folder_of_another(finished: Path) -> None:
    before = content(finished)
    second, seen = run(small_config(finished.parent))
    third, _ = run(small_config(finished.parent))
    assert [summary.folder.name for summary in (second, third)] == ["run-2", "run-3"]
    assert "holds an earlier run; this one goes to" in seen
    assert content(finished) == before
    again, _ = run(load(str(second.folder), ["trainer.steps=3"]), resume=True)
    assert again.folder == second.folder


def test_a_file_in_the_place_of_the_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    assert run(small_config(tmp_path))[0].folder.name == "run-2"
    assert (tmp_path / "run").read_text() == "mine"
    with pytest.raises(StorageError, match="cannot create"):
        run(small_config(tmp_path / "run"))


def test_a_run_that_could_not_begin_does_not_take_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed download leaves a configuration and a log; the second attempt is still this run, not `run-2`."""

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise ModelError("tiny: no network")

    with monkeypatch.context() as patch:
        patch.setattr(assembly, "load_policy", unreachable)
        with pytest.raises(ModelError, match="no network"):
            run(small_config(tmp_path))
    assert run(small_config(tmp_path))[0].folder == tmp_path / "run"
    assert names(tmp_path) == {"run"}


# -- environments that fail --------------------------------------------------------------------------------------------------

BROKEN = "+environments.bandit.options."
UNMEASURED = "evaluation.before_training=false"


@pytest.mark.parametrize("switch", ["raise_in_reset=true", "observation=none"])
@pytest.mark.parametrize("first", ["evaluation", "rollout"])
def test_an_environment_that_always_fails_stops_the_run_and_is_named(tmp_path: Path, switch: str, first: str) -> None:
    """Bug-log row 44: in all episodes; nothing half-written, nothing left open."""
    extra = [UNMEASURED] if first == "rollout" else []
    with pytest.raises(TrainingError) as stopped:
        run(corridor_config(tmp_path, BROKEN + switch, *extra))
    assert stopped.value.exit_code == 1
    assert "environment 'bandit'" in str(stopped.value)
    assert "rollout.max_failed_frac=0.25" in str(stopped.value)
    assert num_open() == 0
    assert names(tmp_path / "run") == {"config.yaml", "log.txt", "metrics.jsonl"}
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


def test_an_environment_that_begins_to_fail_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 44, in the third step; once it is repaired the run goes on."""
    config = corridor_config(tmp_path, "trainer.steps=3", UNMEASURED)
    from tests.support.corridor import Corridor

    honest = Corridor._begin

    def fails(self: Corridor) -> str:
        calls.append(None)
        if len(calls) > 24:
            raise EnvironmentFailure("the server has gone")
        return honest(self)

    calls: list[None] = []
    with monkeypatch.context() as patch:
        patch.setattr(Corridor, "_begin", fails)
        with pytest.raises(TrainingError, match=r"4 of 12 trajectories failed.*the server has gone"):
            run(config)
    assert num_open() == 0
    assert names(tmp_path / "run" / "rollouts") == {"step-000001.parquet", "step-000002.parquet"}
    run(config, resume=True)
    assert [row["step"] for row in metrics_of(tmp_path / "run")] == [1, 2, 3]


def test_some_failures_are_left_out_counted_and_recorded(tmp_path: Path) -> None:
    """Bug-log rows 18, 20 and 44: one episode in three; the others are trained on."""
    config = corridor_config(
        tmp_path,
        *ARPO,
        BROKEN + "raise_in_reset=true",
        BROKEN + "raise_frac=0.3",
        "rollout.max_failed_frac=0.9",
        "rollout.max_replacements_frac=0",
    )
    summary, seen = run(config)
    for text in (seen, (summary.folder / "log.txt").read_text()):
        assert re.search(r"\d+ of 12 trajectories failed and are left out; the first: environment 'bandit'", text)
    for row, recorded in zip(metrics_of(summary.folder)[1:], rollouts_of(summary.folder).values(), strict=True):
        failed = [r for r in recorded if r.trajectory.end_reason is EndReason.ENVIRONMENT_ERROR]
        assert 0 < len(failed) < 12 == len(recorded)
        assert row["rollout/failed_frac"] == pytest.approx(len(failed) / 12)
        assert all(not r.is_trained and "raise" not in r.trajectory.error for r in failed)
        assert row["update/tokens"] == sum(r.trajectory.num_sampled for r in recorded if r.is_trained)


def test_a_step_of_failures_alone_names_the_cause_and_can_be_looked_at(tmp_path: Path) -> None:
    """Bug-log rows 14 and 97: not 'no tokens', but what went wrong."""
    allowed = ("rollout.max_failed_frac=1.0", "rollout.max_replacements_frac=0.0")
    config = corridor_config(tmp_path, BROKEN + "raise_in_reset=true", *allowed, UNMEASURED)
    with pytest.raises(TrainingError, match=r"step 1: nothing to train on: all 12 trajectories failed, the first: environment"):
        run(config)
    assert len(rollouts_of(tmp_path / "run")["step-000001.parquet"]) == 12


# -- numbers that are not finite ---------------------------------------------------------------------------------------------


def spoil_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Learner.score

    def score(self: Learner, part: Any) -> Any:
        logprobs, entropies = honest(self, part)
        return logprobs * math.nan, entropies

    monkeypatch.setattr(Learner, "score", score)


def test_updates_that_are_not_finite_are_skipped_named_and_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log rows 63 and 64: weights stay those of the start, every number that is logged is finite."""
    spoil_losses(monkeypatch)
    config = small_config(tmp_path, "trainer.steps=9", "trainer.max_skipped_updates=3")
    with pytest.raises(TrainingError, match=r"3 steps in a row had a loss or gradient that is not finite"):
        run(config)
    rows = metrics_of(tmp_path / "run")
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(row["update/skipped"] == 2 for row in rows[1:])
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "step 2: an optimiser step was skipped, nothing changed: not finite: loss of bandit group" in log
    checkpoints = tmp_path / "run" / "checkpoints"
    a, b = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (checkpoints / "step-000003", tiny_llama()))
    assert all(torch.equal(a[name], b[name]) for name in b)


def test_the_count_of_skipped_updates_survives_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 77: two before the stop and one after it are three in a row."""
    spoil_losses(monkeypatch)
    config = small_config(tmp_path, "trainer.steps=9", "trainer.max_skipped_updates=3")
    with monkeypatch.context() as patch:
        on_call(patch, RolloutPhase, "play", 3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    with pytest.raises(TrainingError, match="3 steps in a row"):
        run(config, resume=True)
    assert [row["step"] for row in metrics_of(tmp_path / "run")] == [0, 1, 2, 3]


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log rows 63 and 82: with one checkpoint kept, saving them would have cost the last good one."""
    honest = Trainer.step

    def step(self: Trainer, number: int) -> dict[str, float]:
        metrics = honest(self, number)
        if number == 1:
            with torch.no_grad():
                next(iter(self.learner.policy.trainable().values()))[0, 0] = math.nan
        return metrics

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(TrainingError, match="step 2: weights are not finite numbers and are not saved"):
        run(small_config(tmp_path, "trainer.keep_checkpoints=1", "trainer.steps=3"))
    assert names(tmp_path / "run" / "checkpoints") == {"step-000001"}


def test_weights_that_are_not_finite_stop_the_run_in_the_next_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 63: greedy sampling would emit one id for ever; here every trajectory fails and says why."""
    honest = RolloutPhase.play

    def play(self: RolloutPhase, step: int) -> Any:
        if step == 1:
            with torch.no_grad():
                self.engine._policy._causal_lm.get_output_embeddings().weight[7] = math.nan
        return honest(self, step)

    monkeypatch.setattr(RolloutPhase, "play", play)
    with pytest.raises(TrainingError, match=r"4 of 12 trajectories failed.*scores that are not finite"):
        run(small_config(tmp_path))
    assert names(tmp_path / "run" / "checkpoints") == {"step-000001"}


def test_a_cut_distribution_is_trained_with_ratios_around_one(tmp_path: Path) -> None:
    """Kin of bug-log row 49, through the whole run: rollout.sampling.top_p reaches the learner."""
    summary, _ = run(small_config(tmp_path, *ARPO, "rollout.sampling.top_p=0.5", "algorithm.num_minibatches=1"))
    for row in metrics_of(summary.folder)[1:]:
        assert row["update/ratio_max"] == pytest.approx(1, abs=1e-4)
        assert row["update/clip_low_frac"] == 0
