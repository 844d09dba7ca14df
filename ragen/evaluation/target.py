"""What `ragen eval TARGET` measures: the newest checkpoint of a run, one checkpoint, or a model as it is."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ragen.credit.rewards import RewardsConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import StorageError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.evaluate import evaluate
from ragen.evaluation.results import EVALUATIONS, EvaluationResult
from ragen.models.chat import ChatTemplate
from ragen.models.config import ModelConfig
from ragen.models.policy import load_policy
from ragen.rollout.collect import Progress
from ragen.rollout.config import RolloutConfig
from ragen.rollout.state_manager import EnvironmentConfig
from ragen.training.checkpoint import latest_checkpoint, load_checkpoint
from ragen.training.trainer import CHECKPOINTS


@dataclass(frozen=True, kw_only=True)
class Target:
    """A policy that can be loaded, and where the measurements of it belong."""

    model: ModelConfig
    checkpoint: Path | None  # None: the model as it is
    step: int  # training steps behind it
    results: Path  # the folder for `write_result`


def run_folder_of(target: str) -> Path | None:
    """The run that `target` names, by its own folder or by one of its checkpoints; None if it names a model."""
    path = Path(target)
    if (path / CHECKPOINTS).is_dir():
        return path
    if path.is_dir() and path.resolve().parent.name == CHECKPOINTS:
        return path.parent.parent
    return None


def find_target(target: str, model: ModelConfig, *, output_dir: Path) -> Target:
    """Find what `target` names. `model` is the run's own configuration; for a model by name, only its name is replaced.

    Raises StorageError for a run without a whole checkpoint, or for a damaged one. A model's name is not looked up yet.
    """
    run = run_folder_of(target)
    if run is None:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", target).strip("-.") or "model"
        return Target(
            model=dataclasses.replace(model, name=target), checkpoint=None, step=0, results=output_dir / name / EVALUATIONS
        )
    checkpoint = latest_checkpoint(run / CHECKPOINTS) if run == Path(target) else Path(target)
    if checkpoint is None:
        raise StorageError(f"{run}: no whole checkpoint to evaluate; go on training with --resume, or name a model")
    return Target(model=model, checkpoint=checkpoint, step=load_checkpoint(checkpoint).step, results=run / EVALUATIONS)


def evaluate_target(
    target: Target,
    environments: Mapping[str, EnvironmentConfig],
    evaluation: EvaluationConfig,
    rollout: RolloutConfig,
    *,
    kind: str = "eval",
    rewards: RewardsConfig | None = None,
    on_progress: Progress | None = None,
) -> EvaluationResult:
    """Load the policy of `target` and evaluate it. Raises ModelError if the model cannot be had, else as `evaluate`."""
    policy = load_policy(target.model, checkpoint=target.checkpoint)
    policy.check_window(rollout.context.max_context_tokens)
    template = ChatTemplate.configured(policy.tokenizer, target.model)

    async def play() -> EvaluationResult:
        engine = TorchEngine(policy)
        try:
            return await evaluate(
                engine,
                template,
                environments,
                evaluation,
                rollout,
                model=target.model.name,
                step=target.step,
                kind=kind,
                rewards=rewards,
                on_progress=on_progress,
            )
        finally:
            await engine.close()

    return asyncio.run(play())
