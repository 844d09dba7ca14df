"""What a process does to files is heard, in order; and where one is cut short, only what was not flushed before is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT

WORK = """
import os, sys
from functools import partial
from pathlib import Path
from ragen.faults.operations import die_at, list_to, refuse_from
folder = Path(sys.argv[1])
{before}
folder.joinpath("a").mkdir()
for _ in range(2):
    with open(folder / "a" / "log", "a") as file:
        file.write("0123456789")
        file.flush()
        os.fsync(file.fileno())
os.rename(folder / "a" / "log", folder / "done")
print("survived")
"""
OPERATIONS = ["mkdir a", "append a/log", "fsync a/log", "append a/log", "fsync a/log", "rename done"]


def work(folder: Path, before: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    command = [sys.executable, "-c", WORK.format(before=before), str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_operation_is_listed_before_it_is_done(tmp_path: Path) -> None:
    listing = tmp_path / "listing"
    assert work(tmp_path / "run", f"list_to(folder, Path({str(listing)!r}))").stdout == "survived\n"
    assert listing.read_text().splitlines() == OPERATIONS


def test_a_death_before_the_second_flush_cuts_the_second_piece_alone(tmp_path: Path) -> None:
    done = work(tmp_path / "run", "die_at(folder, 5, torn=0.3)")
    assert (done.returncode, done.stdout) == (-9, "")
    assert (tmp_path / "run" / "a" / "log").read_text() == "0123456789012"


def test_a_death_at_a_rename_leaves_the_old_name(tmp_path: Path) -> None:
    assert work(tmp_path / "run", "die_at(folder, 6)").returncode == -9
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["a"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="flushes are met by their names in /proc")
def test_a_disk_that_refuses_does_so_from_then_on(tmp_path: Path) -> None:
    done = work(tmp_path / "run", "refuse_from(folder, 3, 28)")
    assert done.returncode == 1
    assert os.strerror(28) in done.stderr
    assert (tmp_path / "run" / "a" / "log").exists()
