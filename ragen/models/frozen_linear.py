"""Frozen linear layers with trained adapters beside them, as one operation of their own.

What peft computes module by module - base product, cast, two thin products, scale, add - is here one forward and one backward
that read and write each number once; layers that read the same input (query, key and value; gate and up) are one product. Frozen
weights get no gradient. On a CPU that multiplies bfloat16 natively they are kept a second time in the layout that oneDNN
multiplies fastest (about twice as fast for 16 rows, 1.6 times for 64, 1.2 times for 800), and a third time, transposed, once a
gradient flows through.

The layers stay peft's modules with peft's parameters; only the computation is replaced.

Axes: L rows (tokens), I width in, O width out (of all layers together), r rank of all adapters together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn

from ragen.kernels.cpu import FORMATS, LANES, CpuKernels
from ragen.models.processor import pack, packed_product, processor

FEW_ROWS = 256  # so many meet an adapter in the compiled operation; more are quicker in products of their own


class FrozenWeight:
    """x W^T + b for weights [O, I] that are not trained, one below the other, and g W, its gradient with respect to x.

    The copies in another layout are made when they are first needed, and again if somebody has written into a weight.
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
        assert not any(weight.requires_grad for weight in weights), "a weight that is trained changes under its copies"
        self._weights = [weight.detach() for weight in weights]
        self._biases = biases
        self._made_of: list[tuple[int, int]] = []
        self._packs = packs_weights(weights[0])
        self._forward: Tensor | None = None
        self._backward: Tensor | None = None
        self._bias_O: Tensor | None = None

    def __call__(self, x_LI: Tensor) -> Tensor:
        """[L, I] -> [L, O]"""
        self._forget_if_changed()
        if self._forward is None:
            joined_OI = self._joined()
            self._forward = pack(joined_OI) if self._packs else joined_OI
            self._bias_O = self._joined_bias()
        if self._packs:
            return packed_product(x_LI, self._forward, self._bias_O)
        return F.linear(x_LI, self._forward, self._bias_O)

    def gradient(self, grad_LO: Tensor) -> Tensor:
        """[L, O] -> [L, I]"""
        if not self._packs:
            assert self._forward is not None, "a gradient comes after its forward pass"
            return grad_LO @ self._forward
        if self._backward is None:
            self._backward = pack(self._joined().t().contiguous())
        return packed_product(grad_LO, self._backward, None)

    def _joined(self) -> Tensor:
        return self._weights[0] if len(self._weights) == 1 else torch.cat(self._weights)

    def _joined_bias(self) -> Tensor | None:
        if all(bias is None for bias in self._biases):
            return None
        pairs = zip(self._weights, self._biases, strict=True)
        return torch.cat([w.new_zeros(len(w)) if bias is None else bias.detach() for w, bias in pairs])

    def _forget_if_changed(self) -> None:
        """`_version` counts what torch has written into a tensor."""
        parts = (*self._weights, *(bias for bias in self._biases if bias is not None))
        made_of = [(part.data_ptr(), part._version) for part in parts]
        if made_of != self._made_of:
            self._made_of, self._forward, self._backward = made_of, None, None


class JointLinear:
    """Linear layers that read the same input, as one: [..., I] -> [..., O], their outputs side by side.

    Each is a frozen nn.Linear or peft's LoRA layer over one. Which adapter is on is looked up in every call, as peft does.
    """

    def __init__(self, layers: Sequence[nn.Module], kernels: CpuKernels | None = None) -> None:
        assert layers and all(is_frozen_linear(layer) for layer in layers), layers
        self._layers: list[Any] = list(layers)
        self._kernels = kernels
        bases = [_base(layer) for layer in layers]
        self._base = FrozenWeight([base.weight for base in bases], [base.bias for base in bases])
        self.widths = [base.out_features for base in bases]
        self._thin: dict[str, _ThinCopies] = {}

    def __call__(self, x: Tensor) -> Tensor:
        x_LI = x.flatten(0, -2)
        adapted = [(at, layer) for at, layer in enumerate(self._layers) if _adapter_of(layer) is not None]
        if not adapted:
            out_LO: Tensor = _Frozen.apply(x_LI, self._base) if torch.is_grad_enabled() else self._base(x_LI)  # type: ignore[no-untyped-call]
        else:
            name = _adapter_of(adapted[0][1])
            assert name is not None
            thin = self._thin.get(name)
            if thin is None:
                thin = self._thin[name] = _ThinCopies(adapted, name, self.widths, self._kernels)
            out_LO = thin.apply(x_LI, self._base)
        out: Tensor = out_LO.unflatten(0, x.shape[:-1])
        return out


