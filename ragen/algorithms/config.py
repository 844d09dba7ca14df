"""The settings of an algorithm: an advantage estimator, a loss and how the loss is averaged. Presets live in conf/algorithm/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

from ragen.algorithms.critic_config import CriticConfig
from ragen.credit.config import WITH_CRITIC, AdvantageConfig
from ragen.credit.filters import FilterConfig
from ragen.errors import ConfigError, near_match

AGGREGATIONS = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant")
KL_PLACES = ("loss", "reward")
KL_ESTIMATORS = ("k1", "k2", "k3", "unbiased")
OVERLONG_RULES = ("train", "mask", "penalty")
SHAPE_OF = {  # the loss, and the keys of algorithm.loss that shape it
    "ppo": ("clip_low", "clip_high", "dual_clip"),
    "gspo": ("clip_low", "clip_high"),
    "cispo": ("clip_low", "clip_high"),
    "sapo": ("temperature_pos", "temperature_neg"),
}
LOSSES = tuple(SHAPE_OF)
GSPO_CLIP_LIMIT = 0.1  # the mean log-ratio of a whole sequence hardly ever gets that far: such a bound would never act


@dataclass(kw_only=True)
class LossConfig:
    """The policy loss. Formulas and sources: docs/algorithms/losses.md."""

    name: str = "ppo"  # ppo, gspo (ratio of the whole sequence), cispo (clipped weight) or sapo (soft gate)
    clip_low: float = 0.2  # the ratio is clipped to [1 - clip_low, 1 + clip_high]; 1 leaves out the lower bound
    clip_high: float = 0.28
    dual_clip: float | None = None  # ppo: the ratio is also cut here where the advantage is negative; null leaves it out
    temperature_pos: float = 1.0  # sapo: how fast the gate closes, for positive and for other advantages
    temperature_neg: float = 1.05
    aggregation: str = "token_mean"  # or seq_mean_token_mean, seq_mean_token_sum, constant (divided by the longest episode)
    length_weight: bool = False  # weigh the policy term of a trajectory by mean length / own length
    task_term: bool = True  # false leaves out the policy term: entropy and KL act alone
    regularize_zero_advantage: bool = True  # whether entropy and KL also act on tokens whose advantage is 0
    tis_cap: float | None = None  # weigh a token by pi_learner / pi_engine, at most this; null is off
    tis_mask_low: float | None = None  # leave out samples whose mean ratio pi_learner / pi_engine is below; null is off
    tis_mask_high: float | None = None  # or above

    @property
    def corrects_engine(self) -> bool:
        """Whether the gap between engine and learner is corrected: then old log-probs are the learner's own."""
        return any(value is not None for value in (self.tis_cap, self.tis_mask_low, self.tis_mask_high))

    def check(self) -> None:
        """Raise ConfigError for a value that is out of range or has no effect."""
        where = "algorithm.loss"
        _check_choice(where, self, name=LOSSES, aggregation=AGGREGATIONS)
        _check_range(where, self, "in (0, 1]", lambda x: 0 < x <= 1, "clip_low")
        _check_range(where, self, "greater than 0", lambda x: x > 0, "clip_high", "temperature_pos", "temperature_neg", "tis_cap")
        _check_range(where, self, "in (0, 1)", lambda x: 0 < x < 1, "tis_mask_low")
        _check_range(where, self, "greater than 1", lambda x: x > 1, "tis_mask_high")
        floor = 1 + self.clip_high
        _check_range(where, self, f"greater than 1 + clip_high = {floor:g}", lambda x: x > floor, "dual_clip")
        default = LossConfig()
        for key in sorted({key for keys in SHAPE_OF.values() for key in keys} - set(SHAPE_OF[self.name])):
            if getattr(self, key) != getattr(default, key):
                uses = [name for name, keys in SHAPE_OF.items() if key in keys]
                raise ConfigError(
                    f"{where}.{key}={getattr(self, key)}: has no effect with {where}.name={self.name}, "
                    f"only with {', '.join(uses)}"
                )
        if self.name == "gspo" and max(self.clip_low, self.clip_high) >= GSPO_CLIP_LIMIT:
            raise ConfigError(
                f"{where}.clip_low={self.clip_low} and clip_high={self.clip_high}: must be less than {GSPO_CLIP_LIMIT} with "
                f"{where}.name=gspo, whose ratio is a mean over the whole sequence (the paper: 0.0003 and 0.0004)"
            )
        if self.length_weight and self.aggregation == "seq_mean_token_mean":
            raise ConfigError(
                f"{where}.length_weight=true with {where}.aggregation=seq_mean_token_mean: divides by the length twice; "
                "use one of them"
            )
        if not self.task_term and not self.regularize_zero_advantage:
            raise ConfigError(
                f"{where}.task_term=false with {where}.regularize_zero_advantage=false: nothing is left to train on"
            )


