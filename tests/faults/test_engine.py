"""An engine that fails or runs out of memory, seen from where it is used: a collection of episodes, a training run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen.engines.torch_engine import TorchEngine
from ragen.errors import TrainingError
from ragen.models.chat import ChatTemplate
from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.records import EndReason, Group, Trajectory
from ragen.rollout.collect import collect, context_factory
from ragen.rollout.config import RolloutConfig, SamplingConfig
from ragen.training.checkpoint import find_fault
from ragen.training.rollout_phase import RolloutPhase
from tests.support.corridor import num_open
from tests.support.episodes import manager
from tests.support.models import tiny_llama
from tests.support.rollouts import SAMPLING, corridor
from tests.support.runs import corridor_config, metrics_of, on_call, rollouts_of, run, same_rollouts, weights_of

SHORTAGE = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 64"
ONE_STEP = ("algorithm=arpo", "trainer.steps=1", "evaluation.before_training=false", "evaluation.num_episodes=2")


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, when: Callable[[int], bool]) -> None:
    """Let the drawing of next ids raise where `when` says so of the number of its call."""
    honest, calls = TorchEngine._sample, iter(range(10**9))

    def sample(self: TorchEngine, *args: Any) -> None:
        if when(next(calls)):
            raise error
        honest(self, *args)

    monkeypatch.setattr(TorchEngine, "_sample", sample)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(ModelConfig(name=str(tiny_llama()), tuning="full"))


def gather(policy: Policy, **rollout: Any) -> list[Group]:
    config = RolloutConfig(sampling=SamplingConfig(max_new_tokens=6), **rollout)
    episodes = manager(group_size=3, corridor=corridor(num_groups=2, max_turns=2))
    template = ChatTemplate.configured(policy.tokenizer, ModelConfig())
    playing = collect(episodes.open(0), context_factory(template, config), TorchEngine(policy), SAMPLING, config)
    return asyncio.run(playing)


def everything(groups: list[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in (*group.trajectories, *group.failed)]


def test_a_step_of_the_engine_that_fails_costs_those_trajectories_and_they_are_played_anew(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, RuntimeError("cuDNN error"), lambda call: call == 3)
    groups = gather(policy, max_failed_frac=1.0, max_replacements_frac=1.0)
    failed = [trajectory for group in groups for trajectory in group.failed]
    assert len(failed) == 6  # all were being sampled
    assert {(t.end_reason, t.error) for t in failed} == {
        (EndReason.ENGINE_ERROR, "a step of the engine failed: RuntimeError: cuDNN error")
    }
    assert [[(t.key.member, t.key.attempt) for t in group.trajectories] for group in groups] == [[(0, 1), (1, 1), (2, 1)]] * 2
    assert num_open() == 0


def test_out_of_memory_is_nothing_that_a_trajectory_would_tell(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = everything(gather(policy))
    failing(monkeypatch, RuntimeError(SHORTAGE), lambda call: call in (3, 9))
    found = everything(gather(policy))
    assert [t.key for t in found] == [t.key for t in undisturbed]
    for one, other in zip(found, undisturbed, strict=True):
        assert one.end_reason is other.end_reason
        assert [turn.reply for turn in one.turns] == [turn.reply for turn in other.turns]
        for a, b in zip(one.segments, other.segments, strict=True):
            assert a.ids.tolist() == b.ids.tolist()
            assert a.logprobs.tolist() == pytest.approx(b.logprobs.tolist(), abs=1e-4)


def test_a_bug_in_the_engine_passes_through_and_closes_everything(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, TypeError("no such argument"), lambda call: call == 3)
    with pytest.raises(TypeError, match="no such argument"):
        gather(policy, max_failed_frac=1.0)
    assert num_open() == 0


def test_a_run_whose_engine_runs_out_of_memory_goes_on_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), lambda call: call == 4)
    summary, seen = run(corridor_config(tmp_path, *ONE_STEP))
    (row,) = metrics_of(summary.folder)
    assert row["rollout/out_of_memory"] == 1
    assert row["rollout/failed_frac"] == 0
    assert "out of memory while sampling (OutOfMemoryError: CUDA out of memory" in seen


def test_a_resumed_run_goes_on_with_the_rows_that_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stopped after the step in which memory ran out and one that was not are the same run."""
    ran_out = ("algorithm=arpo", "evaluation.before_training=false", "evaluation.num_episodes=2", "evaluation.every=1")
    folders = {}
    for name, steps in (("unbroken", [3]), ("resumed", [1, 3])):
        with monkeypatch.context() as patch:
            failing(patch, RuntimeError(SHORTAGE), lambda call: call == 4)
            run(corridor_config(tmp_path, *ran_out, f"name={name}", f"trainer.steps={steps[0]}"))
        for more in steps[1:]:
            run(corridor_config(tmp_path, *ran_out, f"name={name}", f"trainer.steps={more}"), resume=True)
        folders[name] = tmp_path / name
    assert weights_of(folders["unbroken"], 3) == weights_of(folders["resumed"], 3)
    a, b = (rollouts_of(folder) for folder in folders.values())
    assert all(same_rollouts(a[name], b[name]) for name in a)


def test_a_step_that_fails_now_and_then_is_counted_and_its_stack_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, RuntimeError("cuDNN error"), lambda call: call == 4)
    summary, seen = run(corridor_config(tmp_path, *ONE_STEP, "rollout.max_failed_frac=1.0", "rollout.max_replacements_frac=1.0"))
    (row,) = metrics_of(summary.folder)
    assert row["rollout/end/engine_error"] > 0
    assert row["rollout/replaced_frac"] > 0
    assert "the replies that it sampled are lost: RuntimeError: cuDNN error" in seen
    assert "Traceback" not in seen
    assert "Traceback (most recent call last)" in (summary.folder / "log.txt").read_text()


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        ("1.0", r"^step 2: nothing to train on: all 12 trajectories failed, the first: a step of the engine failed: .*: gone$"),
        ("0.25", r"^4 of 12 trajectories failed, more than .*max_failed_frac=0\.25 allows; the first: a step of the engine"),
    ],
)
def test_an_engine_that_is_gone_ends_the_run_in_one_line_with_the_last_checkpoint_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str, said: str
) -> None:
    """Every step of the second rollout fails, as with a device that has dropped out."""
    with monkeypatch.context() as patch:
        on_call(patch, RolloutPhase, "play", 2, lambda: failing(patch, RuntimeError("gone"), lambda call: True))
        settings = (f"rollout.max_failed_frac={allowed}", "rollout.max_replacements_frac=0", "trainer.steps=2")
        with pytest.raises(TrainingError, match=said) as stopped:
            run(corridor_config(tmp_path, *ONE_STEP[:1], *ONE_STEP[2:], *settings))
    assert stopped.value.exit_code == 1
    assert [row["step"] for row in metrics_of(tmp_path / "run")] == [1]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000001"]
    assert find_fault(tmp_path / "run" / "checkpoints" / "step-000001") == ""
    assert num_open() == 0
