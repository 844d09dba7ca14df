"""A checkpoint measured in another process: the same numbers as here, and an end whatever happens on either side."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ragen.engines.config import EngineConfig
from ragen.errors import ModelError, TrainingError
from ragen.evaluation.apart import Apart, Question, Setting
from ragen.evaluation.config import EvaluationConfig
from tests.support.runs import assert_same_run, run, small_config

MEASURED = ("evaluation.every=1", "trainer.steps=3", "evaluation.temperature=1.0", "evaluation.samples_per_seed=2")


def question(folder: Path, checkpoint: str) -> Question:
    config = small_config(folder)
    evaluation = EvaluationConfig(num_episodes=2)
    return Question(
        model=replace(config.model, dtype="float32"),
        checkpoint=folder / checkpoint,
        policy_version=3,
        step=7,
        settings=[Setting(kind="eval", environments=config.environments, evaluation=evaluation)],
        engine=EngineConfig(),
        rollout=config.rollout,
        rewards=config.rewards,
        num_threads=1,
        processor=None,
    )


def ignore(*counts: int) -> None: ...


def test_a_run_that_is_measured_beside_is_the_run_that_is_measured_between_its_steps(tmp_path: Path) -> None:
    """bug-log row 93: weights, rollouts, metrics and results, to the last bit; a critic's adapter lies beside the policy's."""
    critic = ("algorithm=starpo", "model.tuning=lora", "model.lora_rank=4", "rollout.group_size=2")
    run(small_config(tmp_path, *MEASURED, *critic, "name=between"))
    run(small_config(tmp_path, *MEASURED, *critic, "name=beside", "evaluation.beside=true"))
    assert_same_run(tmp_path / "between", tmp_path / "beside", 3)
    between, beside = (sorted(path.name for path in (tmp_path / name / "eval").iterdir()) for name in ("between", "beside"))
    assert between == beside
    for name in between:
        if name.endswith(".parquet"):
            one, other = ((tmp_path / folder / "eval" / name).read_bytes() for folder in ("between", "beside"))
            assert one == other


def test_what_the_other_process_refuses_is_said_here(tmp_path: Path) -> None:
    apart = Apart(question(tmp_path, "missing"))
    try:
        with pytest.raises(ModelError, match="missing"):
            asyncio.run(apart.results(ignore))
    finally:
        apart.end()
    apart.end()


def test_a_process_that_dies_is_named_with_how_and_what_to_do(tmp_path: Path) -> None:
    apart = Apart(question(tmp_path, "missing"))
    os.kill(apart._process.pid, signal.SIGKILL)
    with pytest.raises(TrainingError, match=r"step 7: the process that measured it died \(signal SIGKILL\).*beside=false"):
        asyncio.run(apart.results(ignore))
    apart.end()


def test_it_ends_with_the_run_however_that_ends(tmp_path: Path) -> None:
    """A run that is killed closes nothing itself: the system closes its end of the pipe, and that is all there is to notice."""
    apart = Apart(question(tmp_path, "missing"))
    with socket.socket(fileno=os.dup(apart._pipe.fileno())) as pipe:
        pipe.shutdown(socket.SHUT_RDWR)
    until = time.monotonic() + 60
    while apart._process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert apart._process.poll() is not None
    apart.end()
