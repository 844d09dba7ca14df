"""Runs that are stopped, by whatever means and at whatever moment, and go on as if they had not been."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch

from ragen import run as module
from ragen.errors import ConfigError, NothingToDo, Stopped, StorageError
from ragen.evaluation.validation import Validation
from ragen.models.policy import Policy
from ragen.rollout.context_manager import ContextManager
from ragen.training.rollout_phase import RolloutPhase
from ragen.training.trainer import Trainer
from tests.support.corridor import num_open
from tests.support.models import tiny_llama
from tests.support.runs import (
    ARPO,
    LORA,
    STATEFUL,
    assert_same_run,
    corridor_config,
    interrupt,
    metrics_of,
    on_call,
    rollouts_of,
    run,
    same_rollouts,
    small_config,
    weights_of,
)

FOUR = ("trainer.steps=4", "evaluation.every=2", "optimizer.warmup_steps=6", *ARPO)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != ".lock"}


def steps_of(folder: Path) -> list[float]:
    return [row["step"] for row in metrics_of(folder)]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run that nobody stops: four steps on the corridor, trained in full and by adapters."""
    root = tmp_path_factory.mktemp("unbroken")
    return {
        tuning: run(corridor_config(root, *FOUR, f"name={tuning}", *extra))[0].folder
        for tuning, extra in (("full", ()), ("lora", LORA))
    }


# -- broken off --------------------------------------------------------------------------------------------------------------

# Five evaluation episodes of two turns come first, then twelve trajectories of two turns a step: reply 71 is in the middle of
# step 3. Two optimiser steps a step: the sixth is the second of step 3, so the weights in memory are half-way.
STOPS: dict[str, tuple[Any, str, int]] = {
    "in the rollout of step 3": (ContextManager, "reply", 71),
    "in the update of step 3": (torch.optim.AdamW, "step", 6),
    "while step 3 is saved": (Policy, "save", 3),
    "after step 2 was saved, before it was evaluated": (Validation, "__call__", 2),
    "after step 3 was saved, before it was logged": (Trainer, "finish_step", 4),
    "after the last step was saved, before it was logged": (Trainer, "finish_step", 5),
    "before the page that closes the run": (module, "_report", 1),
}


