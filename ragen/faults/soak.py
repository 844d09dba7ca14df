"""Thousands of tiny steps with faults all the time, watched from outside: memory, open handles and threads must not grow."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from ragen.config.schema import Config
from ragen.errors import ConfigError, TrainingError
from ragen.faults.children import check_system, run_child
from ragen.training.trackers import METRICS_FILE, read_metrics

RUN = "soak"
MIN_STEPS = 20
SAMPLE_S = 0.25
WARM_UP = 0.2  # share of the steps in which caches fill
MAX_KIB_PER_STEP = 4.0  # a forgotten step of eight trajectories is more
MAX_MORE = 2  # handles or threads at the end, compared with after the warm-up

# Four groups of two: half of them in the event loop, half in a worker process that some of them end.
FLAKY = (
    "rollout.group_size=2",
    "rollout.sampling.max_new_tokens=4",
    "rollout.max_failed_frac=1.0",
    "rollout.max_replacements_frac=0.5",
    "environments.bandit.name=ragen.faults.environment:Flaky",
    "environments.bandit.num_groups=2",
    "environments.bandit.step_timeout_s=2",
    "+env@environments.apart=bandit",
    "environments.apart.name=ragen.faults.environment:Flaky",
    "environments.apart.num_groups=2",
    "environments.apart.step_timeout_s=2",
    "environments.apart.runs_in=process",
    "environments.apart.num_workers=1",
    "+environments.apart.options.faults=[raise,hang,none,number,huge,exit]",
    "trainer.save_every=50",
    "trainer.keep_rollouts=100",
    "evaluation.num_episodes=2",
    "evaluation.before_training=false",
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One look at the process. Its memory is what it has written to: pages of files come and go as the system likes."""

    step: int
    memory_kib: float
    num_handles: int
    num_threads: int


@dataclass(frozen=True, kw_only=True)
class SoakReport:
    steps: int
    seconds: float
    failed_frac: float  # of all trajectories, mean over the steps
    lost_workers: int
    memory_mib: tuple[float, float]  # after the warm-up, at the end
    kib_per_step: float  # slope of the memory, after the warm-up
    handles: tuple[int, int]
    threads: tuple[int, int]

    @property
    def ok(self) -> bool:
        more = max(self.handles[1] - self.handles[0], self.threads[1] - self.threads[0])
        return self.kib_per_step <= MAX_KIB_PER_STEP and more <= MAX_MORE

    def lines(self) -> list[str]:
        """The report as a person reads it."""
        (before, after), verdict = self.memory_mib, "flat" if self.ok else "it grows"
        return [
            f"{self.steps} steps in {self.seconds:.0f} s, {self.failed_frac:.1%} of the trajectories failed, "
            f"{self.lost_workers} worker processes were lost",
            f"memory   {before:.1f} -> {after:.1f} MiB, {self.kib_per_step:+.2f} KiB a step (at most {MAX_KIB_PER_STEP:g})",
            f"handles  {self.handles[0]} -> {self.handles[1]} (at most {MAX_MORE} more)",
            f"threads  {self.threads[0]} -> {self.threads[1]} (at most {MAX_MORE} more)",
            verdict,
        ]


def soak_run(config: Config, folder: Path, *, say: Callable[[str], None] = lambda text: None) -> SoakReport:
    """Train `config` in a child process and watch it. Raises TrainingError if it does not come to its end."""
    check_system()
    if not Path("/proc/self/status").exists():
        raise ConfigError(f"soak: reads /proc, which {sys.platform} has not")
    watcher = _Watcher(folder / RUN / METRICS_FILE, config.trainer.steps, say)
    settings = replace(config, name=RUN, output_dir=str(folder))
    ending = run_child(settings, folder / "said.txt", watch=watcher.look)
    if ending.code != 0:
        raise TrainingError(f"the run did not come to its end (exit code {ending.code}): {ending.said[-500:]}")
    rows = read_metrics(folder / RUN)
    return summarise(
        watcher.samples,
        steps=config.trainer.steps,
        seconds=ending.seconds,
        failed_frac=float(np.mean([row["rollout/failed_frac"] for row in rows])),
        lost_workers=int(sum(row.get("rollout/lost_workers", 0) for row in rows)),
    )


def summarise(samples: Sequence[Sample], *, steps: int, seconds: float, failed_frac: float, lost_workers: int) -> SoakReport:
    """Slopes and medians of what was seen after the warm-up. Raises TrainingError if that was next to nothing."""
    warm = [sample for sample in samples if sample.step >= WARM_UP * steps]
    if len(warm) < 8:
        raise TrainingError(f"the run was seen {len(warm)} times after its warm-up; let it take more steps")
    at = np.array([sample.step for sample in warm], dtype=np.float64)
    memory = np.array([sample.memory_kib for sample in warm])
    slope = float(np.polyfit(at, memory, 1)[0]) if np.ptp(at) else 0.0
    part = max(1, len(warm) // 8)
    first, last = warm[:part], warm[-part:]
    return SoakReport(
        steps=steps,
        seconds=seconds,
        failed_frac=failed_frac,
        lost_workers=lost_workers,
        memory_mib=(median(s.memory_kib for s in first) / 1024, median(s.memory_kib for s in last) / 1024),
        kib_per_step=slope,
        handles=(int(median(s.num_handles for s in first)), int(median(s.num_handles for s in last))),
        threads=(int(median(s.num_threads for s in first)), int(median(s.num_threads for s in last))),
    )


class _Watcher:
    """Looks at a process now and then; which step it is at is the number of lines in its metrics."""

    def __init__(self, metrics: Path, steps: int, say: Callable[[str], None]) -> None:
        self.samples: list[Sample] = []
        self._metrics = metrics
        self._steps = steps
        self._say = say
        self._next_look = self._next_word = 0.0
        self._step = self._offset = 0

    def look(self, pid: int) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + SAMPLE_S
        self._count_lines()
        if self._step == 0 or self._step >= self._steps:  # while it starts, and when it draws its picture
            return
        try:
            kib = _memory_kib(Path(f"/proc/{pid}/status").read_text())
            handles, threads = len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
        except OSError:  # it has just ended
            return
        self.samples.append(Sample(step=self._step, memory_kib=kib, num_handles=handles, num_threads=threads))
        if now >= self._next_word:
            self._next_word = now + 30
            self._say(f"step {self._step}: {kib / 1024:.0f} MiB, {handles} handles, {threads} threads")

    def _count_lines(self) -> None:
        if self._metrics.exists():
            with self._metrics.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
            self._offset += len(text)
            self._step += text.count(b"\n")


def _memory_kib(status: str) -> int:
    """What a process has written to, wherever that lies, from its /proc/PID/status."""
    return sum(int(found) for found in re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+) kB$", status, re.MULTILINE))
