"""Validation: what training measures of its own policy, on seeds that it never trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ragen.credit.rewards import RewardsConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.evaluation.apart import Apart, Question, Setting
from ragen.evaluation.evaluate import evaluate
from ragen.evaluation.measurements import Measurement
from ragen.evaluation.results import EvaluationResult, write_result
from ragen.models.chat import ChatTemplate
from ragen.models.config import ModelConfig
from ragen.models.processor import processor
from ragen.rollout.config import RolloutConfig
from ragen.training.display import Display
from ragen.training.shown import chosen
from ragen.training.signals import Stop
from ragen.training.trackers import Trackers


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Called with the number of steps that are done, it plays every measurement, keeps the results and returns the metrics.

    What is measured depends on the weights alone: the same checkpoint gives the same numbers to `ragen eval`.
    """

    measurements: Sequence[Measurement]
    engine: TorchEngine
    template: ChatTemplate
    rollout: RolloutConfig
    rewards: RewardsConfig
    model: ModelConfig
    folder: Path  # for the results
    show_episodes: int  # of each environment, to the trackers
    trackers: Trackers
    display: Display
    stop: Stop

    def __call__(self, done: int) -> dict[str, float]:
        """Raises as `evaluate` does; what was measured before stays."""
        metrics = {"time/eval_s": 0.0}
        for each in self.measurements:
            result = self._measure(each, done)
            metrics["time/eval_s"] += result.seconds
            metrics |= self._keep(each, result)
        return metrics

    def beside(self, done: int, checkpoint: Path) -> Beside:
        """The same of a checkpoint, which is what the policy is now, in a process of its own; begins at once."""
        policy = self.engine.policy
        question = Question(
            model=replace(self.model, dtype=str(policy.dtype).removeprefix("torch.")),
            checkpoint=checkpoint,
            policy_version=policy.version,
            step=done,
            settings=[
                Setting(kind=each.kind, environments=each.environments, evaluation=each.evaluation) for each in self.measurements
            ],
            engine=replace(self.engine.config, max_rows=self.engine.row_limit.rows),
            rollout=self.rollout,
            rewards=self.rewards,
            num_threads=torch.get_num_threads(),
            processor=processor() if policy.device.type == "cpu" and policy.dtype == torch.bfloat16 else None,
        )
        return Beside(validation=self, apart=Apart(question))

    def _keep(self, measurement: Measurement, result: EvaluationResult) -> dict[str, float]:
        """Write and show a result; returns its metrics."""
        write_result(self.folder, result)
        self.display.message(measurement.summary(result))
        if self.show_episodes:
            self.trackers.show(measurement.kind, chosen(result.trajectories, self.show_episodes), result.step)
        return measurement.metrics(result)

    def _measure(self, measurement: Measurement, done: int) -> EvaluationResult:
        self.engine.reset()  # what was played before must not decide about a single bit
        with self.display.rollout_progress(measurement.num_episodes, measurement.title) as show:
            return self.stop.run(
                evaluate(
                    self.engine,
                    self.template,
                    measurement.environments,
                    measurement.evaluation,
                    self.rollout,
                    model=self.model.name,
                    step=done,
                    kind=measurement.kind,
                    rewards=self.rewards,
                    on_progress=show,
                )
            )


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A validation under way in a process of its own."""

    validation: Validation
    apart: Apart

    def finish(self) -> dict[str, float]:
        """Wait for it and keep the results, as if it had been measured here. Raises as `Apart.results`, and Abandoned."""
        validation = self.validation
        num_episodes = sum(each.num_episodes for each in validation.measurements)
        try:
            with validation.display.rollout_progress(num_episodes, "evaluation beside") as show:
                results = validation.stop.run(self.apart.results(show))
        finally:
            self.cancel()
        metrics = {"time/eval_s": sum(result.seconds for result in results)}
        for each, result in zip(validation.measurements, results, strict=True):
            metrics |= validation._keep(each, result)
        return metrics

    def cancel(self) -> None:
        """End it, if it has not ended; nothing of it is kept."""
        self.apart.end()
