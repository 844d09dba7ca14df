"""Sides of a benchmark that need no process or no library: ourselves in this process, and peers that answer what a test says."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from ragen.benchmark.machine import Machine
from ragen.benchmark.native import do
from ragen.benchmark.sides import OWN, AnyWork, Side, Timing
from ragen.benchmark.work import Answer

MACHINE = Machine(
    cpu="a processor",
    cores=2,
    memory_bytes=8 * 2**30,
    native_bfloat16=False,
    load=0.5,
    system="a system",
    python="3.11",
    torch="2.13",
    ragen="0",
)


@dataclass(frozen=True, kw_only=True)
class InThisProcess(Side):
    """Our own side without a process of its own: the second that importing torch takes is saved."""

    name: str = OWN
    command: tuple[str, ...] = ()

    def ask(self, work: AnyWork) -> Answer:
        threads = torch.get_num_threads()
        try:
            return do(work)
        finally:
            torch.set_num_threads(threads)


def peer_program(folder: Path, body: str) -> Path:
    """A Python program that has read its work as `work` and does `body`."""
    path = folder / "peer.py"
    path.write_text(f"import json, sys\nwork = json.load(open(sys.argv[-1], encoding='utf-8'))\n{body}\n", encoding="utf-8")
    return path


def peer(folder: Path, body: str, *, name: str = "vllm") -> Side:
    return Side(name=name, command=(sys.executable, str(peer_program(folder, body))))


def saying(answer: dict[str, object]) -> str:
    """A body that prints something, and then this answer."""
    return f"print('loading weights')\nprint({json.dumps(json.dumps(answer))})"


def timing(side: str, *seconds: float, num_tokens: int = 100, peak_bytes: int = 2**30) -> Timing:
    return Timing(side=side, package=f"{side} 1.0", seconds=seconds, num_tokens=num_tokens, peak_bytes=peak_bytes, answers=())
