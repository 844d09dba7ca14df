from __future__ import annotations

from typing import Any

import pytest
import torch

from ragen.algorithms.config import ADVANTAGES, KL_ESTIMATORS, AlgorithmConfig
from ragen.algorithms.losses import kl_estimate
from ragen.credit.advantages import ESTIMATORS
from ragen.errors import ConfigError


def test_the_defaults_are_possible() -> None:
    AlgorithmConfig().check()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"advantage": "grpp"}, r"algorithm\.advantage='grpp': .*grpo, brpo, arpo; did you mean 'grpo'\?"),
        ({"kl_estimator": "K1"}, r"algorithm\.kl_estimator='K1': .*; did you mean 'k1'\?"),
        ({"clip_low": 0.0}, r"algorithm\.clip_low=0\.0"),
        ({"clip_low": 1.1}, r"algorithm\.clip_low=1\.1"),
        ({"clip_high": 0.0}, r"algorithm\.clip_high=0\.0"),
        ({"clip_high": float("nan")}, r"algorithm\.clip_high=nan"),
        ({"entropy_coef": -0.1}, r"algorithm\.entropy_coef=-0\.1"),
        ({"kl_coef": float("nan")}, r"algorithm\.kl_coef=nan"),
        ({"num_minibatches": 0}, r"algorithm\.num_minibatches=0"),
        ({"num_epochs": 0}, r"algorithm\.num_epochs=0"),
        ({"advantage": "arpo"}, r"algorithm\.std_normalize=true has no effect .* set algorithm\.std_normalize=false"),
    ],
)
def test_a_setting_that_cannot_be_names_its_key(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AlgorithmConfig(**setting).check()


def test_every_name_on_offer_is_built() -> None:
    assert set(ADVANTAGES) == set(ESTIMATORS)
    for estimator in KL_ESTIMATORS:
        assert kl_estimate(torch.zeros(1), torch.zeros(1), estimator=estimator).item() == 0
