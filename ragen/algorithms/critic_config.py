"""The settings of the critic: what its values are read from, and how it learns them."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.errors import ConfigError, near_match
from ragen.models.config import ModelConfig

KINDS = ("auto", "adapter", "trunk", "model")


@dataclass(kw_only=True)
class CriticConfig:
    """A value head and what it reads. Formulas, sources and what each kind costs: docs/algorithms/critic.md.

    adapter: LoRA of its own over the policy's base; trunk: the policy's hidden states; model: another one.
    """

    kind: str = "auto"  # adapter, trunk or model; auto is adapter where the policy is tuned by LoRA, else trunk
    model: str = ""  # of kind=model: an alias, folder or hub id with the policy's tokenizer; '' is model.name
    lora_rank: int = 0  # of the critic's own adapter; 0 is model.lora_rank
    init_std: float = 0.0  # of the value head's first weights; 0: every value is exactly 0 at the start
    lr: float = 1e-4  # constant; betas and weight decay are those of the policy's optimiser
    grad_clip: float = 1.0  # largest norm of the gradient over all of the critic's parameters
    warmup_steps: int = 0  # steps at the start of training in which the critic learns and the policy does not
    clip: float = 0.5  # a value is pulled no further than this from what it was before the update; 0: as far as it goes
    huber_delta: float = 0.0  # errors beyond this count linearly; 0: all errors are squared
    num_minibatches: int = 2  # optimiser steps per epoch over a rollout
    num_epochs: int = 1

    def check(self) -> None:
        """Raise ConfigError for a value that is out of range or without effect beside another."""
        if self.kind not in KINDS:
            hint = near_match(self.kind, KINDS)
            raise ConfigError(f"algorithm.critic.kind={self.kind!r}: must be one of {', '.join(KINDS)}{hint}")
        if self.model and self.kind != "model":
            raise ConfigError(f"algorithm.critic.model={self.model!r} has no effect unless algorithm.critic.kind=model")
        if self.lora_rank and self.kind == "trunk":
            raise ConfigError(
                f"algorithm.critic.lora_rank={self.lora_rank} has no effect with algorithm.critic.kind=trunk: it has no adapter"
            )
        for key in ("lr", "grad_clip"):
            if not 0 < getattr(self, key) < float("inf"):
                raise ConfigError(f"algorithm.critic.{key}={getattr(self, key)}: must be greater than 0 and finite")
        for key in ("lora_rank", "init_std", "warmup_steps", "clip", "huber_delta"):
            if not 0 <= getattr(self, key) < float("inf"):
                raise ConfigError(f"algorithm.critic.{key}={getattr(self, key)}: must be at least 0 and finite")
        for key in ("num_minibatches", "num_epochs"):
            if getattr(self, key) < 1:
                raise ConfigError(f"algorithm.critic.{key}={getattr(self, key)}: must be at least 1")

    def check_beside(self, model: ModelConfig) -> None:
        """Raise ConfigError where this critic cannot be built over the policy that `model` describes."""
        if model.tuning == "lora":
            return
        if self.kind == "adapter":
            raise ConfigError(
                "algorithm.critic.kind=adapter with model.tuning=full: there is no frozen base that both could share; "
                "use algorithm.critic.kind=model or trunk, or model.tuning=lora"
            )
        if self.lora_rank:
            raise ConfigError(
                f"algorithm.critic.lora_rank={self.lora_rank} has no effect with model.tuning=full: so is the critic tuned"
            )

    def kind_beside(self, model: ModelConfig) -> str:
        """The kind there will be over the policy that `model` describes."""
        if self.kind != "auto":
            return self.kind
        return "adapter" if model.tuning == "lora" else "trunk"

    def trains_alone(self, step: int) -> bool:
        """Whether the policy stays as it is in this step, counted from 0, while the critic warms up."""
        return step < self.warmup_steps
