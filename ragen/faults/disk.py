"""The disk fills up, becomes read-only or denies access at every file operation of a run in turn: one line, and nothing lost."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ragen.config.schema import Config
from ragen.errors import NothingToDo, StorageError
from ragen.faults.children import Ending, check_system, run_child
from ragen.faults.kill import NO_CHECKPOINT, OPERATIONS, SAID, named, unbroken_run
from ragen.faults.operations import deal, refuse_from
from ragen.faults.same_run import differences

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES)
MAX_FILE_BYTES = 16384  # less than weights and optimiser state of any model: the real thing, in the middle of a write


@dataclass(kw_only=True)
class DiskReport:
    """What came of it. `rude`: endings that were not one line with exit code 1; `lost`, `different` as of kills."""

    num_refusals: int = 0
    num_endured: int = 0  # of them, those that the run did not need: the picture, a tracker
    num_operations: int = 0
    rude: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.rude or self.lost or self.different)


def refuse_and_resume(
    config: Config,
    folder: Path,
    *,
    num_refusals: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> DiskReport:
    """Train `config` while the disk refuses from some operation on; then, with the disk as it was, resume it to its end.

    Every operation in turn, or `num_refusals` of them at random; and once a limit on the size of files, which compiled code
    meets in the middle of a write. Raises TrainingError if the run does not end when nothing is refused.
    """
    check_system()
    unbroken, seconds, report = *unbroken_run(config, folder), DiskReport()
    report.num_operations = _count(folder)
    say(f"unbroken: {seconds:.1f} s, {report.num_operations} file operations")
    draw = random.Random(seed)
    operations = deal(report.num_operations, num_refusals or report.num_operations, draw)
    cases: list[tuple[str, Callable[[Path], Callable[[], None]]]] = [("files that may not be large", lambda path: _limit_size)]
    for number in operations:
        error = ERRORS[number % len(ERRORS)]
        what = f"{errno.errorcode[error]} from file operation {number} on"
        cases.append((what, lambda path, number=number, error=error: partial(refuse_from, path, number, error)))  # type: ignore[misc]
    for at, (what, before) in enumerate(cases, start=1):
        _one_run(named(config, folder, f"refused-{at:03d}"), folder, unbroken, what, before, report)
        bad = f"{len(report.rude)} rude, {len(report.lost)} lost, {len(report.different)} different"
        say(f"{at} of {len(cases)}: {what}: {bad}")
    return report


def _count(folder: Path) -> int:
    return len((folder / OPERATIONS).read_text(encoding="utf-8").splitlines())


def _limit_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, resource.RLIM_INFINITY))


def _one_run(
    settings: Config,
    folder: Path,
    unbroken: Path,
    what: str,
    before: Callable[[Path], Callable[[], None]],
    report: DiskReport,
) -> None:
    path, said = folder / settings.name, folder / SAID
    report.num_refusals += 1
    ending = run_child(settings, said, before=before(path))
    if ending.code == 0:
        report.num_endured += 1
    elif not _is_polite(ending):
        report.rude.append(f"{what}: exit code {ending.code}: {ending.said[-500:]}")
    ending = run_child(settings, said, resume=path.is_dir())
    if NO_CHECKPOINT in ending.said:
        shutil.rmtree(path)
        ending = run_child(settings, said)
    if ending.code not in (0, NothingToDo.exit_code):
        report.lost.append(f"{what}: resumed with exit code {ending.code}: {ending.said[-500:]}")
    elif found := differences(unbroken, path):
        report.different.append(f"{what}: differs in {'; '.join(found[:5])}")
    else:
        shutil.rmtree(path)


def _is_polite(ending: Ending) -> bool:
    """One line that names what the system said, and the exit code of a storage error."""
    reasons = [os.strerror(error) for error in (*ERRORS, errno.EFBIG)]
    return ending.code == StorageError.exit_code and "\n" not in ending.said and any(reason in ending.said for reason in reasons)
