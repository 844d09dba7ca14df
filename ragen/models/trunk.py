"""The layers of a Llama-like model as they are run for sampling on a CPU: no gradients, no modules, few operations.

A step that decodes one token for each of some dozen trajectories is a hundred small matrix products, and between them hundreds
of operations so small that calling them takes longer than computing them. Here each layer is four products and six compiled
operations (ragen/kernels). Weights, adapters and their copies are those of the modules, which train and stay the definition of
the model: `Policy.check_forward` compares the two before a run begins.

Axes: L flat tokens, I width of the residual stream, H query heads, K key/value heads, D head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers.activations import SiLUActivation

from ragen.kernels.cpu import FORMATS, LANES, MAX_HEAD_WIDTH, MAX_QUERIES, CpuKernels
from ragen.models.attention import KVView
from ragen.models.frozen_linear import JointLinear
from ragen.models.quick_modules import rms_norm

# What their layers compute, read in the library's source: norm, attention with rotary positions, norm, gated unit.
KNOWN = ("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model", "SmolLM3Model")

Norm = tuple[Tensor, float]
"""Scale and eps."""


@dataclass(frozen=True, kw_only=True)
class _Layer:
    before_attention: Norm
    qkv: JointLinear
    heads: tuple[Norm, Norm] | None  # of queries and of keys
    has_positions: bool
    scale: float
    window: int | None
    out: JointLinear
    before_mlp: Norm
    gate_up: JointLinear
    down: JointLinear


class Trunk:
    """From ids to final hidden states. Made by `trunk_of`."""

    def __init__(self, model: Any, layers: list[_Layer], norm: Norm, kernels: CpuKernels) -> None:
        self._embed: nn.Embedding = model.embed_tokens
        self._rotary: nn.Module = model.rotary_emb
        self._layers, self._norm, self.kernels = layers, norm, kernels
        config = model.config
        self._num_heads: int = config.num_attention_heads
        self._num_kv_heads: int = config.num_key_value_heads

    def __call__(self, ids_L: Tensor, positions_L: Tensor, view: KVView) -> Tensor:
        """Final hidden states [L, I]. Nothing may ask for gradients."""
        kernels, H, K = self.kernels, self._num_heads, self._num_kv_heads
        x_LI = self._embed(ids_L)
        cos, sin = self._rotary(x_LI[None], positions_L[None])
        positions = (cos[0].contiguous(), sin[0].contiguous())
        delta_LI: Tensor | None = None
        for index, layer in enumerate(self._layers):
            qkv_LXD = layer.qkv(kernels.add_norm(x_LI, delta_LI, *layer.before_attention)).unflatten(1, (H + 2 * K, -1))
            if layer.has_positions or layer.heads:
                kernels.rotate(
                    qkv_LXD,
                    *(H, K),
                    cos_sin_LD=positions if layer.has_positions else None,
                    scales_D=(layer.heads[0][0], layer.heads[1][0]) if layer.heads else None,
                    eps=layer.heads[0][1] if layer.heads else 0.0,
                )
            q_HLD, k_KLD, v_KLD = qkv_LXD.transpose(0, 1).split((H, K, K))
            mixed_LHD = view.attend(index, q_HLD, k_KLD, v_KLD, layer.scale, layer.window)
            delta_LI = layer.out(mixed_LHD.flatten(1))
            gate_up_LO = layer.gate_up(kernels.add_norm(x_LI, delta_LI, *layer.before_mlp))
            delta_LI = layer.down(kernels.silu_mul(gate_up_LO))
        return kernels.add_norm(x_LI, delta_LI, *self._norm)


def trunk_of(causal_lm: Any, products: Mapping[nn.Module, JointLinear], kernels: CpuKernels) -> Trunk | None:
    """The trunk of a model whose weights are frozen; None if its architecture is not known here or a width does not fit."""
    model = causal_lm.base_model
    config = model.config
    if type(model).__name__ not in KNOWN or causal_lm.device.type != "cpu" or causal_lm.dtype not in FORMATS:
        return None
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    widths_fit = width % (2 * LANES) == 0 and width <= MAX_HEAD_WIDTH
    widths_fit &= config.hidden_size % LANES == 0 and config.intermediate_size % LANES == 0
    if not widths_fit or config.num_attention_heads // config.num_key_value_heads > MAX_QUERIES:
        return None
    layers = [_layer(module, products) for module in model.layers[: config.num_hidden_layers]]
    norm = rms_norm(model.norm)
    if norm is None or model.embed_tokens.weight.requires_grad or any(layer is None for layer in layers):
        return None
    return Trunk(model, [layer for layer in layers if layer is not None], norm, kernels)


def _layer(module: Any, products: Mapping[nn.Module, JointLinear]) -> _Layer | None:
    attention, mlp = module.self_attn, module.mlp
    qkv, out = products.get(attention.q_proj), products.get(attention.o_proj)
    gate_up, down = products.get(mlp.gate_proj), products.get(mlp.down_proj)
    before_attention, before_mlp = rms_norm(module.input_layernorm), rms_norm(module.post_attention_layernorm)
    if qkv is None or out is None or gate_up is None or down is None or before_attention is None or before_mlp is None:
        return None
    if len(qkv.widths) != 3 or len(gate_up.widths) != 2 or not isinstance(mlp.act_fn, nn.SiLU | SiLUActivation):
        return None
    heads = None
    if hasattr(attention, "q_norm"):
        of_queries, of_keys = rms_norm(attention.q_norm), rms_norm(attention.k_norm)
        if of_queries is None or of_keys is None or of_queries[1] != of_keys[1]:
            return None
        heads = (of_queries, of_keys)
    return _Layer(
        before_attention=before_attention,
        qkv=qkv,
        heads=heads,
        has_positions=bool(getattr(attention, "use_rope", True)),
        scale=attention.scaling,
        window=attention.sliding_window if hasattr(attention, "sliding_window") else _window_of_all(attention),
        out=out,
        before_mlp=before_mlp,
        gate_up=gate_up,
        down=down,
    )


def _window_of_all(attention: Any) -> int | None:
    """Mistral's layers read their window from the configuration; Llama's have none."""
    return getattr(attention.config, "sliding_window", None) if type(attention).__name__ == "MistralAttention" else None
