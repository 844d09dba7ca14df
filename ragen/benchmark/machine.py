"""On which machine, with which software, figures were taken."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch

from ragen import __version__


@dataclass(frozen=True, kw_only=True)
class Machine:
    cpu: str
    cores: int  # that this process may use
    memory_bytes: int
    native_bfloat16: bool  # the processor multiplies it
    load: float  # processes that wanted to run, mean over the last minute, when the benchmark began
    system: str
    python: str
    torch: str
    ragen: str


def this_machine() -> Machine:
    return Machine(
        cpu=_cpu_name(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        native_bfloat16=torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported(),
        load=os.getloadavg()[0],
        system=platform.platform(terse=True),
        python=platform.python_version(),
        torch=str(torch.__version__),
        ragen=__version__,
    )


def usable_cores() -> int:
    return len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else os.cpu_count() or 1


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
