from __future__ import annotations

from typing import Any

import pytest

from ragen.algorithms.critic_config import CriticConfig
from ragen.errors import ConfigError
from ragen.models.config import ModelConfig


def test_the_defaults_are_allowed_over_a_model_with_adapters() -> None:
    config = CriticConfig()
    config.check()
    config.check_beside(ModelConfig())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"kind": "adaptor"},
            r"^algorithm\.critic\.kind='adaptor': must be one of auto, adapter, trunk, model; did you mean 'adapter'\?$",
        ),
        ({"model": "tiny"}, r"^algorithm\.critic\.model='tiny' has no effect unless algorithm\.critic\.kind=model$"),
        ({"kind": "trunk", "lora_rank": 4}, r"^algorithm\.critic\.lora_rank=4 has no effect with algorithm\.critic\.kind=trunk"),
        ({"lr": 0.0}, r"^algorithm\.critic\.lr=0\.0: must be greater than 0 and finite$"),
        ({"lr": float("nan")}, r"^algorithm\.critic\.lr=nan: "),
        ({"grad_clip": float("inf")}, r"^algorithm\.critic\.grad_clip=inf: "),
        ({"lora_rank": -1}, r"^algorithm\.critic\.lora_rank=-1: must be at least 0 and finite$"),
        ({"init_std": -0.1}, r"^algorithm\.critic\.init_std=-0\.1: "),
        ({"warmup_steps": -1}, r"^algorithm\.critic\.warmup_steps=-1: "),
        ({"clip": float("nan")}, r"^algorithm\.critic\.clip=nan: "),
        ({"huber_delta": -1.0}, r"^algorithm\.critic\.huber_delta=-1\.0: "),
        ({"num_minibatches": 0}, r"^algorithm\.critic\.num_minibatches=0: must be at least 1$"),
        ({"num_epochs": 0}, r"^algorithm\.critic\.num_epochs=0: must be at least 1$"),
    ],
)
def test_what_cannot_be_or_has_no_effect_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CriticConfig(**fields).check()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"kind": "adapter"},
            r"^algorithm\.critic\.kind=adapter with model\.tuning=full: .*use algorithm\.critic\.kind=model or trunk",
        ),
        ({"kind": "model", "lora_rank": 4}, r"^algorithm\.critic\.lora_rank=4 has no effect with model\.tuning=full"),
    ],
)
def test_full_fine_tuning_has_no_base_to_share(fields: dict[str, Any], message: str) -> None:
    config = CriticConfig(**fields)
    config.check()
    with pytest.raises(ConfigError, match=message):
        config.check_beside(ModelConfig(tuning="full"))


@pytest.mark.parametrize("kind", ["trunk", "model"])
def test_the_other_kinds_work_in_full_fine_tuning(kind: str) -> None:
    CriticConfig(kind=kind).check_beside(ModelConfig(tuning="full"))


def test_the_critic_learns_alone_in_its_warm_up() -> None:
    assert [CriticConfig(warmup_steps=2).trains_alone(step) for step in range(4)] == [True, True, False, False]
    assert not CriticConfig().trains_alone(0)
