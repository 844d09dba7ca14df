"""Whole training runs of a model of a few thousand parameters: a second each, and how two of them compare."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from ragen import run as module
from ragen.config.load import load
from ragen.config.schema import Config
from ragen.rollout.recorder import Recorded, read_rollout
from ragen.run import RunSummary
from ragen.training.checkpoint import MANIFEST
from tests.support.models import tiny_llama

ARPO = ("algorithm=arpo", "algorithm.entropy_coef=0.01")  # the raw return: every reply, also an unreadable one, moves the weights
LORA = ("model.tuning=lora", "model.lora_rank=4")
STATEFUL: dict[str, tuple[str, ...]] = {  # algorithms with a state of their own from step to step
    "critic on an adapter, a KL price that adapts, and refill": (
        *LORA,
        "algorithm=starpo",
        "algorithm.kl.target=0.01",
        "algorithm.filter.drop_zero_spread=true",
        "algorithm.filter.rule=min_p",
        "algorithm.filter.value=0.5",
        "algorithm.filter.refill_frac=1",
    ),
    "critic on the trunk, warm-up, and the best groups": (
        "algorithm=starpo_s",
        "algorithm.critic.warmup_steps=2",
        "algorithm.filter.value=0.7",
    ),
    "a KL term that adapts, and a curriculum": (
        "algorithm=gspo",
        "algorithm.kl.coef=0.1",
        "algorithm.kl.target=0.01",
        "rollout.curriculum.rule=balance",
        "+env@environments.other=bandit",
        "environments.other.num_groups=2",
    ),
}

# Twelve trajectories a step in three groups, eight tokens a reply.
SMALL = (
    "name=run",
    "rollout.group_size=4",
    "rollout.sampling.max_new_tokens=8",
    "evaluation.num_episodes=5",
    "tracking.backends=[]",
    "trainer.steps=2",
    "trainer.save_every=1",
)


def small_config(folder: Path, *overrides: str, model: Path | str = "") -> Config:
    """The recipe bandit_tiny at its smallest, writing into `folder`; `model` is the two-layer Llama unless given."""
    groups = [] if any(override.startswith("env=") for override in overrides) else ["environments.bandit.num_groups=3"]
    return load("bandit_tiny", [*SMALL, *groups, f"model.name={model or tiny_llama()}", f"output_dir={folder}", *overrides])


def corridor_config(folder: Path, *overrides: str, model: Path | str = "") -> Config:
    """The same on the corridor, two turns an episode, with its switches below environments.bandit.options."""
    limits = ["environments.bandit.name=corridor", "environments.bandit.max_turns=2", "environments.bandit.max_actions=4"]
    return small_config(folder, *limits, *overrides, model=model)


def run(config: Config, *, resume: bool | str = False, picture: bool = False) -> tuple[RunSummary, str]:
    """Train; the summary and what a person saw. The learning curve takes as long to draw as such a run, so few tests want it."""
    console = Console(file=io.StringIO(), width=140, force_terminal=False)
    blank = mock.patch.object(module, "draw_learning_curve", side_effect=lambda rows, path, title: path.touch())
    with nullcontext() if picture else blank:
        summary = module.train(config, console=console, resume=resume)
    return summary, console.file.getvalue()  # type: ignore[attr-defined]


def metrics_of(folder: Path) -> list[dict[str, float]]:
    """The rows of metrics.jsonl, as JSON that refuses NaN, without what no two runs share: seconds and memory."""

    def refuse(name: str) -> float:
        raise ValueError(f"{name} is logged")

    rows = [json.loads(line, parse_constant=refuse) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed, per_time = ("time/", "memory/"), ("/tokens_per_s", "/dropped_s")
    return [{k: v for k, v in row.items() if not k.startswith(timed) and not k.endswith(per_time)} for row in rows]


def weights_of(folder: Path, step: int) -> dict[str, str]:
    """Checksums of the weights and of the optimiser state in a checkpoint."""
    manifest = json.loads((folder / "checkpoints" / f"step-{step:06d}" / MANIFEST).read_text())
    return {name: entry["sha256"] for name, entry in manifest["files"].items() if name.endswith(".safetensors")}


def rollouts_of(folder: Path) -> dict[str, list[Recorded]]:
    """Every recorded trajectory by file name."""
    return {path.name: read_rollout(path) for path in sorted((folder / "rollouts").iterdir())}


def same_rollouts(a: list[Recorded], b: list[Recorded]) -> bool:
    """Equal in every field, arrays bit for bit."""

    def plain(row: Recorded) -> Any:
        arrays = [array for s in row.trajectory.segments for array in (s.ids, s.mask, s.logprobs)]
        fields = {k: v for k, v in vars(row.trajectory).items() if k != "segments"}
        return fields, [None if array is None else array.tobytes() for array in (*arrays, *row.advantages)]

    return [plain(row) for row in a] == [plain(row) for row in b]


def on_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int, act: Callable[[], None]) -> None:
    """Do `act` before the call of `owner.name` with this number, counted from 1."""
    honest = getattr(owner, name)
    calls: list[None] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        if len(calls) == number:
            act()
        return honest(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)


def interrupt() -> None:
    raise KeyboardInterrupt


def assert_same_run(a: Path, b: Path, last: int) -> None:
    """Weights, optimiser state, metrics, evaluations and trajectories: everything but seconds, bit for bit."""
    assert weights_of(a, last) == weights_of(b, last)
    assert metrics_of(a) == metrics_of(b)
    first, second = rollouts_of(a), rollouts_of(b)
    assert first.keys() == second.keys()
    assert [name for name in first if not same_rollouts(first[name], second[name])] == []
    for path in sorted((a / "eval").glob("*.json")):
        one, other = (json.loads((folder / "eval" / path.name).read_text()) for folder in (a, b))
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