@pytest.mark.parametrize(
    ("tuning", "stop"), [*(("full", stop) for stop in STOPS), *(("lora", stop) for stop in list(STOPS)[1:3])]
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    tmp_path: Path, unbroken: dict[str, Path], monkeypatch: pytest.MonkeyPatch, stop: str, tuning: str
) -> None:
    """Bug-log rows 76, 77, 78 and 82, wherever the stop comes; no environment is left open (row 107)."""
    config = corridor_config(tmp_path, *FOUR, f"name={tuning}", *(LORA if tuning == "lora" else ()))
    with monkeypatch.context() as patch:
        on_call(patch, *STOPS[stop], interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    assert num_open() == 0
    run(config, resume=True)
    assert num_open() == 0
    assert_same_run(unbroken[tuning], tmp_path / tuning, 4)
    with pytest.raises(NothingToDo):
        run(config, resume=True)


def test_stopping_and_resuming_over_and_over_changes_nothing(
    tmp_path: Path, unbroken: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug-log row 76: each step gains one checkpoint; every episode is trained on once."""
    config = corridor_config(tmp_path, *FOUR, "name=full")
    for resume in (False, True, True):
        with monkeypatch.context() as patch:
            on_call(patch, RolloutPhase, "play", 2, interrupt)
            with pytest.raises(KeyboardInterrupt):
                run(config, resume=resume)
    run(config, resume=True)
    assert_same_run(unbroken["full"], tmp_path / "full", 4)
    seen = [row.trajectory.key for rows in rollouts_of(tmp_path / "full").values() for row in rows]
    assert len(set(seen)) == len(seen) == 48


KILLED = """
import os, sys
from pathlib import Path
from tests.support.runs import corridor_config, on_call, run
from tests.test_resume import FOUR, STOPS
import pytest

def kill():
    os.kill(os.getpid(), 9)

folder, tuning, stop, model = sys.argv[1:]
with pytest.MonkeyPatch.context() as patch:
    on_call(patch, *STOPS[stop], kill)
    run(corridor_config(Path(folder), *FOUR, f"name={tuning}", model=model))
"""


def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path: Path, unbroken: dict[str, Path]) -> None:
    """Bug-log rows 73 and 77, by kill -9: no exit of any with or finally block is taken. More moments: tests/faults."""
    stop = "while step 3 is saved"
    command = [sys.executable, "-c", KILLED, str(tmp_path), "full", stop, str(tiny_llama())]
    killed = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run(corridor_config(tmp_path, *FOUR, "name=full"), resume=True)
    assert_same_run(unbroken["full"], tmp_path / "full", 4)


# -- whatever is trained, in whatever format -----------------------------------------------------------------------------------

LETTERS = "rewards.functions.letters=tests.support.grid:letters"  # what a random model earns unequally
BF16 = "model.dtype=bfloat16"
LEARNERS: dict[str, tuple[str, ...]] = {
    "GRPO in full": ("algorithm=grpo",),
    "GRPO on adapters": ("algorithm=grpo", *LORA),
    "GRPO on adapters over bfloat16": ("algorithm=grpo", *LORA, BF16),
    "PPO in full": ("algorithm=ppo",),
    "PPO on adapters over bfloat16": ("algorithm=ppo", *LORA, BF16),
    **STATEFUL,
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_going_on_from_any_checkpoint_leads_to_the_same_end(tmp_path: Path, learner: str) -> None:
    """Bug-log row 77. From the first of three steps, in a copy of the finished run: the second and third are played again.

    Weight of the KL, critic with its optimiser, warm-up and what the curriculum has seen are those of the first step again; what
    is superseded is kept, and equal to what took its place.
    """
    settings = ("trainer.steps=3", "trainer.keep_checkpoints=3", "optimizer.warmup_steps=4", LETTERS, *LEARNERS[learner])
    whole = run(corridor_config(tmp_path, *settings, "name=whole"))[0].folder
    again = Path(shutil.copytree(whole, tmp_path / "again"))
    _, seen = run(corridor_config(tmp_path, *settings, "name=again"), resume="1")
    assert "from step-000001" in seen
    assert_same_run(whole, again, 3)
    rows = metrics_of(whole)[1:]
    assert len({row.get("update/kl_coef", i) for i, row in enumerate(rows)}) == len(rows)  # it did move
    assert all(row["rollout/group_return_std"] > 0 for row in rows)
    if "refill" in learner:
        assert any(row["filter/extra_groups"] > 0 for row in rows)
    if "warm-up" in learner:
        assert ["update/loss" in row for row in rows] == [False, False, True]
        assert weights_of(whole, 3).keys() > {"critic/weights.safetensors", "critic/optimizer.safetensors"}
    kept = again / "superseded" / "after-step-000001"
    assert names(kept / "checkpoints") == {"step-000002", "step-000003"}
    assert all(same_rollouts(rows, rollouts_of(again)[name]) for name, rows in rollouts_of(kept).items())
    assert weights_of(kept, 3) == weights_of(again, 3)
    assert metrics_of(kept) == metrics_of(again)[-2:]


# -- a checkpoint by name ------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path, unbroken: dict[str, Path]) -> Path:
    """A folder of four finished steps, of which the last two are saved."""
    return Path(shutil.copytree(unbroken["full"], tmp_path / "full"))


def test_a_checkpoint_is_named_by_its_folder_too(copy: Path, unbroken: dict[str, Path]) -> None:
    run(corridor_config(copy.parent, *FOUR, "name=full"), resume=str(copy / "checkpoints" / "step-000003"))
    assert_same_run(unbroken["full"], copy, 4)
    assert names(copy / "superseded" / "after-step-000003" / "rollouts") == {"step-000004.parquet"}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("2", r"checkpoints/step-000002: no such checkpoint; saved steps: 3, 4"),
        ("elsewhere/step-000003", r"elsewhere/step-000003: lies outside .*full/checkpoints"),
        ("4", r"step-000004: not a whole checkpoint: trainer/state.json is missing"),
    ],
)
def test_a_checkpoint_that_was_asked_for_is_never_replaced_by_another(copy: Path, named: str, message: str) -> None:
    (copy / "checkpoints" / "step-000004" / "trainer" / "state.json").unlink()
    with pytest.raises(StorageError, match=message):
        run(corridor_config(copy.parent, *FOUR, "name=full"), resume=named)
    assert not (copy / "superseded").exists()


def test_the_last_checkpoint_by_name_leaves_nothing_to_do(copy: Path) -> None:
    with pytest.raises(NothingToDo, match="all 4 steps are done"):
        run(corridor_config(copy.parent, *FOUR, "name=full"), resume="4")


# -- with other settings -------------------------------------------------------------------------------------------------------


def test_a_longer_run_goes_on_where_a_shorter_one_ended(tmp_path: Path, unbroken: dict[str, Path]) -> None:
    """2 + 2 steps are 4; the evaluation at step 2 is part of both."""
    short, _ = run(corridor_config(tmp_path, *FOUR, "name=full", "trainer.steps=2"))
    assert short.steps == 2
    longer, seen = run(corridor_config(tmp_path, *FOUR, "name=full"), resume=True)
    assert "changed since the run began: trainer.steps=4 (it was 2): where the run ends" in seen
    assert longer.before is not None
    assert (longer.steps, longer.before.step, longer.after.step) == (4, 0, 4)
    assert_same_run(unbroken["full"], tmp_path / "full", 4)


def test_a_run_cut_short_on_resuming_is_measured_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps are saved, then only two are asked for: there is nothing to train, but the third was never evaluated."""
    with monkeypatch.context() as patch:
        on_call(patch, RolloutPhase, "play", 4, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(small_config(tmp_path, "trainer.steps=5"))
    summary, _ = run(small_config(tmp_path, "trainer.steps=2"), resume=True)
    assert (summary.steps, summary.after.step) == (3, 3)
    with pytest.raises(NothingToDo, match="all 3 steps are done"):
        run(small_config(tmp_path, "trainer.steps=2"), resume=True)


def test_old_checkpoints_make_room_but_the_last_one_is_always_saved(tmp_path: Path) -> None:
    """Bug-log row 78: three steps, saved every second one; the third is saved because it is the last."""
    run(small_config(tmp_path, "trainer.steps=3", "trainer.save_every=2"))
    assert names(tmp_path / "run" / "checkpoints") == {"step-000002", "step-000003"}
    run(small_config(tmp_path, "trainer.steps=4", "trainer.save_every=2"), resume=True)
    assert names(tmp_path / "run" / "checkpoints") == {"step-000003", "step-000004"}


def test_a_run_that_began_without_a_critic_does_not_go_on_with_one(tmp_path: Path) -> None:
    run(small_config(tmp_path, "algorithm=grpo"))
    with pytest.raises(ConfigError, match="the run began without a critic, so the checkpoint holds none"):
        run(small_config(tmp_path, "algorithm=ppo", "trainer.steps=3"), resume=True)


# -- signals -------------------------------------------------------------------------------------------------------------------

# Where the signal comes; then for finish and for abandon the steps that are done, and the last one that is logged (None: not even
# the evaluation of the start). Replies 1 to 10 are that evaluation, 59 to 68 the one after step 2. Step 3 is saved as planned.
MOMENTS: dict[str, tuple[tuple[Any, str, int], tuple[int, int | None], tuple[int, int | None]]] = {
    "evaluation of the start": ((ContextManager, "reply", 5), (0, 0), (0, None)),
    "rollout of step 3": ((ContextManager, "reply", 71), (3, 3), (2, 2)),
    "update of step 3": ((torch.optim.AdamW, "step", 6), (3, 3), (3, 3)),
    "checkpoint of step 3": ((Policy, "save", 1), (3, 3), (3, 3)),
    "evaluation after step 2": ((ContextManager, "reply", 63), (2, 2), (2, 1)),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_first_signal_saves_what_is_done_and_nothing_is_lost(
    tmp_path: Path, unbroken: dict[str, Path], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, moment: str
) -> None:
    """Ctrl-C finishes here and SIGTERM abandons. Bug-log rows 82 and 107."""
    where, finished, abandoned = MOMENTS[moment]
    policy, (done, logged) = ("finish", finished) if number == signal.SIGINT else ("abandon", abandoned)
    settings = (*FOUR, "name=full", "trainer.save_every=3", f"trainer.on_signal={policy}")
    config, folder = corridor_config(tmp_path, *settings), tmp_path / "full"
    with monkeypatch.context() as patch:
        on_call(patch, *where, lambda: signal.raise_signal(number))
        with pytest.raises(Stopped) as stopped:
            run(config)
    assert stopped.value.exit_code == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert re.search(
        rf"stopped after {done} of 4 steps, all of it saved; ragen train \S+/full --resume goes on", str(stopped.value)
    )
    assert num_open() == 0
    assert max(names(folder / "checkpoints")) == f"step-{done:06d}"
    assert steps_of(folder) == ([] if logged is None else list(range(logged + 1)))
    assert len(list((folder / "rollouts").glob("*"))) == done
    assert list(folder.rglob("*.tmp")) == []
    run(config, resume=True)
    assert not (folder / "superseded").exists()
    assert_same_run(unbroken["full"], folder, 4)


@pytest.mark.parametrize("moment", ["rollout of step 3", "checkpoint of step 3"])
def test_the_second_signal_stops_at_once_and_nothing_is_torn(
    tmp_path: Path, unbroken: dict[str, Path], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    config, folder = corridor_config(tmp_path, *FOUR, "name=full"), tmp_path / "full"
    where = MOMENTS[moment][0] if moment.startswith("rollout") else (Policy, "save", 3)
    with monkeypatch.context() as patch:
        on_call(patch, *where, twice)
        with pytest.raises(KeyboardInterrupt) as stopped:
            run(config)
    assert getattr(stopped.value, "exit_code", None) == 143
    assert stopped.value.__notes__ == [f"ragen train {folder} --resume goes on from the last checkpoint"]
    assert num_open() == 0
    assert names(folder / "checkpoints") == {"step-000001", "step-000002"}
    assert list(folder.rglob("*.tmp")) == []
    run(config, resume=True)
    assert_same_run(unbroken["full"], folder, 4)


def test_a_signal_in_the_last_step_of_a_run_lets_it_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(tmp_path, *ARPO)
    on_call(monkeypatch, torch.optim.AdamW, "step", 4, lambda: signal.raise_signal(signal.SIGINT))
    summary, _ = run(config)
    assert summary.steps == 2
    with pytest.raises(NothingToDo):
        run(config, resume=True)


SIGNALLED = """
import os, signal, sys
from tests.support.runs import on_call
from ragen.cli import main
from ragen.rollout.context_manager import ContextManager
import pytest

def send():
    for _ in range(int(sys.argv[2])):
        os.kill(os.getpid(), int(sys.argv[1]))

with pytest.MonkeyPatch.context() as patch:
    on_call(patch, ContextManager, "reply", 15, send)
    main(sys.argv[3:])
"""


def processes_with(mark: str) -> list[int]:
    """Ids of the processes in whose environment the mark stands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("number", "times", "code", "line"),
    [
        (
            signal.SIGTERM,
            1,
            143,
            r"error: SIGTERM: stopped after 1 of 2 steps, all of it saved; ragen train \S+ --resume .*",
        ),
        (signal.SIGINT, 2, 130, r"error: interrupted"),
    ],
)
def test_a_signalled_program_ends_with_its_own_code_and_its_workers_with_it(
    tmp_path: Path, number: int, times: int, code: int, line: str
) -> None:
    """The whole program, with environments in processes of their own. Bug-log row 107."""
    mark = f"RAGEN_TEST_MARK={uuid4()}"
    settings = [
        "bandit_tiny",
        f"output_dir={tmp_path}",
        "name=run",
        f"model.name={tiny_llama()}",
        "evaluation.before_training=false",
        "evaluation.num_episodes=2",
        "rollout.group_size=4",
        "environments.bandit.num_groups=5",
        "environments.bandit.runs_in=process",
        "rollout.sampling.max_new_tokens=4",
        "trainer.steps=2",
        "tracking.backends=[]",
    ]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(int(number)), str(times), "train", *settings],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, **dict([mark.split("=")])},
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert re.fullmatch(line, done.stderr.splitlines()[-1])
    assert processes_with(mark) == []
    assert list((tmp_path / "run").rglob("*.tmp")) == []
