"""The settings of a server that replies in the place of an engine: where it is, how patient to be with it, what it costs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ragen.errors import ConfigError, near_match

DIALECTS = ("auto", "openai", "compatible", "vllm", "llama_cpp")
OMITTABLE = ("temperature", "top_p", "seed")
_OURS = ("model", "messages", "system", "stream", "n", "max_tokens", "max_completion_tokens", "api_key")


@dataclass(kw_only=True)
class ServerConfig:
    """How `ragen eval openai:MODEL` and `anthropic:MODEL` ask. Keys are never a setting: they come from the environment."""

    base_url: str = ""  # of an OpenAI-compatible server, such as http://localhost:8000/v1; empty: the provider's own
    dialect: str = "auto"  # of the OpenAI protocol: openai, compatible, vllm or llama_cpp; auto: compatible where base_url is set
    api_key_variable: str = ""  # the environment variable that holds the key; empty: OPENAI_API_KEY or ANTHROPIC_API_KEY
    prefill: bool = False  # send the reply's first tag as its beginning, for servers that go on from there
    omit: list[str] = field(default_factory=list)  # of temperature, top_p and seed, what the model does not take
    extra: dict[str, Any] = field(default_factory=dict)  # further fields of every request
    concurrency: int = 8  # episodes played, so requests under way, at the same time
    requests_per_minute: float = 0.0  # at most so many; 0 is no limit
    timeout_s: float = 120.0  # of one request, whatever trickles in meanwhile
    max_retries: int = 5  # of a request that failed for a reason that may pass
    max_wait_s: float = 60.0  # before a retry; a server that asks for more has failed
    price_per_million_prompt_tokens: float | None = None  # in any currency; null: unknown
    price_per_million_sampled_tokens: float | None = None  # the same for what is written
    max_cost: float | None = None  # an evaluation stops before its cost would be above this; null: no bound

    def check(self) -> None:
        """Raise ConfigError for a value out of range or without effect. No message repeats what may hold a secret."""
        self._check_address()
        if self.dialect not in DIALECTS:
            hint = near_match(self.dialect, DIALECTS)
            raise ConfigError(f"server.dialect={self.dialect!r}: must be one of {', '.join(DIALECTS)}{hint}")
        if self.dialect == "openai" and self.prefill:
            raise ConfigError(
                "server.prefill=true: OpenAI's own models do not go on from a beginning; use another server.dialect"
            )
        if self.api_key_variable and not re.fullmatch(r"[A-Z][A-Z0-9_]*", self.api_key_variable):
            raise ConfigError("server.api_key_variable: must be the name of an environment variable, such as OPENAI_API_KEY")
        for name in self.omit:
            if name not in OMITTABLE:
                hint = near_match(name, OMITTABLE)
                raise ConfigError(f"server.omit={self.omit}: {name!r} must be one of {', '.join(OMITTABLE)}{hint}")
        for name in self.extra:
            if name in _OURS:
                raise ConfigError(f"server.extra.{name}: belongs to the evaluation itself and cannot be given here")
        for key, least in (("concurrency", 1), ("max_retries", 0), ("requests_per_minute", 0)):
            if getattr(self, key) < least:
                raise ConfigError(f"server.{key}={getattr(self, key)}: must be at least {least}")
        for key in ("timeout_s", "max_wait_s"):
            if not getattr(self, key) > 0:
                raise ConfigError(f"server.{key}={getattr(self, key)}: must be above 0")
        self._check_prices()

    @property
    def speaks(self) -> str:
        """The dialect, with auto resolved."""
        if self.dialect != "auto":
            return self.dialect
        return "compatible" if self.base_url else "openai"

    @property
    def has_prices(self) -> bool:
        return self.price_per_million_prompt_tokens is not None and self.price_per_million_sampled_tokens is not None

    def cost(self, num_prompt_tokens: float, num_sampled_tokens: float) -> float | None:
        """What so many tokens cost, every prompt token at its full price; None where prices are not set."""
        prompt, sampled = self.price_per_million_prompt_tokens, self.price_per_million_sampled_tokens
        if prompt is None or sampled is None:
            return None
        return (prompt * num_prompt_tokens + sampled * num_sampled_tokens) / 1e6

    def _check_address(self) -> None:
        if not self.base_url:
            return
        parts = urlsplit(self.base_url)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError("server.base_url: must hold no user, password or parameters; a key comes from the environment")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"server.base_url={self.base_url!r}: must begin with http:// or https:// and name a host")

    def _check_prices(self) -> None:
        prompt, sampled = self.price_per_million_prompt_tokens, self.price_per_million_sampled_tokens
        for name, price, other in (("prompt", prompt, sampled), ("sampled", sampled, prompt)):
            if price is not None and price < 0:
                raise ConfigError(f"server.price_per_million_{name}_tokens={price}: must be at least 0")
            if price is not None and other is None:
                rest = "sampled" if name == "prompt" else "prompt"
                raise ConfigError(f"server.price_per_million_{name}_tokens: has no effect without the price of {rest} tokens")
        if self.max_cost is None:
            return
        if not self.max_cost > 0:
            raise ConfigError(f"server.max_cost={self.max_cost}: must be above 0, or null for no bound")
        if not self.has_prices:
            raise ConfigError(
                f"server.max_cost={self.max_cost}: has no effect without prices;"
                " set server.price_per_million_prompt_tokens and server.price_per_million_sampled_tokens"
            )
