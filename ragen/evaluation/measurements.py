"""What one evaluation in training plays: the run's own environments, then its suites, one result for each setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.results import VALIDATION, EvaluationResult
from ragen.evaluation.suites import Suite
from ragen.rollout.environment_config import EnvironmentConfig


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Environments that are played together under one setting, and what their result is called."""

    title: str  # for people
    kind: str  # of the result
    environments: Mapping[str, EnvironmentConfig]
    evaluation: EvaluationConfig
    metrics: Callable[[EvaluationResult], dict[str, float]]  # under the keys that are logged

    @property
    def num_episodes(self) -> int:
        return self.evaluation.num_episodes * self.evaluation.samples_per_seed * len(self.environments)

    def summary(self, result: EvaluationResult) -> str:
        """The result in a line."""
        interval = result.success
        where = "" if self.kind == VALIDATION else f" ({self.title})"
        return (
            f"held-out success after {result.step} steps{where}: {interval.mean:.1%} "
            f"[{interval.low:.1%}, {interval.high:.1%}], {result.num_episodes} episodes"
        )


def measurements(
    environments: Mapping[str, EnvironmentConfig], evaluation: EvaluationConfig, suites: Sequence[Suite]
) -> list[Measurement]:
    """The run's own tags first: a run that is stopped before the suites has been measured on what it trains."""
    own = Measurement(
        title="evaluation",
        kind=VALIDATION,
        environments=environments,
        evaluation=evaluation,
        metrics=EvaluationResult.metrics,
    )
    return [own, *(each for suite in suites for each in measurements_of(suite))]


def measurements_of(suite: Suite, *, samples: bool = True) -> list[Measurement]:
    """One for each setting: greedy and sampled replies are never mixed.

    `samples=False` is a policy that plays alike in both modes: settings that only sample otherwise are then one.
    """
    settings = suite.settings
    if not samples:
        counts = [(each.evaluation.num_episodes, each.evaluation.samples_per_seed) for each in settings]
        settings = tuple(each for place, each in enumerate(settings) if counts[place] not in counts[:place])
    return [
        Measurement(
            title=f"{suite.name}, {setting.name}",
            kind=suite.kind(setting),
            environments=suite.environments,
            evaluation=setting.evaluation if samples else _without_sampling(setting.evaluation),
            metrics=partial(suite.metrics, setting),
        )
        for setting in settings
    ]


def _without_sampling(evaluation: EvaluationConfig) -> EvaluationConfig:
    return EvaluationConfig(num_episodes=evaluation.num_episodes, samples_per_seed=evaluation.samples_per_seed)
