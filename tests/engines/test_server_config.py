"""What a person may set about a server."""

from __future__ import annotations

from typing import Any

import pytest

from ragen.engines.server_config import ServerConfig
from ragen.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"base_url": "localhost:8000"}, r"server\.base_url='localhost:8000': must begin with http"),
        ({"dialect": "opanai"}, r"server\.dialect='opanai': must be one of .*; did you mean 'openai'\?"),
        ({"omit": ["seeds"]}, r"server\.omit=\['seeds'\]: 'seeds' must be one of temperature, top_p, seed; did you mean 'seed'"),
        ({"extra": {"model": "x"}}, r"server\.extra\.model: belongs to the evaluation itself"),
        ({"concurrency": 0}, r"server\.concurrency=0: must be at least 1"),
        ({"max_retries": -1}, r"server\.max_retries=-1: must be at least 0"),
        ({"timeout_s": 0.0}, r"server\.timeout_s=0\.0: must be above 0"),
        ({"dialect": "openai", "prefill": True}, r"server\.prefill=true: OpenAI's own models do not go on"),
        ({"price_per_million_prompt_tokens": 1.0}, r"prompt_tokens: has no effect without the price of sampled tokens"),
        (
            {"price_per_million_prompt_tokens": 1.0, "price_per_million_sampled_tokens": -1.0},
            r"sampled_tokens=-1\.0: must be at least 0",
        ),
        ({"max_cost": 5.0}, r"server\.max_cost=5\.0: has no effect without prices"),
        (
            {"price_per_million_prompt_tokens": 1.0, "price_per_million_sampled_tokens": 1.0, "max_cost": 0.0},
            r"server\.max_cost=0\.0: must be above 0",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        ServerConfig(**settings).check()


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "https://me:canary-5e1f@host/v1"},
        {"base_url": "https://host/v1?key=canary-5e1f"},
        {"api_key_variable": "canary-5e1f"},
    ],
)
def test_what_looks_like_a_secret_is_refused_without_repeating_it(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(**settings).check()
    assert "canary" not in str(caught.value)


def test_a_server_of_one_s_own_speaks_the_compatible_dialect_unless_told() -> None:
    assert ServerConfig().speaks == "openai"
    assert ServerConfig(base_url="http://localhost:1/v1").speaks == "compatible"
    assert ServerConfig(base_url="http://localhost:1/v1", dialect="vllm").speaks == "vllm"


def test_a_cost_is_each_kind_of_token_at_its_price() -> None:
    """2 million prompt tokens at 0.5 and half a million sampled ones at 3: 1 + 1.5."""
    priced = ServerConfig(price_per_million_prompt_tokens=0.5, price_per_million_sampled_tokens=3.0)
    priced.check()
    assert priced.cost(2_000_000, 500_000) == 2.5
    assert ServerConfig().cost(1, 1) is None
