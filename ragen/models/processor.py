"""What this processor multiplies fastest, measured once when the first model is loaded: some tens of milliseconds.

The choices hang on ratios that are far from 1 (bfloat16 is three to four times as fast as float32 where it is native, and several
times slower where it is not), so that noise does not turn them over and a resumed run makes the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS, WIDTH = 256, 1024  # of the product whose rate is measured
FEW_ROWS = 64  # of the product that shows whether a packed copy pays: as many trajectories decode at a time
RUNS = 5
CLEARLY = 1.25  # how much faster makes a difference


@dataclass(frozen=True, kw_only=True)
class Processor:
    """Rates of matrix products in FLOP/s, and how many times faster a few rows meet a weight in oneDNN's own layout."""

    float32: float
    bfloat16: float
    packed_gain: float  # 0 where there is no such layout

    @property
    def prefers_bfloat16(self) -> bool:
        return self.bfloat16 > CLEARLY * self.float32

    @property
    def packs_bfloat16(self) -> bool:
        """Whether frozen bfloat16 weights are kept a second time in that layout. Not slower is enough: large products gain."""
        return self.packed_gain > 1 / CLEARLY

    def __str__(self) -> str:
        rates = f"bfloat16 {self.bfloat16 / 1e9:.0f}, float32 {self.float32 / 1e9:.0f} GFLOP/s a core"
        if not self.packed_gain:
            return rates
        return f"{rates}; weights packed for it: {self.packed_gain:.1f} x at {FEW_ROWS} rows"


_known: list[Processor] = []  # at most one


def processor() -> Processor:
    """Of one core of this machine, measured on first use: on several, a busy one would hold up the others."""
    if not _known:
        _known.append(_measure())
    return _known[0]


def adopt(measured: Processor) -> None:
    """Go by what another process of this machine has measured, so that both compute the same bits."""
    _known[:] = [measured]


def _measure() -> Processor:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return Processor(float32=_rate(torch.float32), bfloat16=_rate(torch.bfloat16), packed_gain=_packed_gain())
    finally:
        torch.set_num_threads(num_threads)


def pack(weight_OI: Tensor) -> Tensor:
    """A copy in the layout that oneDNN chooses for about FEW_ROWS rows; it serves any number."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI, FEW_ROWS)
    return packed


def packed_product(x_LI: Tensor, packed: Tensor, bias_O: Tensor | None) -> Tensor:
    """x W^T + b [L, O] for a weight that `pack` has copied."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x_LI, packed, bias_O, "none", [], "")
    return out


def can_pack() -> bool:
    """Whether torch has the layout and the product, which are no part of its public interface."""
    ops = torch.ops.mkldnn
    return torch.backends.mkldnn.is_available() and hasattr(ops, "_reorder_linear_weight") and hasattr(ops, "_linear_pointwise")


def _rate(dtype: torch.dtype) -> float:
    x, weight = _random(ROWS, dtype), _random(WIDTH, dtype)
    return 2 * ROWS * WIDTH * WIDTH / _best_seconds(lambda: F.linear(x, weight))


def _packed_gain() -> float:
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    if not (native and can_pack()):
        return 0.0
    x, weight = _random(FEW_ROWS, torch.bfloat16), _random(WIDTH, torch.bfloat16)
    packed = pack(weight)
    return _best_seconds(lambda: F.linear(x, weight)) / _best_seconds(lambda: packed_product(x, packed, None))


def _random(rows: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)


@torch.inference_mode()
def _best_seconds(function: Callable[[], object]) -> float:
    function()
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best
