"""The settings of the optimiser and of the training loop."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.errors import ConfigError, near_match
from ragen.metrics import find
from ragen.training.retention import MAX, MIN
from ragen.training.signals import CHOICES, FINISH


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
    keep_best: str | None = None  # a metric such as eval/bandit/success; the checkpoint with the best one is kept beside these
    keep_best_direction: str = MAX  # of keep_best: max, the largest value is the best; min, the smallest
    keep_rollouts: int | None = None  # newest rollout files that are kept, one a step; null: all
    keep_log_mib: int = 100  # size from which log.txt becomes log.1.txt, in the place of an earlier one
    on_signal: str = FINISH  # at Ctrl-C or SIGTERM, before saving: finish the step, or abandon what is being played
    stall_timeout_s: float = (
        1800.0  # seconds without a sign of life after which the run ends with its stacks in log.txt; 0: never
    )
    max_skipped_updates: int = 3  # non-finite updates in a row after which the run stops
    updates_per_rollout: int = 1  # steps that train on the same rollout (Online-k); 1: every step plays its own
    rollouts_from: str = ""  # a run folder whose recorded rollouts are trained on, in their order; nothing is played
    memory_budget: float = 0.7  # for the update: a share of what is free, or GiB if above 1; beyond it layers are computed twice
    pack_tokens: int | None = None  # sampled tokens in one forward pass of the update; null: as many as fit, 1024 at most
    kl_groups: int = 1  # groups per step on which the KL to the start policy is measured; 0 leaves the metric out

    def check(self) -> None:
        """Raise ConfigError for a value out of range or without effect."""
        for key in ("steps", "save_every", "keep_checkpoints", "keep_log_mib", "max_skipped_updates", "updates_per_rollout"):
            if getattr(self, key) < 1:
                raise ConfigError(f"trainer.{key}={getattr(self, key)}: must be at least 1")
        if self.keep_rollouts is not None and self.keep_rollouts < 1:
            raise ConfigError(f"trainer.keep_rollouts={self.keep_rollouts}: must be at least 1, or null to keep all")
        self._check_recorded()
        if not self.stall_timeout_s >= 0:
            raise ConfigError(f"trainer.stall_timeout_s={self.stall_timeout_s:g}: must be at least 0 (0: never)")
        if not self.memory_budget > 0:
            raise ConfigError(f"trainer.memory_budget={self.memory_budget:g}: must be above 0 (a share up to 1, else GiB)")
        if self.pack_tokens is not None and self.pack_tokens < 1:
            raise ConfigError(f"trainer.pack_tokens={self.pack_tokens}: must be at least 1, or null for as many as fit")
        if self.kl_groups < 0:
            raise ConfigError(f"trainer.kl_groups={self.kl_groups}: must be at least 0")
        if self.on_signal not in CHOICES:
            hint = near_match(self.on_signal, CHOICES)
            raise ConfigError(f"trainer.on_signal={self.on_signal!r}: must be one of {', '.join(CHOICES)}{hint}")
        self._check_keep_best()

    def _check_recorded(self) -> None:
        updates, kept = self.updates_per_rollout, self.keep_rollouts
        if self.rollouts_from and updates > 1:
            raise ConfigError(f"trainer.updates_per_rollout={updates}: has no effect with trainer.rollouts_from; leave it at 1")
        if kept is not None and kept < updates:
            raise ConfigError(f"trainer.keep_rollouts={kept}: must be at least trainer.updates_per_rollout={updates}")

    def _check_keep_best(self) -> None:
        direction = self.keep_best_direction
        if direction not in (MAX, MIN):
            raise ConfigError(f"trainer.keep_best_direction={direction!r}: must be one of {MAX}, {MIN}")
        if self.keep_best is None and direction != MAX:
            raise ConfigError(f"trainer.keep_best_direction={direction}: has no effect without trainer.keep_best")
        if self.keep_best is not None and find(self.keep_best) is None:
            raise ConfigError(f"trainer.keep_best={self.keep_best!r}: must be a metric of docs/metrics.md, as eval/TAG/success")