@dataclass(kw_only=True)
class KlConfig:
    """KL(policy || start policy): a term of the loss, or a price in the reward."""

    coef: float = 0.0  # its weight; 0 leaves it out, and the start policy is not run for it
    place: str = "loss"  # or reward: every sampled token pays before advantages are computed
    estimator: str = "k3"  # loss: k2, k3 or unbiased; reward: k1, k2 or k3
    target: float | None = None  # nats per token; the weight grows while KL is above it and shrinks below; null keeps it fixed
    adapt_rate: float = 0.1  # the weight changes by at most a fifth of this per update

    def check(self) -> None:
        """Raise ConfigError for a value that is out of range or has no effect."""
        where = "algorithm.kl"
        _check_choice(where, self, place=KL_PLACES, estimator=KL_ESTIMATORS)
        _check_range(where, self, "at least 0", lambda x: x >= 0, "coef")
        _check_range(where, self, "greater than 0", lambda x: x > 0, "target")
        _check_range(where, self, "in (0, 1]", lambda x: 0 < x <= 1, "adapt_rate")
        if self.place == "loss" and self.estimator == "k1":
            raise ConfigError(
                f"{where}.estimator=k1 with {where}.place=loss: its gradient is zero on average and holds no policy back; "
                f"use k2 (the gradient that k1 is meant to have), unbiased, or {where}.place=reward"
            )
        if self.place == "reward" and self.estimator == "unbiased":
            raise ConfigError(
                f"{where}.estimator=unbiased with {where}.place=reward: corrects a gradient, and a reward has none; use k1"
            )
        if self.target is not None and self.coef == 0:
            raise ConfigError(f"{where}.target={self.target}: has no effect with {where}.coef=0, from which no factor leads away")
        if self.target is None and self.adapt_rate != KlConfig().adapt_rate:
            raise ConfigError(f"{where}.adapt_rate={self.adapt_rate}: has no effect without {where}.target")


@dataclass(kw_only=True)
class OverlongConfig:
    """What becomes of trajectories that ran out of room: a reply cut at max_new_tokens, or the context window full."""

    rule: str = "train"  # like any other; mask: neither trained nor compared with; penalty: long replies pay
    buffer: int | None = None  # penalty: the price rises from 0 to its whole over the last so many of max_new_tokens
    price: float = 1.0  # penalty: what a reply of max_new_tokens pays

    def check(self) -> None:
        """Raise ConfigError for a value that is out of range or has no effect."""
        where = "algorithm.overlong"
        _check_choice(where, self, rule=OVERLONG_RULES)
        _check_range(where, self, "at least 1", lambda x: x >= 1, "buffer")
        _check_range(where, self, "greater than 0", lambda x: x > 0, "price")
        if self.rule == "penalty" and self.buffer is None:
            raise ConfigError(f"{where}.buffer=null: must be a number of tokens with {where}.rule=penalty")
        for key in ("buffer", "price"):
            if self.rule != "penalty" and getattr(self, key) != getattr(OverlongConfig(), key):
                raise ConfigError(f"{where}.{key}={getattr(self, key)}: has no effect without {where}.rule=penalty")


@dataclass(kw_only=True)
class AlgorithmConfig:
    """StarPO's update phase. Formulas and sources: docs/algorithms/starpo.md."""

    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)  # acts with an estimator that needs values
    filter: FilterConfig = field(default_factory=FilterConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    kl: KlConfig = field(default_factory=KlConfig)
    overlong: OverlongConfig = field(default_factory=OverlongConfig)
    entropy_coef: float = 0.001  # weight of the entropy bonus
    num_minibatches: int = 2  # optimiser steps per epoch over a rollout
    num_epochs: int = 1  # how often a rollout is used

    def check(self) -> None:
        """Raise ConfigError for a value that is out of range or impossible beside another."""
        _check_range("algorithm", self, "at least 0", lambda x: x >= 0, "entropy_coef")
        _check_range("algorithm", self, "at least 1", lambda x: x >= 1, "num_minibatches", "num_epochs")
        for section in (self.advantage, self.critic, self.filter, self.loss, self.kl, self.overlong):
            section.check()
        if not self.advantage.needs_critic:
            for f in fields(CriticConfig):
                if getattr(self.critic, f.name) != f.default:
                    raise ConfigError(
                        f"algorithm.critic.{f.name}={getattr(self.critic, f.name)}: has no effect without a critic, which only "
                        f"algorithm.advantage.estimator={', '.join(sorted(WITH_CRITIC))} use"
                    )
        in_loss = self.kl.coef > 0 and self.kl.place == "loss"
        if not self.loss.task_term and not self.entropy_coef and not in_loss:
            raise ConfigError(
                "algorithm.loss.task_term=false: needs algorithm.entropy_coef or algorithm.kl.coef in the loss, "
                "or nothing is left to train on"
            )
        if not self.loss.regularize_zero_advantage and not self.entropy_coef and not in_loss:
            raise ConfigError(
                "algorithm.loss.regularize_zero_advantage=false: has no effect without algorithm.entropy_coef or "
                "algorithm.kl.coef in the loss"
            )


def _check_choice(where: str, section: object, **choices: tuple[str, ...]) -> None:
    for key, known in choices.items():
        value = getattr(section, key)
        if value not in known:
            raise ConfigError(f"{where}.{key}={value!r}: must be one of {', '.join(known)}{near_match(value, known)}")


def _check_range(where: str, section: object, allowed: str, holds: Callable[[float], bool], *keys: str) -> None:
    """None, where a key may be null, is always in range."""
    for key in keys:
        value = getattr(section, key)
        if value is not None and not holds(value):
            raise ConfigError(f"{where}.{key}={value}: must be {allowed}")
