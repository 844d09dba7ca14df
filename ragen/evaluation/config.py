"""The settings of a held-out evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.errors import ConfigError


@dataclass(kw_only=True)
class EvaluationConfig:
    """How many episodes are played on held-out seeds, and how replies are sampled (as in the paper: 256, temperature 0.5)."""

    num_episodes: int = 256  # per environment tag, each with a task seed of its own
    temperature: float = 0.5  # 0 is greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 is off
    before_training: bool = True  # measure the untrained model too, for the table "before / after"

    def check(self) -> None:
        """Raise ConfigError for a value out of range."""
        if self.num_episodes < 1:
            raise ConfigError(f"evaluation.num_episodes={self.num_episodes}: must be at least 1")
        if not self.temperature >= 0:
            raise ConfigError(f"evaluation.temperature={self.temperature}: must be at least 0 (0 is greedy)")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"evaluation.top_p={self.top_p}: must lie in (0, 1]")
        if self.top_k < 0:
            raise ConfigError(f"evaluation.top_k={self.top_k}: must be at least 0 (0 is off)")
