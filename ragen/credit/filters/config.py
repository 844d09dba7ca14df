"""The settings of the filter: by what groups are judged, which are kept, and what is done about the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ragen.credit.filters.scores import NEVER_NEGATIVE, SCORES, SPREADS
from ragen.errors import ConfigError, near_match

RULES = ("all", "top_frac", "top_k", "top_p", "top_p_softmax", "min_p")
MASS_RULES = ("top_p", "min_p")  # add scores up or compare their ratios, so these must not be negative
PREFERENCES = ("largest", "smallest")
WEIGHTINGS = ("none", "max", "mean")
LOSS_SCALES = ("none", "linear", "sqrt")
KEY = "algorithm.filter"


@dataclass(kw_only=True)
class FilterConfig:
    """Which groups are trained on. By default all, each with weight 1. Formulas and sources: docs/algorithms/filters.md."""

    rule: str = "all"  # all, top_frac, top_k, top_p, top_p_softmax or min_p: which groups are kept, by their score
    value: float | None = None  # of the rule: a fraction, or a number of groups for top_k; null for all
    score: str = "std"  # std, variance, range, mean or sum of the returns; entropy, entropy_std, length or balance
    prefer: str = "largest"  # which scores are kept: largest or smallest
    slack: float = 0.0  # of top_p: taken off its threshold, in units of the score; published RAGEN has 0.01
    drop_zero_spread: bool = False  # drop groups whose members all have the same return, whatever the rule
    engage_ratio: float = 0.0  # apply the rule only if std / mean of the groups' variances is at least this; 0: always
    weighting: str = "none"  # weight of a kept group: 1, or its score over the largest (max) or the mean score
    loss_scale: str = "none"  # advantages times the kept fraction of the step's groups (linear), its root (sqrt), or 1
    refill_frac: float = 0.0  # groups a step may play beyond its own to fill what was dropped, as a fraction of them
    refill_rounds: int = 4  # times that a step may play more groups

    @property
    def may_drop(self) -> bool:
        """Whether a group with a scored trajectory may be left out."""
        return self.rule != "all" or self.drop_zero_spread

    @property
    def is_off(self) -> bool:
        """True if every group is trained on as it is."""
        return not self.may_drop and self.weighting == "none"

    def num_wanted(self, num_groups: int) -> int:
        """How many groups a step of `num_groups` is to be trained on; refill stops there."""
        match self.rule:
            case "top_frac":
                assert self.value is not None
                return max(1, floor_share(self.value, num_groups))
            case "top_k":
                assert self.value is not None
                return int(self.value)
        return num_groups

    def num_extra(self, num_groups: int) -> int:
        """How many groups a step of `num_groups` may play beyond them."""
        return floor_share(self.refill_frac, num_groups)

    def check(self) -> None:
        """Raise ConfigError for a value out of range or without effect beside the others."""
        self._check_names()
        self._check_value()
        for key in ("slack", "engage_ratio", "refill_frac"):
            if not getattr(self, key) >= 0:
                raise ConfigError(f"{KEY}.{key}={getattr(self, key)}: must be at least 0")
        if self.refill_rounds < 1:
            raise ConfigError(f"{KEY}.refill_rounds={self.refill_rounds}: must be at least 1")
        self._check_scores()
        self._check_effect()

    def check_groups(self, num_groups: int, group_size: int) -> None:
        """Raise ConfigError for what cannot act in a step of `num_groups` groups of `group_size` members."""
        if self.rule == "top_k" and self.value is not None and self.value > num_groups:
            raise ConfigError(f"{KEY}.value={self.value:g}: must be at most {num_groups}, the number of groups in a step")
        if self.refill_frac > 0 and self.num_extra(num_groups) < 1:
            raise ConfigError(
                f"{KEY}.refill_frac={self.refill_frac}: is less than one group of {num_groups}; must be at least 1/{num_groups}"
            )
        reads_spread = self.drop_zero_spread or self.engage_ratio > 0 or (not self.is_off and self.score in SPREADS)
        if reads_spread and group_size < 2:
            raise ConfigError(
                f"rollout.group_size={group_size}: must be at least 2 with a filter by spread ({KEY}.*): one member has none"
            )

    def _check_names(self) -> None:
        allowed = {
            "rule": RULES,
            "score": tuple(SCORES),
            "prefer": PREFERENCES,
            "weighting": WEIGHTINGS,
            "loss_scale": LOSS_SCALES,
        }
        for key, names in allowed.items():
            value = getattr(self, key)
            if value not in names:
                raise ConfigError(f"{KEY}.{key}={value!r}: must be one of {', '.join(names)}{near_match(value, names)}")

    def _check_value(self) -> None:
        value = self.value
        if self.rule == "all":
            if value is not None:
                raise ConfigError(f"{KEY}.value={value:g}: has no effect with {KEY}.rule=all; set a rule, or leave it out")
        elif value is None:
            raise ConfigError(f"{KEY}.value=null: {KEY}.rule={self.rule} needs a number")
        elif self.rule == "top_k":
            if value < 1 or value != int(value):
                raise ConfigError(f"{KEY}.value={value:g}: must be a whole number of at least 1 with {KEY}.rule=top_k")
        elif self.rule == "min_p":
            if not 0 < value <= 1:
                raise ConfigError(f"{KEY}.value={value:g}: must lie in (0, 1] with {KEY}.rule=min_p")
        elif not 0 < value < 1:
            raise ConfigError(
                f"{KEY}.value={value:g}: must lie in (0, 1) with {KEY}.rule={self.rule}; rule=all keeps every group"
            )

    def _check_scores(self) -> None:
        if self.score not in NEVER_NEGATIVE:
            if self.rule in MASS_RULES:
                raise ConfigError(
                    f"{KEY}.score={self.score}: may be negative, and {KEY}.rule={self.rule} compares ratios; "
                    "use top_frac, top_k or top_p_softmax"
                )
            if self.weighting != "none":
                raise ConfigError(f"{KEY}.score={self.score}: may be negative, which {KEY}.weighting={self.weighting} cannot use")
        if self.weighting != "none" and self.prefer == "smallest":
            raise ConfigError(f"{KEY}.weighting={self.weighting}: weighs by large scores; impossible with {KEY}.prefer=smallest")

    def _check_effect(self) -> None:
        """No setting without effect."""
        default = FilterConfig()
        acts = {
            "score": (self.rule != "all" or self.weighting != "none", "a rule or a weighting"),
            "prefer": (self.rule != "all", "a rule"),
            "slack": (self.rule == "top_p", "rule=top_p"),
            "engage_ratio": (self.rule != "all", "a rule"),
            "loss_scale": (self.may_drop, "a rule or drop_zero_spread=true"),
            "refill_frac": (
                self.drop_zero_spread or self.rule in ("top_p", "top_p_softmax", "min_p"),
                "drop_zero_spread=true or a rule whose number of kept groups depends on the scores",
            ),
            "refill_rounds": (self.refill_frac > 0, "refill_frac above 0"),
        }
        for key, (has_effect, needs) in acts.items():
            value = getattr(self, key)
            if value != getattr(default, key) and not has_effect:
                raise ConfigError(f"{KEY}.{key}={value}: has no effect without {needs}; leave it out or set that as well")


def floor_share(frac: float, total: int) -> int:
    """frac of total, rounded down; 0.29 of 100 is 29, though 0.29 * 100 is a little less."""
    return math.floor(frac * total + 1e-9)
