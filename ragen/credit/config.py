"""The settings of an advantage estimator. Formulas and sources: docs/algorithms/advantages.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from ragen.credit.normalize import METHODS
from ragen.credit.plugin import import_function
from ragen.credit.view import ACTION, TOKEN, TURN
from ragen.errors import ConfigError, near_match

BATCH, TAG, END = "batch", "tag", "end"
UNITS = (TOKEN, ACTION, TURN)

_DISCOUNT = frozenset({"gamma", "discount_per", "rewards_at"})
_WHITEN = frozenset({"whiten", "grouping"})

# Estimator -> the settings that it reads beside its name. Any other one that is set is refused: it would have no effect.
READS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "gae": _DISCOUNT | _WHITEN | {"lam"},
        "turn_gae": _DISCOUNT | _WHITEN | {"lam"},
        "bi_level_gae": _WHITEN | {"rewards_at", "gamma", "lam", "gamma_turn", "lam_turn"},
        "grpo": frozenset({"method"}),
        "brpo": frozenset({"method", "grouping"}),
        "arpo": frozenset(),
        "rloo": frozenset(),
        "reinforce_pp": _DISCOUNT | _WHITEN,
        "reinforce_pp_baseline": _WHITEN,
        "return_batch_norm": _DISCOUNT | {"method", "grouping"},
        "turn_rloo": _DISCOUNT,
        "gigpo": _DISCOUNT | {"method", "anchor_weight"},
    }
)
WITH_CRITIC = frozenset({"gae", "turn_gae", "bi_level_gae"})
WITH_GROUP = frozenset({"grpo", "rloo", "reinforce_pp_baseline", "turn_rloo", "gigpo"})  # lone members learn nothing from these


@dataclass(kw_only=True)
class AdvantageConfig:
    """Which estimator, and what it needs to know. `READS` says which settings act with which estimator."""

    estimator: str = "grpo"  # a name of READS, or "module:function" of one's own
    method: str = "mean_std"  # how returns are compared: mean, mean_std, asym_clip
    grouping: str = BATCH  # what statistics beyond a group are taken over: the batch, or each environment tag by itself
    whiten: bool = True  # bring the advantages of all trained tokens to mean 0 and std 1
    rewards_at: str = TURN  # turn: where they were earned; end: all of them behind the last turn
    gamma: float = 1.0  # what a reward is worth one tick later
    lam: float = 1.0  # lambda of GAE: how much a later surprise counts, one tick later
    discount_per: str = ""  # what a tick is: token, action or turn; must be said where gamma or lam is below 1
    gamma_turn: float = 0.95  # bi_level_gae: gamma from turn to turn; gamma and lam hold from token to token inside a turn
    lam_turn: float = 1.0  # bi_level_gae: lambda from turn to turn
    anchor_weight: float = 1.0  # gigpo: weight of the comparison between turns that began in the same state

    @property
    def is_plugin(self) -> bool:
        return ":" in self.estimator

    @property
    def needs_critic(self) -> bool:
        """True if values must be there. A plug-in says so by an attribute `needs_critic = True` of the function."""
        if self.is_plugin:
            return bool(getattr(import_function(self.estimator, self._where), "needs_critic", False))
        return self.estimator in WITH_CRITIC

    @property
    def compares_members(self) -> bool:
        """True if a group of a single member teaches nothing."""
        return self.estimator in WITH_GROUP

    @property
    def reads(self) -> frozenset[str]:
        """The settings that act with this estimator."""
        everything = frozenset(field.name for field in fields(self)) - {"estimator"}
        return everything if self.is_plugin else READS[self.estimator]

    @property
    def _where(self) -> str:
        return f"algorithm.advantage.estimator={self.estimator!r}"

    def check(self) -> None:
        """Raise ConfigError for a value that is out of range, or that has no effect with this estimator."""
        if self.is_plugin:
            import_function(self.estimator, self._where)
        elif self.estimator not in READS:
            known = ", ".join(READS)
            hint = near_match(self.estimator, READS)
            raise ConfigError(f"{self._where}: must be one of {known}, or 'module:function' of your own{hint}")
        _one_of("method", self.method, METHODS)
        _one_of("grouping", self.grouping, (BATCH, TAG))
        _one_of("rewards_at", self.rewards_at, (TURN, END))
        _one_of("discount_per", self.discount_per, ("", *UNITS))
        for key in ("gamma", "lam", "gamma_turn", "lam_turn"):
            if not 0 <= getattr(self, key) <= 1:
                raise ConfigError(f"algorithm.advantage.{key}={getattr(self, key)}: must lie in [0, 1]")
        if not 0 <= self.anchor_weight < float("inf"):
            raise ConfigError(f"algorithm.advantage.anchor_weight={self.anchor_weight}: must be at least 0")
        self._check_effect()

    def _check_effect(self) -> None:
        """Every setting acts, or is left alone."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "estimator" and value != field.default and field.name not in self.reads:
                acting = ", ".join(sorted(self.reads)) or "none"
                raise ConfigError(
                    f"algorithm.advantage.{field.name}={value}: has no effect with estimator={self.estimator} (settings that "
                    f"have: {acting})"
                )
        if self.is_plugin:
            return
        if self.method == "identity":
            raise ConfigError("algorithm.advantage.method=identity: keeps the raw return, which is estimator=arpo")
        if not self.whiten and self.grouping != BATCH:
            raise ConfigError(f"algorithm.advantage.grouping={self.grouping}: has no effect with whiten=false")
        if "discount_per" in self.reads:
            self._check_clock()

    def _check_clock(self) -> None:
        fading = [key for key in ("gamma", "lam") if getattr(self, key) < 1]
        if fading and not self.discount_per:
            key = fading[0]
            raise ConfigError(
                f"algorithm.advantage.{key}={getattr(self, key)}: say per what, by algorithm.advantage.discount_per: must be one "
                f"of {', '.join(UNITS)}"
            )
        if self.discount_per and not fading:
            raise ConfigError(
                f"algorithm.advantage.discount_per={self.discount_per}: has no effect while gamma and lam are 1 (nothing fades)"
            )


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        names = ", ".join(name for name in allowed if name)
        raise ConfigError(f"algorithm.advantage.{key}={value!r}: must be one of {names}{near_match(value, allowed)}")
