"""`ragen faults`: does a run survive being killed, and does it stay as small as it began?"""

from __future__ import annotations

import sys
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from ragen.cli.output import Json, print_json

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ragen.config.schema import Config

faults_app = App(
    name="faults",
    help_format="plaintext",
    help="Kill runs at random moments and compare them with the unbroken one; run thousands of steps with faults all the time.",
)

# Seconds a run, with everything that a run writes: critic, filter, tracker, evaluations on the way, checkpoints that make room.
SMALL = (
    "trainer.steps=3",
    "trainer.save_every=1",
    "rollout.group_size=2",
    "rollout.sampling.max_new_tokens=4",
    "environments.bandit.num_groups=2",
    "algorithm=ppo",
    "evaluation.num_episodes=2",
    "evaluation.every=2",
)


@faults_app.command
def kill(
    recipe: str | None = None,
    /,
    *overrides: str,
    kills: int = 200,
    seed: int = 0,
    folder: Path | None = None,
    as_json: Json = False,
) -> None:
    """Kill training with kill -9 at random moments, resume it, and compare it with the unbroken run, bit for bit.

    Three of four kills come at an operation on a file, each of them once before any comes twice; at every second flush the file
    is cut short first. The rest come at any moment. Exit code 1 if a run cannot be resumed or comes out otherwise.

    Parameters
    ----------
    recipe
        a recipe or YAML file that takes seconds; default: one made for this
    overrides
        settings to change, as in `ragen train`
    kills
        how many
    seed
        of the moments
    folder
        where the runs lie, on the disk that is to be tried; default: a temporary folder
    as_json
        print the report as JSON, progress on stderr
    """
    from ragen.errors import ConfigError

    if kills < 1:
        raise ConfigError(f"--kills={kills}: must be at least 1")
    config = _load(recipe, overrides, SMALL)
    from ragen.faults.kill import kill_and_resume

    with _folder(folder) as name:
        report = kill_and_resume(config, Path(name), num_kills=kills, seed=seed, say=_progress)
    if as_json:
        print_json({**asdict(report), "ok": report.ok})
    else:
        for line in (*report.lost, *report.different):
            print(line)
        print(
            f"{report.num_kills} kills in {report.num_runs} runs, {report.num_at_operations} of them at one of "
            f"{report.num_operations} file operations: {len(report.lost)} lost, {len(report.different)} different"
        )
    if not report.ok:
        sys.exit(1)


@faults_app.command
def disk(
    recipe: str | None = None,
    /,
    *overrides: str,
    times: int | None = None,
    seed: int = 0,
    folder: Path | None = None,
    as_json: Json = False,
) -> None:
    """Let the disk fill up, become read-only or deny access at every file operation of a run in turn, then resume it.

    Exit code 1 unless each ends in one line with exit code 1, can be resumed, and comes out like the unbroken run, bit for bit.

    Parameters
    ----------
    recipe
        a recipe or YAML file that takes seconds; default: one made for this
    overrides
        settings to change, as in `ragen train`
    times
        so many operations, drawn at random; default: every one
    seed
        of the draw
    folder
        where the runs lie; default: a temporary folder
    as_json
        print the report as JSON, progress on stderr
    """
    from ragen.errors import ConfigError

    if times is not None and times < 1:
        raise ConfigError(f"--times={times}: must be at least 1")
    config = _load(recipe, overrides, SMALL)
    from ragen.faults.disk import refuse_and_resume

    with _folder(folder) as name:
        report = refuse_and_resume(config, Path(name), num_refusals=times, seed=seed, say=_progress)
    if as_json:
        print_json({**asdict(report), "ok": report.ok})
    else:
        for line in (*report.rude, *report.lost, *report.different):
            print(line)
        print(
            f"{report.num_refusals} refusals over {report.num_operations} file operations, {report.num_endured} endured: "
            f"{len(report.rude)} rude, {len(report.lost)} lost, {len(report.different)} different"
        )
    if not report.ok:
        sys.exit(1)


@faults_app.command
def soak(steps: int = 2000, /, *overrides: str, seed: int = 0, folder: Path | None = None, as_json: Json = False) -> None:
    """Train many tiny steps on environments that fail at random, and watch memory, open handles and threads.

    Exit code 1 if the run ends otherwise than it should, or if any of them grows. Linux only.

    Parameters
    ----------
    steps
        how many
    overrides
        settings to change, as in `ragen train`
    seed
        of the run
    folder
        where the run lies; default: a temporary folder
    as_json
        print the report as JSON, progress on stderr
    """
    from ragen.errors import ConfigError
    from ragen.faults.soak import FLAKY, MIN_STEPS, soak_run

    if steps < MIN_STEPS:
        raise ConfigError(f"steps={steps}: must be at least {MIN_STEPS}, or there is no slope to speak of")
    config = _load(None, overrides, (*FLAKY, f"trainer.steps={steps}", f"seed={seed}"))
    with _folder(folder) as name:
        report = soak_run(config, Path(name), say=_progress)
    if as_json:
        print_json({**asdict(report), "ok": report.ok})
    else:
        for line in report.lines():
            print(line)
    if not report.ok:
        sys.exit(1)


def _load(recipe: str | None, overrides: tuple[str, ...], settings: tuple[str, ...]) -> Config:
    """The recipe as it is; without one the smallest, with these settings."""
    from ragen.config.load import load

    if recipe is not None and "=" not in recipe:
        return load(recipe, overrides)
    return load("bandit_tiny", (*settings, *((recipe,) if recipe else ()), *overrides))


def _folder(folder: Path | None) -> AbstractContextManager[str]:
    """One's own, which has to be empty and stays; or one that goes."""
    from ragen.errors import StorageError
    from ragen.files import storage

    if folder is None:
        return tempfile.TemporaryDirectory(prefix="ragen-faults-")
    with storage("use", folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise StorageError(f"{folder}: must be empty; the runs that are tried are put there")
    return nullcontext(str(folder))


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
