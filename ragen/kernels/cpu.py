"""The compiled operations on tensors. Each writes where it is told to and allocates nothing but its result.

Tensors are contiguous unless said otherwise, on the CPU, and of one of FORMATS; axes as in cpu.c.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ragen.kernels.compile import library

FORMATS = (torch.bfloat16, torch.float32)
LANES = 16  # every width is a multiple of it
MAX_HEAD_WIDTH = 256
MAX_QUERIES = 8  # query heads that share keys


class _Attention(ctypes.Structure):
    """The struct of the same name in cpu.c."""

    _fields_ = (
        *((name, c_void_p) for name in ("q", "prompt_keys", "prompt_values", "keys", "values")),
        *((name, c_void_p) for name in ("group", "prompt_length", "length", "out")),
        *((name, c_int64) for name in ("N", "H", "K", "D", "P", "S", "q_stride", "window")),
        ("scale", c_float),
    )


class CpuKernels:
    """The functions of cpu.c."""

    def __init__(self, compiled: ctypes.CDLL) -> None:
        pointer, size = c_void_p, c_int64
        signatures = {
            "ragen_add_norm": [pointer] * 4 + [size] * 2 + [c_float, c_int, c_int],
            "ragen_silu_mul": [pointer] * 2 + [size] * 2 + [c_int, c_int],
            "ragen_rotate": [pointer] * 5 + [size] * 4 + [c_float, c_int, c_int],
            "ragen_attend": [pointer, c_int, c_int],
            "ragen_keep": [pointer] * 2 + [size] + [pointer] * 4 + [size] * 4 + [c_int],
            "ragen_adapt": [pointer] * 6 + [size] * 5 + [c_int, c_int],
        }
        for name, arguments in signatures.items():
            function = getattr(compiled, name)
            function.argtypes, function.restype = arguments, c_int if name == "ragen_attend" else None
        self._compiled = compiled

    def add_norm(self, x_LI: Tensor, delta_LI: Tensor | None, scale_I: Tensor, eps: float) -> Tensor:
        """Add delta to x in place, and return x / sqrt(mean(x^2) + eps) * scale."""
        out_LI = torch.empty_like(x_LI)
        added = 0 if delta_LI is None else delta_LI.data_ptr()
        self._compiled.ragen_add_norm(
            x_LI.data_ptr(), added, scale_I.data_ptr(), out_LI.data_ptr(), *x_LI.shape, eps, *_how(x_LI)
        )
        return out_LI

    def silu_mul(self, gate_up_LI: Tensor) -> Tensor:
        """silu(gate) * up [L, I / 2] of gate and up side by side."""
        L, both = gate_up_LI.shape
        out = gate_up_LI.new_empty(L, both // 2)
        self._compiled.ragen_silu_mul(gate_up_LI.data_ptr(), out.data_ptr(), L, both // 2, *_how(out))
        return out

    def rotate(
        self,
        qkv_LXD: Tensor,
        num_heads: int,
        num_kv_heads: int,
        *,
        cos_sin_LD: tuple[Tensor, Tensor] | None,
        scales_D: tuple[Tensor, Tensor] | None,
        eps: float,
    ) -> None:
        """Normalise by head, where there are scales, then rotate queries and keys, in place. X: heads of q, k and v in turn."""
        L, _, D = qkv_LXD.shape
        cos, sin = (0, 0) if cos_sin_LD is None else (part.data_ptr() for part in cos_sin_LD)
        q_scale, k_scale = (0, 0) if scales_D is None else (scale.data_ptr() for scale in scales_D)
        self._compiled.ragen_rotate(
            qkv_LXD.data_ptr(), cos, sin, q_scale, k_scale, L, num_heads, num_kv_heads, D, eps, *_how(qkv_LXD)
        )

    def keep(self, k_LKD: Tensor, v_LKD: Tensor, keys_NKSD: Tensor, values_NKSD: Tensor, row_L: Tensor, at_L: Tensor) -> None:
        """Store token l at position at[l] of row row[l]. k and v may be parts of a wider tensor; both have its strides."""
        (L, K, D), S = k_LKD.shape, keys_NKSD.shape[2]
        assert k_LKD.stride() == v_LKD.stride() and k_LKD.stride(1) == D, (k_LKD.stride(), v_LKD.stride())
        tensors = (keys_NKSD, values_NKSD, row_L, at_L)
        self._compiled.ragen_keep(
            k_LKD.data_ptr(),
            v_LKD.data_ptr(),
            k_LKD.stride(0),
            *(tensor.data_ptr() for tensor in tensors),
            *(L, K, S, D),
            k_LKD.element_size(),
        )

    def attend(
        self,
        q_NHD: Tensor,
        prompt_kv: tuple[Tensor, Tensor],
        own_kv: tuple[Tensor, Tensor],
        *,
        group_N: Tensor,
        prompt_length_N: Tensor,
        length_N: Tensor,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """One query of each of N rows over the prompt it continues and what is its own: one softmax, exact -> [N, H, D].

        prompt_kv: two of [G, K, P, D]; own_kv: two of [rows, K, S, D], of which the first N are read; `length_N` counts a row's
        own tokens, its query's with them. q may be a part of a wider tensor.
        """
        (N, H, D), (_, K, P, _), S = q_NHD.shape, prompt_kv[0].shape, own_kv[0].shape[2]
        assert q_NHD.stride(1) == D and q_NHD.stride(2) == 1, q_NHD.stride()
        out_NHD = q_NHD.new_empty(N, H, D)
        tensors = (q_NHD, *prompt_kv, *own_kv, group_N, prompt_length_N, length_N, out_NHD)
        pointers = (tensor.data_ptr() for tensor in tensors)
        asked = _Attention(*pointers, N, H, K, D, P, S, q_NHD.stride(0), window or 0, scale)
        if self._compiled.ragen_attend(byref(asked), *_how(q_NHD)):
            raise MemoryError("no memory for the scores of one decode step")
        return out_NHD

    def adapt(self, x_LI: Tensor, down_rI: Tensor, up_rO: Tensor, out_LO: Tensor, columns: Sequence[tuple[int, int]]) -> None:
        """out += x down^T up, in place. Block b of up, of len(up) / len(columns) rows, is 0 outside its columns."""
        num = len(columns)
        begins, ends = ((c_int64 * num)(*part) for part in zip(*columns, strict=True))
        self._compiled.ragen_adapt(
            *(tensor.data_ptr() for tensor in (x_LI, down_rI, up_rO, out_LO)),
            *(begins, ends, num, *x_LI.shape, out_LO.shape[1], len(up_rO) // num),
            *_how(x_LI),
        )


@cache
def kernels(folder: Path) -> CpuKernels:
    """The compiled operations, kept in `folder`. Raises NotCompiled where they cannot be had."""
    return CpuKernels(library(folder))


def _how(like: Tensor) -> tuple[int, int]:
    """Number format and threads."""
    return int(like.dtype == torch.bfloat16), torch.get_num_threads()
