from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from ragen.algorithms.config import SHAPE_OF, AlgorithmConfig, KlConfig, LossConfig, OverlongConfig
from ragen.algorithms.critic_config import CriticConfig
from ragen.credit.config import AdvantageConfig
from ragen.credit.filters import FilterConfig
from ragen.errors import ConfigError


def test_the_defaults_are_possible() -> None:
    AlgorithmConfig().check()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"entropy_coef": -0.1}, r"algorithm\.entropy_coef=-0\.1: must be at least 0"),
        ({"num_minibatches": 0}, r"algorithm\.num_minibatches=0: must be at least 1"),
        ({"num_epochs": 0}, r"algorithm\.num_epochs=0"),
        ({"advantage": AdvantageConfig(estimator="grppo")}, r"algorithm\.advantage\.estimator='grppo'"),
        ({"critic": CriticConfig(lr=0.5)}, r"algorithm\.critic\.lr=0\.5: has no effect without a critic"),
        ({"filter": FilterConfig(rule="top")}, r"algorithm\.filter\.rule='top'"),
        ({"loss": LossConfig(clip_low=0)}, r"algorithm\.loss\.clip_low=0"),
        ({"kl": KlConfig(coef=-1)}, r"algorithm\.kl\.coef=-1"),
        ({"overlong": OverlongConfig(rule="drop")}, r"algorithm\.overlong\.rule='drop'"),
        ({"loss": LossConfig(task_term=False), "entropy_coef": 0.0}, r"algorithm\.loss\.task_term=false: needs .*entropy_coef"),
        (
            {"loss": LossConfig(regularize_zero_advantage=False), "entropy_coef": 0.0},
            r"algorithm\.loss\.regularize_zero_advantage=false: has no effect without",
        ),
        (
            {"loss": LossConfig(task_term=False), "entropy_coef": 0.0, "kl": KlConfig(coef=1, place="reward", estimator="k1")},
            r"algorithm\.loss\.task_term=false: needs",
        ),
    ],
)
def test_a_setting_that_cannot_be_names_its_key(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AlgorithmConfig(**setting).check()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"name": "pppo"}, r"loss\.name='pppo': must be one of ppo, gspo, cispo, sapo; did you mean 'ppo'\?"),
        ({"aggregation": "token-mean"}, r"loss\.aggregation='token-mean': .*; did you mean 'token_mean'\?"),
        ({"clip_low": 0.0}, r"loss\.clip_low=0\.0: must be in \(0, 1\]"),
        ({"clip_low": 1.1}, r"loss\.clip_low=1\.1"),
        ({"clip_high": 0.0}, r"loss\.clip_high=0\.0: must be greater than 0"),
        ({"clip_high": float("nan")}, r"loss\.clip_high=nan"),
        ({"dual_clip": 1.28}, r"loss\.dual_clip=1\.28: must be greater than 1 \+ clip_high = 1\.28"),
        ({"temperature_pos": 2.0}, r"loss\.temperature_pos=2\.0: has no effect with algorithm\.loss\.name=ppo, only with sapo"),
        ({"name": "sapo", "temperature_neg": 0.0}, r"loss\.temperature_neg=0\.0"),
        ({"name": "sapo", "clip_high": 0.3}, r"loss\.clip_high=0\.3: has no effect with .*name=sapo, only with ppo, gspo, cispo"),
        ({"name": "cispo", "dual_clip": 3.0}, r"loss\.dual_clip=3\.0: has no effect with .*name=cispo, only with ppo"),
        ({"name": "gspo"}, r"clip_low=0\.2 and clip_high=0\.28: must be less than 0\.1 with algorithm\.loss\.name=gspo"),
        (
            {"length_weight": True, "aggregation": "seq_mean_token_mean"},
            r"loss\.length_weight=true .* divides by the length twice",
        ),
        ({"task_term": False, "regularize_zero_advantage": False}, r"nothing is left to train on"),
        ({"tis_cap": 0.0}, r"loss\.tis_cap=0\.0"),
        ({"tis_mask_low": 1.0}, r"loss\.tis_mask_low=1\.0: must be in \(0, 1\)"),
        ({"tis_mask_high": 1.0}, r"loss\.tis_mask_high=1\.0: must be greater than 1"),
    ],
)
def test_a_loss_that_cannot_be_is_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LossConfig(**setting).check()


@pytest.mark.parametrize(
    "setting",
    [
        {"dual_clip": 3.0},
        {"name": "gspo", "clip_low": 3e-4, "clip_high": 4e-4, "aggregation": "seq_mean_token_mean"},
        {"name": "cispo", "clip_low": 1.0, "clip_high": 4.0},
        {"name": "sapo", "temperature_neg": 1.2},
        {"tis_cap": 2.0, "tis_mask_low": 0.99, "tis_mask_high": 1.01},
        {"length_weight": True, "aggregation": "constant"},
    ],
)
def test_a_loss_that_can_be_is_taken(setting: dict[str, Any]) -> None:
    LossConfig(**setting).check()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"estimator": "K2"}, r"kl\.estimator='K2': .*; did you mean 'k2'\?"),
        ({"place": "rewards"}, r"kl\.place='rewards': .*; did you mean 'reward'\?"),
        ({"coef": float("nan")}, r"kl\.coef=nan"),
        ({"coef": 0.1, "estimator": "k1"}, r"kl\.estimator=k1 with .*place=loss: its gradient is zero on average .* use k2"),
        ({"coef": 0.1, "estimator": "unbiased", "place": "reward"}, r"kl\.estimator=unbiased with .*place=reward"),
        ({"coef": 0.1, "target": 0.0}, r"kl\.target=0\.0: must be greater than 0"),
        ({"target": 0.1}, r"kl\.target=0\.1: has no effect with algorithm\.kl\.coef=0"),
        ({"coef": 0.1, "adapt_rate": 0.5}, r"kl\.adapt_rate=0\.5: has no effect without algorithm\.kl\.target"),
        ({"coef": 0.1, "target": 0.1, "adapt_rate": 0.0}, r"kl\.adapt_rate=0\.0: must be in \(0, 1\]"),
    ],
)
def test_a_kl_term_that_cannot_be_is_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KlConfig(**setting).check()


def test_k1_is_for_the_reward() -> None:
    KlConfig(coef=0.001, estimator="k1", place="reward").check()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"rule": "penalty"}, r"overlong\.buffer=null: must be a number of tokens with algorithm\.overlong\.rule=penalty"),
        ({"rule": "penalty", "buffer": 0}, r"overlong\.buffer=0: must be at least 1"),
        ({"rule": "mask", "buffer": 10}, r"overlong\.buffer=10: has no effect without algorithm\.overlong\.rule=penalty"),
        ({"price": 2.0}, r"overlong\.price=2\.0: has no effect"),
        ({"rule": "penalty", "buffer": 10, "price": 0.0}, r"overlong\.price=0\.0"),
    ],
)
def test_an_overlong_rule_that_cannot_be_is_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OverlongConfig(**setting).check()


def test_the_keys_that_shape_a_loss_exist() -> None:
    assert {key for keys in SHAPE_OF.values() for key in keys} <= {field.name for field in fields(LossConfig)}
