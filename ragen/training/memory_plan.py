"""How large a pack of the update may be: what is free, what a pack will need, and the largest one within a budget.

An update's memory is the activations that one forward pass keeps for its backward pass. They are counted on a few small packs
(memory_probe.py) and grow with the tokens of a pack as `UpdateCost` says; everything here is arithmetic on such counts.

The pack size changes the last bits of a gradient, so it is chosen once, when a run begins, and from few sizes that differ by
factors of two: machines that have memory enough agree on the largest.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch

LARGEST_PACK, SMALLEST_PACK = 1024, 64  # continuation tokens; larger packs are no faster, smaller ones much slower
STATE_BYTES = 12  # per trained parameter: gradient and AdamW's two moments, float32
OVERHEAD = 1.35  # of what is counted: gradients on their way and what the allocator cannot use again; seen up to 1.3
GIB = 2**30
CGROUP = Path("/sys/fs/cgroup")
_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True, kw_only=True)
class UpdateCost:
    """Bytes that one forward pass of the update keeps."""

    per_token: float  # for every token fed to the model
    per_trained: float  # for every trained token, at the output layer
    at_once: int  # beside these, such as the scores of one chunk of the output layer in the backward pass

    def of_pack(self, *, prompt: int, continuation: int, pack_tokens: int) -> float:
        """Of the largest pack: `pack_tokens` behind a prompt, or one continuation that is longer, which is a pack by itself."""
        tokens = max(pack_tokens, continuation)
        return self.per_token * (prompt + tokens) + self.per_trained * tokens + self.at_once

    def recomputed(self, *, num_layers: int, input_bytes: int) -> UpdateCost:
        """If a layer keeps its input alone, `input_bytes` a token, and what is in it exists for one layer at a time."""
        return replace(self, per_token=num_layers * input_bytes + self.per_token / num_layers)


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The pack size chosen, and what it is expected to need beyond what the process holds already."""

    pack_tokens: int
    forecast_bytes: int
    budget_bytes: int
    free_bytes: int

    @property
    def fits(self) -> bool:
        """False if even the smallest pack may need more than the budget."""
        return self.forecast_bytes <= self.budget_bytes

    def __str__(self) -> str:
        line = (
            f"memory of the update: packs of {self.pack_tokens} tokens, forecast {self.forecast_bytes / GIB:.2f} GiB more "
            f"of {self.budget_bytes / GIB:.2f} GiB allowed, {self.free_bytes / GIB:.2f} GiB free"
        )
        hint = "; it may run out: a smaller rollout.context.max_context_tokens or model needs less"
        return line if self.fits else line + hint


def plan_memory(
    cost: UpdateCost,
    *,
    prompt: int,
    continuation: int,
    num_trained: int,
    reserved_bytes: int,
    budget: float,
    free_bytes: int,
    pack_tokens: int | None = None,
) -> MemoryPlan:
    """Choose the largest pack within the budget, or forecast for `pack_tokens` where that is given.

    `prompt` and `continuation`: the longest that a run may have, in tokens. `num_trained`: parameters. `reserved_bytes`: what
    else will be held while an update runs, such as the engine's caches. `budget`: a share of what is free up to 1, GiB above.
    """
    allowed = int(budget * free_bytes) if budget <= 1 else int(budget * GIB)

    def forecast(tokens: int) -> int:
        activations = cost.of_pack(prompt=prompt, continuation=continuation, pack_tokens=tokens)
        return int(OVERHEAD * activations) + STATE_BYTES * num_trained + reserved_bytes

    size = pack_tokens or LARGEST_PACK
    while pack_tokens is None and forecast(size) > allowed and size > SMALLEST_PACK:
        size //= 2
    return MemoryPlan(pack_tokens=size, forecast_bytes=forecast(size), budget_bytes=allowed, free_bytes=free_bytes)


def cache_bytes(*, num_layers: int, num_kv_heads: int, head_width: int, itemsize: int, num_tokens: int) -> int:
    """Of the keys and values that an engine keeps for so many tokens: part of what is reserved beside an update."""
    return 2 * num_layers * num_kv_heads * head_width * itemsize * num_tokens


# -- what there is -------------------------------------------------------------------------------------------------------


def free_bytes(device: torch.device, *, cgroup: Path = CGROUP) -> int:
    """Memory that may still be taken: of the graphics card, or of the machine and the control group that this process is in."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = int(psutil.virtual_memory().available)
    limit = _cgroup_free(cgroup)
    return available if limit is None else min(available, limit)


def _cgroup_free(root: Path) -> int | None:
    """What the control group of a container has left, in version 2 or 1; None without a limit. Cached files are given back."""
    for limit_name, used_name, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = _number_in(root / limit_name)
        used = _number_in(root / used_name)
        if limit is not None and used is not None:
            return max(0, limit - used + _stat(root / limit_name, cache_key))
    return None


def _number_in(path: Path) -> int | None:
    text = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    return int(text) if text.isdigit() else None  # version 2 writes "max" for no limit


def _stat(beside: Path, key: str) -> int:
    path = beside.parent / "memory.stat"
    rows = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return next((int(value) for name, _, value in (row.partition(" ") for row in rows) if name == key), 0)


_highest = 0  # of this process before its peak was last forgotten


def reset_peak(device: torch.device) -> None:
    """Begin to count the peak anew, where the system can; elsewhere the peak stays that of the whole process."""
    global _highest
    _highest = max(_highest, peak_bytes())
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR_REFS.exists():
        try:
            _CLEAR_REFS.write_text("5", encoding="ascii")  # Linux: the highest resident set so far is forgotten
        except OSError:  # forbidden in some containers
            return


def peak_bytes(device: torch.device | None = None) -> int:
    """The most memory held since `reset_peak`, or since the process began."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if _STATUS.exists():
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB elsewhere


def highest_gib() -> float:
    """Largest resident memory of this process so far, in GiB, whatever `reset_peak` has forgotten."""
    return max(_highest, peak_bytes()) / GIB
