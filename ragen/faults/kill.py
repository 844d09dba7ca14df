"""A run is killed over and over, resumed every time, and compared with the run that nobody killed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ragen.config.schema import Config
from ragen.errors import NothingToDo, TrainingError
from ragen.faults.children import Ending, check_system, run_child
from ragen.faults.operations import deal, die_at, list_to
from ragen.faults.same_run import differences

UNBROKEN, OPERATIONS, SAID = "unbroken", "operations.txt", "said.txt"
AT_OPERATIONS = 0.75  # share of the kills that come at a file operation; the others come at any moment
TORN = 0.5  # share of those at a flush that leave the file cut short
MAX_KILLS = 3  # of one run; after that it is let through
NO_CHECKPOINT = "no whole checkpoint to resume from"


@dataclass(kw_only=True)
class KillReport:
    """What came of it: the runs that could not be resumed, and those that came out otherwise, each with its story."""

    num_kills: int = 0
    num_at_operations: int = 0
    num_operations: int = 0  # in the unbroken run
    num_runs: int = 0
    lost: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.lost and not self.different


@dataclass(frozen=True, kw_only=True)
class _Kill:
    """When a run dies: at an operation, or after some seconds."""

    operation: int | None = None
    torn: float | None = None
    after_s: float | None = None

    def __str__(self) -> str:
        if self.operation is None:
            return f"after {self.after_s:.2f} s"
        return f"at file operation {self.operation}" + ("" if self.torn is None else f", {self.torn:.0%} of the file written")


def kill_and_resume(
    config: Config, folder: Path, *, num_kills: int, seed: int = 0, say: Callable[[str], None] = lambda text: None
) -> KillReport:
    """Train `config` to its end in `folder`, then again and again with kill -9 at random moments, until so many have struck.

    Raises TrainingError if the run does not even end when it is let be. Needs a system that can fork.
    """
    check_system()
    draw, report = random.Random(seed), KillReport()
    unbroken, seconds = unbroken_run(config, folder)
    report.num_operations = len((folder / OPERATIONS).read_text(encoding="utf-8").splitlines())
    say(f"unbroken: {seconds:.1f} s, {report.num_operations} file operations")
    num_planned = round(AT_OPERATIONS * num_kills)
    operations = deal(report.num_operations, num_planned, draw)
    while report.num_kills < num_kills and len(report.lost) + len(report.different) < 10:
        plan = [_next_kill(operations, seconds, draw) for _ in range(draw.randint(1, MAX_KILLS))]
        _one_run(config, folder, unbroken, plan[: num_kills - report.num_kills], report)
        bad = f"{len(report.lost)} lost, {len(report.different)} different"
        say(f"{report.num_kills} of {num_kills} kills, {report.num_runs} runs: {bad}")
    return report


def unbroken_run(config: Config, folder: Path) -> tuple[Path, float]:
    """The run to compare with, and how long it takes; its file operations are listed in OPERATIONS. Raises TrainingError."""
    path = folder / UNBROKEN
    ending = run_child(named(config, folder, UNBROKEN), folder / SAID, before=partial(list_to, path, folder / OPERATIONS))
    if ending.code != 0:
        raise TrainingError(f"the run does not end even if nobody kills it (exit code {ending.code}): {ending.said[-500:]}")
    return path, ending.seconds


def _next_kill(operations: list[int], seconds: float, draw: random.Random) -> _Kill:
    if operations and draw.random() < AT_OPERATIONS:
        return _Kill(operation=operations.pop(), torn=draw.random() if draw.random() < TORN else None)
    return _Kill(after_s=draw.uniform(0, seconds))


def _one_run(config: Config, folder: Path, unbroken: Path, plan: list[_Kill], report: KillReport) -> None:
    """From the start to the end, with these kills on the way; a folder that came out right is removed."""
    report.num_runs += 1
    name = f"killed-{report.num_runs:03d}"
    path, settings = folder / name, named(config, folder, name)
    story: list[str] = []
    resume = False
    for kill in [*plan, None]:
        ending = _attempt(settings, folder, path, kill, resume=resume)
        if NO_CHECKPOINT in ending.said:  # it died before anything was worth saving: a new run, as a person would start it
            shutil.rmtree(path)
            ending = _attempt(settings, folder, path, kill, resume=False)
        if ending.was_killed and kill is not None:
            report.num_kills += 1
            report.num_at_operations += kill.operation is not None
            story.append(str(kill))
            resume = path.is_dir()
        elif ending.code in (0, NothingToDo.exit_code):
            break
        else:
            report.lost.append(f"{name}: killed {'; '.join(story)}; then exit code {ending.code}: {ending.said[-500:]}")
            return
    found = differences(unbroken, path)
    if found:
        report.different.append(f"{name}: killed {'; '.join(story)}; differs in {'; '.join(found[:5])}")
    else:
        shutil.rmtree(path)


def _attempt(settings: Config, folder: Path, path: Path, kill: _Kill | None, *, resume: bool) -> Ending:
    said = folder / SAID
    if kill is None or kill.operation is None:
        return run_child(settings, said, resume=resume, kill_after_s=kill.after_s if kill else None)
    return run_child(settings, said, resume=resume, before=partial(die_at, path, kill.operation, torn=kill.torn))


def named(config: Config, folder: Path, name: str) -> Config:
    """The same settings for a run of this name in this folder."""
    return replace(config, name=name, output_dir=str(folder))
