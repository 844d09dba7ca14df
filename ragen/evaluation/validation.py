"""Validation: what training measures of its own policy, on seeds that it never trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen.credit.rewards import RewardsConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.evaluation.evaluate import evaluate
from ragen.evaluation.measurements import Measurement
from ragen.evaluation.results import EvaluationResult, write_result
from ragen.models.chat import ChatTemplate
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
    model: str
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
            write_result(self.folder, result)
            self.display.message(each.summary(result))
            if self.show_episodes:
                self.trackers.show(each.kind, chosen(result.trajectories, self.show_episodes), done)
            metrics |= each.metrics(result)
            metrics["time/eval_s"] += result.seconds
        return metrics

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
                    model=self.model,
                    step=done,
                    kind=measurement.kind,
                    rewards=self.rewards,
                    on_progress=show,
                )
            )
