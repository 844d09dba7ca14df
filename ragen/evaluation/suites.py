"""Suites: several environments under several settings, measured together so that policies can be compared on all of them.

Greedy and sampled replies answer different questions, so every setting says its mode and has a result of its own; nothing is
averaged over settings. The seeds are the held-out ones that every evaluation plays: the first `num_episodes` of them.
config/suites.py reads suites from files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragen.errors import ConfigError, near_match
from ragen.evaluation.config import EvaluationConfig
from ragen.rollout.environment_config import EnvironmentConfig

if TYPE_CHECKING:  # the module reads rollouts, which needs pyarrow; settings are checked without
    from ragen.evaluation.results import EvaluationResult

GREEDY, SAMPLED = "greedy", "sampled"
MODES = (GREEDY, SAMPLED)

_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How the environments of a suite are played: from how many seeds, and how replies are sampled."""

    name: str
    mode: str  # greedy or sampled
    evaluation: EvaluationConfig

    def check(self, where: str) -> None:
        """Raise ConfigError that begins with `where` for a value out of range, or for a mode that is not what is sampled."""
        if self.mode not in MODES:
            hint = near_match(self.mode, MODES)
            raise ConfigError(f"{where}.mode={self.mode}: must be one of {', '.join(MODES)}, and every setting says which{hint}")
        try:
            self.evaluation.check()
        except ConfigError as error:
            raise ConfigError(str(error).replace("evaluation", where, 1)) from None
        if self.mode == SAMPLED and self.evaluation.temperature == 0:
            raise ConfigError(f"{where}.temperature=0: is greedy; set mode=greedy, or a temperature above 0")
        if self.mode == GREEDY:
            for key, neutral in (("temperature", 0.0), ("top_p", 1.0), ("top_k", 0)):
                value = getattr(self.evaluation, key)
                if value != neutral:
                    raise ConfigError(f"{where}.{key}={value}: has no effect with mode=greedy; leave it out")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Every environment under every setting."""

    name: str
    environments: Mapping[str, EnvironmentConfig]  # by tag
    settings: tuple[Setting, ...]

    def check(self, source: str) -> None:
        """Raise ConfigError that begins with `source` for whatever cannot be played."""
        for section in ("environments", "settings"):
            if not getattr(self, section):
                raise ConfigError(f"{source}: {section}: at least one is needed")
        for name in (self.name, *self.environments, *(setting.name for setting in self.settings)):
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{source}: {name!r}: is part of file names and metrics, so letters, digits and '_' only")
        for tag, environment in self.environments.items():
            _check(tag, environment, source)
        for setting in self.settings:
            setting.check(f"{source}: settings.{setting.name}")

    def kind(self, setting: Setting) -> str:
        """The `kind` of the result of one setting, hence part of its file's name: `step-000016-paper-greedy.json`."""
        return f"{self.name}-{setting.name}"

    def metrics(self, setting: Setting, result: EvaluationResult) -> dict[str, float]:
        """The result's metrics under `eval/<suite>/<setting>/`, where they cannot be taken for those of the run's own tags."""
        return {f"eval/{self.name}/{setting.name}/{key.removeprefix('eval/')}": v for key, v in result.metrics().items()}


def _check(tag: str, environment: EnvironmentConfig, source: str) -> None:
    try:
        environment.check(tag)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    most, budget = environment.max_actions_per_turn, environment.max_actions
    if most > budget:
        raise ConfigError(f"{source}: environments.{tag}.max_actions_per_turn={most}: must be at most max_actions={budget}")
