"""What a person may set about rollouts: group size, penalties, failure limit, context, sampling."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragen.errors import ConfigError
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.curriculum import CurriculumConfig


@dataclass(kw_only=True)
class SamplingConfig:
    """How replies are sampled while training; evaluation has its own temperature, top_p and top_k."""

    temperature: float = 1.0  # > 0: a group of identical greedy replies has nothing to compare
    top_p: float = 1.0  # (0, 1]; 1 keeps every token
    top_k: int = 0  # 0 is off
    max_new_tokens: int = 40  # per reply

    def check(self) -> None:
        """Raise ConfigError for a value out of range."""
        if not self.temperature > 0:
            raise ConfigError(
                f"rollout.sampling.temperature={self.temperature}: must be above 0"
                " (greedy members of a group would all say the same; evaluation.temperature may be 0)"
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"rollout.sampling.top_p={self.top_p}: must be above 0 and at most 1")
        if self.top_k < 0:
            raise ConfigError(f"rollout.sampling.top_k={self.top_k}: must be at least 0 (0 is off)")
        if self.max_new_tokens < 1:
            raise ConfigError(f"rollout.sampling.max_new_tokens={self.max_new_tokens}: must be at least 1")


@dataclass(kw_only=True)
class RolloutConfig:
    """One rollout: `group_size` trajectories from each initial state; the number of groups is set per environment."""

    group_size: int = 16  # trajectories that share an initial state
    format_penalty: float = -0.1  # <= 0, per reply without a valid answer; never shown to the model
    max_invalid_turns: int = 3  # so many replies in a row without a valid action end a trajectory
    max_failed_frac: float = (
        0.25  # [0, 1] of a step's trajectories; where infrastructure fails in more, replaced or not, the run stops
    )
    max_replacements_frac: float = 0.25  # [0, 1] of a step's trajectories that may be played anew after such a failure; 0 is off
    context: ContextConfig = field(default_factory=ContextConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

    def check(self) -> None:
        """Raise ConfigError for a value out of range, here or in a section below."""
        if self.group_size < 1:
            raise ConfigError(f"rollout.group_size={self.group_size}: must be at least 1")
        if not self.format_penalty <= 0:
            raise ConfigError(f"rollout.format_penalty={self.format_penalty}: must be 0 or negative")
        if self.max_invalid_turns < 1:
            raise ConfigError(f"rollout.max_invalid_turns={self.max_invalid_turns}: must be at least 1")
        for key in ("max_failed_frac", "max_replacements_frac"):
            if not 0 <= getattr(self, key) <= 1:
                raise ConfigError(f"rollout.{key}={getattr(self, key)}: must be between 0 and 1")
        self.curriculum.check()
        self.context.check()
        self.sampling.check()