class _ThinCopies:
    """The thin matrices of one adapter in the number format of the base: A [r, I], and (scale B)^T [r, O] with a block a layer.

    The trained parameters stay float32; the copies are made anew whenever an optimiser or a checkpoint has written into them.
    """

    def __init__(self, adapted: Sequence[tuple[int, Any]], name: str, widths: Sequence[int], kernels: CpuKernels | None) -> None:
        self._layers, self._name, self._width = adapted, name, sum(widths)
        self._starts = [sum(widths[:at]) for at, _ in adapted]
        self._columns = [(start, start + widths[at]) for start, (at, _) in zip(self._starts, adapted, strict=True)]
        ranks = {layer.r[name] for _, layer in adapted}
        fits = len(ranks) == 1 and all(width % LANES == 0 for width in (*widths, adapted[0][1].in_features))
        self._kernels = kernels if fits else None
        self._made_of: list[tuple[int, int]] = []
        self._copies: tuple[Tensor, Tensor] | None = None

    def parameters(self) -> list[Tensor]:
        """A and B of every layer in turn."""
        pairs = ((layer.lora_A[self._name].weight, layer.lora_B[self._name].weight) for _, layer in self._layers)
        return [parameter for pair in pairs for parameter in pair]

    def apply(self, x_LI: Tensor, base: FrozenWeight) -> Tensor:
        """[L, I] -> [L, O]"""
        if torch.is_grad_enabled():
            out_LO: Tensor = _Adapted.apply(x_LI, base, self, *self.parameters())  # type: ignore[no-untyped-call]
            return out_LO
        down_rI, up_rO = self.copies(self.parameters(), x_LI.dtype)
        frozen_LO = base(x_LI)
        if self._kernels is None or len(x_LI) > FEW_ROWS or x_LI.device.type != "cpu" or x_LI.dtype not in FORMATS:
            return frozen_LO.addmm_(x_LI @ down_rI.t(), up_rO)
        self._kernels.adapt(x_LI.contiguous(), down_rI, up_rO, frozen_LO, self._columns)
        return frozen_LO

    def copies(self, parameters: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        made_of = [(parameter.data_ptr(), parameter._version) for parameter in parameters]
        if self._copies is None or self._made_of != made_of:
            downs, ups = parameters[::2], parameters[1::2]
            up_rO = ups[0].new_zeros(sum(len(down) for down in downs), self._width, dtype=dtype)
            for rows, columns, up, scale in self._blocks(downs, ups):
                up_rO[rows, columns] = (up.detach() * scale).t().to(dtype)
            self._copies = (torch.cat([down.detach() for down in downs]).to(dtype), up_rO)
            self._made_of = made_of
        return self._copies

    def split(self, grad_down_rI: Tensor, grad_up_rO: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of A and B of every layer in turn, in float32."""
        grads = []
        for rows, columns, _, scale in self._blocks(parameters[::2], parameters[1::2]):
            grads += [grad_down_rI[rows].float(), grad_up_rO[rows, columns].t().float().mul_(scale)]
        return grads

    def _blocks(self, downs: Sequence[Tensor], ups: Sequence[Tensor]) -> list[tuple[slice, slice, Tensor, float]]:
        blocks, row = [], 0
        for (_, layer), start, down, up in zip(self._layers, self._starts, downs, ups, strict=True):
            blocks.append((slice(row, row + len(down)), slice(start, start + len(up)), up, layer.scaling[self._name]))
            row += len(down)
        return blocks


class _Adapted(torch.autograd.Function):
    """x W^T + b + x A^T (scale B)^T, with gradients for x, A and B."""

    @staticmethod
    def forward(ctx: Any, x_LI: Tensor, base: FrozenWeight, thin: _ThinCopies, *parameters: Tensor) -> Tensor:
        down_rI, up_rO = thin.copies(parameters, x_LI.dtype)
        thin_Lr = x_LI @ down_rI.t()
        out_LO = base(x_LI).addmm_(thin_Lr, up_rO)
        ctx.save_for_backward(x_LI, thin_Lr, down_rI, up_rO, *parameters)
        ctx.base, ctx.thin = base, thin
        return out_LO

    @staticmethod
    def backward(ctx: Any, grad_LO: Tensor) -> tuple[Any, ...]:
        x_LI, thin_Lr, down_rI, up_rO, *parameters = ctx.saved_tensors
        grad_LO = grad_LO.contiguous()
        grad_thin_Lr = grad_LO @ up_rO.t()
        grad_x = ctx.base.gradient(grad_LO).addmm_(grad_thin_Lr, down_rI) if ctx.needs_input_grad[0] else None
        grads: Sequence[Tensor | None] = [None] * len(parameters)
        if any(ctx.needs_input_grad[3:]):
            grads = ctx.thin.split(grad_thin_Lr.t() @ x_LI, thin_Lr.t() @ grad_LO, parameters)
        return grad_x, None, None, *grads


class _Frozen(torch.autograd.Function):
    """x W^T + b with a gradient for x alone."""

    @staticmethod
    def forward(ctx: Any, x_LI: Tensor, base: FrozenWeight) -> Tensor:
        ctx.base = base
        return base(x_LI)

    @staticmethod
    def backward(ctx: Any, grad_LO: Tensor) -> tuple[Tensor, None]:
        return ctx.base.gradient(grad_LO.contiguous()), None


def is_frozen_linear(layer: nn.Module) -> bool:
    """A linear layer whose weights are not trained, or peft's plain LoRA layer over one: no variant such as DoRA, no biases."""
    base = _base(layer)
    if isinstance(layer, LoraLinear) and (layer.lora_variant or any(layer.lora_bias.values())):
        return False
    return type(base) is nn.Linear and not any(parameter.requires_grad for parameter in base.parameters())


def packs_weights(weight_OI: Tensor) -> bool:
    """Whether a second copy in oneDNN's own layout pays: bfloat16 on a CPU that multiplies it natively."""
    return weight_OI.device.type == "cpu" and weight_OI.dtype == torch.bfloat16 and processor().packs_bfloat16


def _base(layer: Any) -> Any:
    return layer.base_layer if isinstance(layer, LoraLinear) else layer


def _adapter_of(layer: Any) -> str | None:
    """The adapter that is on in this layer: of several, Policy switches on one at a time."""
    if not isinstance(layer, LoraLinear) or layer.disable_adapters:
        return None
    on = [name for name in layer.active_adapters if name in layer.lora_A]
    assert len(on) <= 1, on
    return on[0] if on else None
