"""Rollouts that are read from their files instead of being played: those of an earlier step, or of another run.

Online-k: a rollout serves k steps; its later steps read what its first one has recorded, so that a resumed run does the same.
Offline: a run trains on the rollouts of another one alone, in their order, over and over.

What was sampled keeps the log-probs and the policy versions that it was sampled with. The losses take their ratios against
these, and `algorithm.loss.tis_cap` and its sisters correct what the clip does not, as for any gap between engine and learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragen.errors import StorageError
from ragen.records import Group
from ragen.rollout.recorder import groups_of, read_rollout
from ragen.training.superseded import ROLLOUTS


def rollout_file(folder: Path, step: int) -> Path:
    """Of the run in `folder`; steps are counted from 0, files from 1."""
    return folder / ROLLOUTS / f"step-{step + 1:06d}.parquet"


def rollout_files(folder: Path) -> list[Path]:
    """Every recorded rollout of the run in `folder`, in order. Raises StorageError if there is none."""
    files = sorted((folder / ROLLOUTS).glob("step-*.parquet"))
    if not files:
        raise StorageError(f"trainer.rollouts_from={folder}: holds no {ROLLOUTS}/step-*.parquet; must be the folder of a run")
    return files


def source_of(step: int, *, folder: Path, updates_per_rollout: int, others: Sequence[Path]) -> Path | None:
    """The file with the rollout that a step trains on; None where the step has to play its own.

    `folder`: of the run itself. `others`: files of another run; where there are some, nothing is played.
    """
    if others:
        return others[step % len(others)]
    first = step - step % updates_per_rollout
    return None if first == step else rollout_file(folder, first)


def read_groups(path: Path) -> list[Group]:
    """The groups of one file as they were played. Raises StorageError if it is not there or not whole."""
    if not path.is_file():
        raise StorageError(f"{path}: the rollout to train on is not there any more (trainer.keep_rollouts=null keeps all)")
    return groups_of(read_rollout(path))
