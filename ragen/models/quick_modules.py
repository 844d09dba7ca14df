"""Quicker forwards for the modules of a loaded model: same parameters, same results up to rounding, fewer passes over memory.

Whatever the architecture, its own code calls its own modules; what is replaced is only what these modules compute:

- frozen linear layers with their adapters (frozen_linear.py); query, key and value are one product, and gate and up are one,
- the gated unit silu(gate) * up,
- RMS normalisation with a frozen weight, if a trial on random numbers gives what the module itself gives.

Nothing is replaced where weights are trained in full. `Policy.check_forward` compares the whole with the model's own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import SiLUActivation

from ragen.kernels.cpu import CpuKernels
from ragen.models.frozen_linear import JointLinear, is_frozen_linear


def quicken(model: nn.Module, kernels: CpuKernels | None = None) -> dict[nn.Module, JointLinear]:
    """Replace the forward of every module under `model` that has a quicker one.

    Returns the products that were put in the place of linear layers, each under the first layer that it computes.
    """
    products: dict[nn.Module, JointLinear] = {}
    joined: set[nn.Module] = set()
    for module in model.modules():
        for layers in _siblings(module):
            product = products[layers[0]] = JointLinear(layers, kernels)
            shared = _SharedInput(product)
            for at, layer in enumerate(layers):
                layer.forward = shared.member(at)
            joined.update(layers)
        if _is_gated(module):
            module.forward = _gated_forward(module)
        elif (norm := _quick_norm(module)) is not None:
            module.forward = norm
    inner = {layer.base_layer for layer in model.modules() if is_frozen_linear(layer) and hasattr(layer, "base_layer")}
    for layer in model.modules():
        if is_frozen_linear(layer) and layer not in joined and layer not in inner:
            layer.forward = products[layer] = JointLinear([layer], kernels)
    return products


class _SharedInput:
    """Layers that are called one after another with the same input: the first call computes for all.

    A member is answered from what has been computed only if it is asked about the very tensor, unchanged; each answer is given
    once. So nothing depends on the order of the calls, and a layer that is called alone is right too.
    """

    def __init__(self, product: JointLinear) -> None:
        self._joint = product
        self._input: tuple[Tensor, int, bool] | None = None
        self._waiting: dict[int, Tensor] = {}

    def member(self, at: int) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            asked = (x, x._version, torch.is_grad_enabled())
            if at not in self._waiting or self._input is None or asked[0] is not self._input[0] or asked[1:] != self._input[1:]:
                self._waiting = dict(enumerate(self._joint(x).split(self._joint.widths, -1)))
                self._input = asked
            out = self._waiting.pop(at)
            if not self._waiting:
                self._input = None
            return out

        return forward


def _siblings(module: Any) -> Iterator[list[nn.Module]]:
    """The groups of layers of an attention or feed-forward module that read the same input."""
    for names in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        layers = [getattr(module, name, None) for name in names]
        if all(isinstance(layer, nn.Module) and is_frozen_linear(layer) for layer in layers):
            yield layers  # type: ignore[misc]


def _is_gated(module: Any) -> bool:
    parts = ("gate_proj", "up_proj", "down_proj")
    return all(isinstance(getattr(module, name, None), nn.Module) for name in parts) and (
        isinstance(getattr(module, "act_fn", None), nn.SiLU | SiLUActivation) and is_frozen_linear(module.gate_proj)
    )


def _gated_forward(module: Any) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        gate, up = module.gate_proj(x), module.up_proj(x)
        gated = _Gated.apply(gate, up) if torch.is_grad_enabled() else F.silu(gate).mul_(up)  # type: ignore[no-untyped-call]
        out: Tensor = module.down_proj(gated)
        return out

    return forward


class _Gated(torch.autograd.Function):
    """silu(gate) * up"""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return torch.ops.aten.silu_backward(grad * up, gate), F.silu(gate).mul_(grad)


def _quick_norm(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    found = rms_norm(module)
    return None if found is None else _norm_forward(*found)


def rms_norm(module: nn.Module) -> tuple[Tensor, float] | None:
    """Scale and eps, if this is RMS normalisation with a frozen weight: what a trial on fixed numbers shows."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(weight, nn.Parameter) or not isinstance(eps, float):
        return None
    if weight.requires_grad or weight.ndim != 1:
        return None
    trial = torch.linspace(-3, 5, 4 * len(weight), device=weight.device).sin().view(4, -1).to(weight.dtype)
    with torch.no_grad():
        expected = module(trial)
        for scale in (weight.detach(), 1 + weight.detach()):  # Gemma's modules keep the weight less 1
            ours = F.rms_norm(trial, scale.shape, scale, eps)
            if torch.allclose(ours, expected, rtol=0.02 if weight.dtype == torch.bfloat16 else 1e-5):
                return scale, eps
    return None


def _norm_forward(scale: Tensor, eps: float) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return F.rms_norm(x, scale.shape, scale, eps)
        out: Tensor = _Norm.apply(x, scale, eps)  # type: ignore[no-untyped-call]
        return out

    return forward


class _Norm(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * scale over the last axis, in float32 inside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale_D: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, scale_D)
        ctx.eps = eps
        return F.rms_norm(x, scale_D.shape, scale_D, eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, scale_D = ctx.saved_tensors
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32).square_()
        inverse = square.div_(x.shape[-1]).add_(ctx.eps).rsqrt_()
        normed = x * inverse
        scaled = (grad * scale_D).float()
        shared = torch.linalg.vecdot(scaled, normed).unsqueeze(-1).div_(x.shape[-1])
        return scaled.sub_(normed.mul_(shared)).mul_(inverse).to(x.dtype), None, None
