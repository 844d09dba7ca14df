"""How many floating-point operations a piece of work needs, counted from the weights and the tokens, not from what is executed.

Two operations per weight and token: a multiplication and an addition. Only what the mathematics asks for is counted: a prompt
once per group, the output layer at trained positions alone, no gradient of frozen weights, nothing that is computed twice. Norms,
activations, rotations and the softmax are left out; they are below one percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ragen.models.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a count needs to know of a model."""

    matrices: tuple[tuple[int, int], ...]  # (inputs, outputs) of every linear layer but the output layer
    lora_weights: int  # of all adapters together
    output_weights: int  # width x vocabulary
    num_layers: int
    attention_width: int  # query heads x head width
    bytes_per_weight: int
    trains_all: bool = False  # full fine-tuning

    @property
    def matrix_weights(self) -> int:
        return sum(inputs * outputs for inputs, outputs in self.matrices)


@dataclass(frozen=True, kw_only=True)
class PackedGroup:
    """What an update feeds to the model for one prompt: the prompt once, behind it the continuations, and where it trains."""

    prompt: int
    continuations: tuple[int, ...]
    num_trained: int

    @property
    def num_fed(self) -> int:
        return self.prompt + sum(self.continuations)

    @property
    def num_pairs(self) -> int:
        """(query, key) pairs that attention looks at: each token sees all before it, and itself."""
        own = sum(n * (n + 1) // 2 for n in self.continuations)
        return self.prompt * (self.prompt + 1) // 2 + self.prompt * sum(self.continuations) + own


def shape_of(policy: Policy) -> Shape:
    """Read from the modules; embeddings cost nothing, biases next to nothing."""
    config = policy.config.get_text_config()
    head_width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    linear = {
        name: module for name, module in policy.module.named_modules() if isinstance(module, nn.Linear) and ".lora_" not in name
    }
    inner = [module for name, module in linear.items() if not name.removesuffix(".base_layer").endswith("lm_head")]
    adapters = [p for name, p in policy.module.named_parameters() if ".lora_" in name]
    return Shape(
        matrices=tuple((module.in_features, module.out_features) for module in inner),
        lora_weights=sum(p.numel() for p in adapters),
        output_weights=config.hidden_size * config.vocab_size,
        num_layers=config.num_hidden_layers,
        attention_width=config.num_attention_heads * head_width,
        bytes_per_weight=policy.dtype.itemsize,
        trains_all=not policy.uses_adapters,
    )


def update_flops(shape: Shape, groups: Sequence[PackedGroup]) -> dict[str, int]:
    """By part, and their sum as `total`, for one optimiser step on `groups`.

    Forward 2, backward through activations 2, gradient of the weights 2 more where they are trained. Attention: scores and
    weighted values are two products forward, four backward.
    """
    tokens = sum(group.num_fed for group in groups)
    trained = sum(group.num_trained for group in groups)
    pairs = sum(group.num_pairs for group in groups)
    per_weight = 6 if shape.trains_all else 4
    parts = {
        "matrices": per_weight * shape.matrix_weights * tokens,
        "lora": 6 * shape.lora_weights * tokens,
        "output_layer": per_weight * shape.output_weights * trained,
        "attention": 12 * shape.num_layers * shape.attention_width * pairs,
    }
    return parts | {"total": sum(parts.values())}


def decode_flops(shape: Shape, *, rows: int, context: float) -> float:
    """Of one decode step: one token each for `rows` sequences that look back on `context` tokens on average."""
    weights = shape.matrix_weights + shape.lora_weights + shape.output_weights
    return rows * (2 * weights + 4 * shape.num_layers * shape.attention_width * context)


def decode_bytes(shape: Shape) -> int:
    """Of weights that one decode step reads, however many sequences share it."""
    return shape.bytes_per_weight * (shape.matrix_weights + shape.output_weights)
