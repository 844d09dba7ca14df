from __future__ import annotations

import pytest

from ragen.errors import ConfigError
from ragen.models.config import ModelConfig


def test_the_defaults_are_valid() -> None:
    ModelConfig().check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": " "}, r"model\.name=''"),
        ({"dtype": "floar32"}, r"model\.dtype='floar32': must be one of auto, float32, bfloat16; did you mean 'float32'\?"),
        ({"tuning": "LoRa"}, r"model\.tuning='LoRa': must be one of lora, full; did you mean 'lora'\?"),
        ({"lora_rank": 0}, r"model\.lora_rank=0: must be at least 1"),
        ({"lora_alpha": -1}, r"model\.lora_alpha=-1: must be at least 1"),
        ({"lora_targets": ""}, r"model\.lora_targets=''"),
        ({"tuning": "full", "dtype": "bfloat16"}, r"model\.dtype='bfloat16' with model\.tuning='full'"),
    ],
)
def test_a_bad_value_is_refused_with_its_key(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**settings).check()  # type: ignore[arg-type]
