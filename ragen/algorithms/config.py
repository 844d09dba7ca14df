"""The settings of an algorithm: an advantage estimator, a loss and how the loss is averaged. Presets live in conf/algorithm/."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.errors import ConfigError, near_match

ADVANTAGES = ("grpo", "brpo", "arpo")
KL_ESTIMATORS = ("k1", "k2", "k3")
GROUP_NORMALISED = frozenset({"grpo"})


@dataclass(kw_only=True)
class AlgorithmConfig:
    """StarPO's update phase. Formulas and sources: docs/algorithms/starpo.md."""

    advantage: str = "grpo"  # grpo: against the group; brpo: against the batch; arpo: the raw return
    std_normalize: bool = True  # divide by the spread of the same returns (grpo and brpo)
    clip_low: float = 0.2  # the ratio is clipped to [1 - clip_low, 1 + clip_high]
    clip_high: float = 0.28
    entropy_coef: float = 0.001
    kl_coef: float = 0.0  # weight of KL(policy || start policy) in the loss; 0 leaves the term out
    kl_estimator: str = "k3"
    num_minibatches: int = 2  # optimiser steps per epoch over a rollout
    num_epochs: int = 1

    def check(self) -> None:
        """Raise ConfigError for a value that is out of range or impossible beside another."""
        if self.advantage not in ADVANTAGES:
            hint = near_match(self.advantage, ADVANTAGES)
            raise ConfigError(f"algorithm.advantage={self.advantage!r}: must be one of {', '.join(ADVANTAGES)}{hint}")
        if self.kl_estimator not in KL_ESTIMATORS:
            hint = near_match(self.kl_estimator, KL_ESTIMATORS)
            raise ConfigError(f"algorithm.kl_estimator={self.kl_estimator!r}: must be one of {', '.join(KL_ESTIMATORS)}{hint}")
        if not 0 < self.clip_low <= 1:
            raise ConfigError(f"algorithm.clip_low={self.clip_low}: must lie in (0, 1]")
        if not self.clip_high > 0:
            raise ConfigError(f"algorithm.clip_high={self.clip_high}: must be greater than 0")
        for key in ("entropy_coef", "kl_coef"):
            if not getattr(self, key) >= 0:
                raise ConfigError(f"algorithm.{key}={getattr(self, key)}: must be at least 0")
        for key in ("num_minibatches", "num_epochs"):
            if getattr(self, key) < 1:
                raise ConfigError(f"algorithm.{key}={getattr(self, key)}: must be at least 1")
        if self.advantage == "arpo" and self.std_normalize:
            raise ConfigError(
                "algorithm.std_normalize=true has no effect with algorithm.advantage=arpo, which keeps the raw return; "
                "set algorithm.std_normalize=false"
            )
