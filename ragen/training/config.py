"""The settings of the optimiser and of the training loop."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.errors import ConfigError


@dataclass(kw_only=True)
class OptimizerConfig:
    """AdamW. The defaults suit LoRA; full fine-tuning wants a learning rate about ten times smaller."""

    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    grad_clip: float = 1.0  # largest norm of the gradient over all trained parameters
    warmup_steps: int = 0  # optimiser steps over which the learning rate rises linearly from lr / warmup_steps

    def check(self) -> None:
        """Raise ConfigError for a value out of range."""
        for key in ("lr", "grad_clip"):
            if not getattr(self, key) > 0:
                raise ConfigError(f"optimizer.{key}={getattr(self, key)}: must be greater than 0")
        for key in ("beta1", "beta2"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"optimizer.{key}={getattr(self, key)}: must lie in [0, 1)")
        for key in ("weight_decay", "warmup_steps"):
            if not getattr(self, key) >= 0:
                raise ConfigError(f"optimizer.{key}={getattr(self, key)}: must be at least 0")


@dataclass(kw_only=True)
class TrainerConfig:
    """The loop: how many steps, when to save, when to evaluate, when to give up."""

    steps: int = 16  # one step is one rollout and its update
    save_every: int = 5  # steps between checkpoints; the last step is always saved
    keep_checkpoints: int = 2  # older complete ones are removed after a new one is verified
    eval_every: int = 0  # steps between held-out evaluations; 0 evaluates before and after training only
    max_skipped_updates: int = 3  # non-finite updates in a row after which the run stops
    kl_groups: int = 1  # groups per step on which the KL to the start policy is measured; 0 leaves the metric out

    def check(self) -> None:
        """Raise ConfigError for a value out of range."""
        for key in ("steps", "save_every", "keep_checkpoints", "max_skipped_updates"):
            if getattr(self, key) < 1:
                raise ConfigError(f"trainer.{key}={getattr(self, key)}: must be at least 1")
        for key in ("eval_every", "kl_groups"):
            if getattr(self, key) < 0:
                raise ConfigError(f"trainer.{key}={getattr(self, key)}: must be at least 0")
