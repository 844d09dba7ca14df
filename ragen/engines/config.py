"""The settings of the torch engine."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.errors import ConfigError


@dataclass(kw_only=True)
class EngineConfig:
    """Limits of the running batch. None of them changes what a request samples, up to rounding."""

    max_rows: int = 128  # trajectories that decode at the same time; more wait their turn
    max_tokens: int = 100_000  # of them and their prompts, each taken as long as the longest may get; more wait their turn
    max_idle_tokens: int = 100_000  # tokens whose keys and values may stay cached while nobody uses them

    def check(self) -> None:
        """Raise ConfigError for a value out of range."""
        if self.max_rows < 1:
            raise ConfigError(f"engine.max_rows={self.max_rows}: must be at least 1")
        if self.max_tokens < 1:
            raise ConfigError(f"engine.max_tokens={self.max_tokens}: must be at least 1")
        if self.max_idle_tokens < 0:
            raise ConfigError(f"engine.max_idle_tokens={self.max_idle_tokens}: must be at least 0")
