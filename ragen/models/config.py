"""Which model is trained, in which number format, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ragen.errors import ConfigError, near_match

DTYPES = ("auto", "float32", "bfloat16")
TUNINGS = ("lora", "full")
KERNELS = ("auto", "torch")


@dataclass(kw_only=True)
class ModelConfig:
    name: str = "smollm2-135m"  # an alias, a local folder in Hugging Face layout, or a hub id
    dtype: str = "auto"  # of the weights: auto, float32, bfloat16; adapters are float32 always
    tuning: str = "lora"  # lora: low-rank adapters beside frozen weights; full: every weight
    lora_rank: int = 16
    lora_alpha: int = 32  # adapters are scaled by lora_alpha / lora_rank
    lora_targets: str = "all-linear"  # or a regular expression that matches whole module names
    kernels: str = "auto"  # for sampling on a CPU: auto (operations compiled where there is GCC) or torch
    thinking: bool | None = None  # the think switch of the chat template; null: as the template has it
    template_options: dict[str, Any] = field(default_factory=dict)  # other variables of it (docs/chat_templates.md)

    def check(self) -> None:
        """Raise ConfigError for the first value that is out of range or impossible beside another."""
        if not self.name.strip():
            raise ConfigError("model.name='': must be an alias, a folder or a hub id")
        _check_choice("model.dtype", self.dtype, DTYPES)
        _check_choice("model.tuning", self.tuning, TUNINGS)
        _check_choice("model.kernels", self.kernels, KERNELS)
        for key in ("lora_rank", "lora_alpha"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key}={getattr(self, key)}: must be at least 1")
        if not self.lora_targets.strip():
            raise ConfigError("model.lora_targets='': must be 'all-linear' or a regular expression for module names")
        if self.tuning == "full" and self.dtype == "bfloat16":
            raise ConfigError(
                "model.dtype='bfloat16' with model.tuning='full': rounds small updates away; use float32 or model.tuning=lora"
            )


def _check_choice(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{key}={value!r}: must be one of {', '.join(allowed)}{near_match(value, allowed)}")
