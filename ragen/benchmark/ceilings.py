"""What this machine can do at best: matrix products in a number format, and reading and writing of memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from ragen.benchmark.work import Answer, CeilingsWork

SQUARE = 2048  # a product large enough that nothing but the arithmetic counts
COPIED_BYTES = 256 * 2**20  # beyond every cache
RUNS = 5


def measure_ceilings(work: CeilingsWork) -> Answer:
    """Best of several runs. `details`: FLOP/s by shape (rows x inputs x outputs), the best of them, and bytes/s of memory."""
    dtype = getattr(torch, work.dtype)
    products = dict.fromkeys((*work.products, (SQUARE, SQUARE, SQUARE)))
    rates = {"x".join(map(str, product)): _product_rate(*product, dtype, work.repeats) for product in products}
    details = {"flops_by_shape": rates, "flops_per_s": max(rates.values()), "bytes_per_s": _memory_rate(work.repeats)}
    return Answer(package=f"torch {torch.__version__}", seconds=(), num_tokens=0, peak_bytes=0, details=details)


def _product_rate(rows: int, inputs: int, outputs: int, dtype: torch.dtype, repeats: int) -> float:
    """FLOP/s of activations [rows, inputs] times weights [outputs, inputs], as a linear layer has them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, inputs, generator=generator).to(dtype)
    weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
    return 2 * rows * inputs * outputs / _best_seconds(lambda: F.linear(x, weight), repeats)


def _memory_rate(repeats: int) -> float:
    """Bytes/s, the better of copying, which reads and writes, and of summing, which reads."""
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.empty_like(source)
    copied = 2 * COPIED_BYTES / _best_seconds(lambda: target.copy_(source), repeats)
    summed = COPIED_BYTES / _best_seconds(lambda: source.sum(), repeats)
    return max(copied, summed)


@torch.inference_mode()
def _best_seconds(function: Callable[[], object], repeats: int) -> float:
    function()
    best = float("inf")
    for _ in range(RUNS * repeats):
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best
