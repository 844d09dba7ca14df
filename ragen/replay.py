"""A recorded step once more: is it the code, or the machine?

    from ragen.replay import replay

    print(replay(Path("runs/bandit"), 5).num_different)

The trajectories come from the step's rollout file, the policy from the checkpoint before it, the settings are those that the step
was played under, and `Trainer.learn` does with them what it did then, in a folder aside. What comes out is compared with what the
run recorded: metrics, advantages, and the checkpoint after the step where it is kept. On the machine and the libraries of the run
all of it is equal bit for bit.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragen.assembly import assemble
from ragen.config.schema import Config
from ragen.errors import StorageError
from ragen.replay_rows import Row, compare_advantages, compare_numbers, compare_played, compare_tensors, equal_or
from ragen.rollout.recorder import Recorded, groups_of, read_rollout
from ragen.run_folder import changed_since, config_of
from ragen.training.checkpoint import CHECKPOINTS, NAME, STATE, Checkpoint, find_fault, load_checkpoint
from ragen.training.display import Display
from ragen.training.superseded import ROLLOUTS
from ragen.training.trackers import Trackers, TrackingConfig, read_metrics
from ragen.training.trainer import Trainer

# What no two executions share, or what is known only while a step is played.
UNSHARED_PREFIXES = ("time/", "memory/", "eval/")
UNSHARED = (
    "rollout/tokens_per_s",
    "rollout/lost_workers",
    "rollout/out_of_memory",
    "update/tokens_per_s",
    "filter/dropped_s",
    "filter/extra_rounds",
)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What was compared. `notes` says what could not be, and what else is worth knowing, one line each."""

    folder: Path
    step: int  # counted from 1, as everywhere in a run folder
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def num_different(self) -> int:
        return sum(not row.is_equal for row in self.rows)


def replay(folder: Path, step: int, *, rollout: bool = False, display: Display | None = None) -> Replay:
    """Repeat the update of a recorded step, and with `rollout` its sampling too; nothing in the run folder is touched.

    Raises StorageError, in one line that says which setting would have kept it, if something that is needed is not there.
    """
    config = config_of(folder, step)
    recorded = _read_step(folder, step)
    before = _checkpoint_before(folder, step, config)
    logged = next((row for row in read_metrics(folder) if row["step"] == step), None)
    if logged is None:
        raise StorageError(f"{folder}: step {step} was never logged, so there is nothing to compare with")
    config = replace(config, tracking=TrackingConfig(backends=[]))
    shown = display or Display()
    with tempfile.TemporaryDirectory(prefix="ragen-replay-") as name:
        aside = Path(name)
        trainer, _ = assemble(config, aside, before, Trackers(config.tracking, warn=shown.message), shown)
        try:
            source = trainer.rollouts.source(step - 1)
            if rollout and source is not None:
                raise StorageError(f"{folder}: step {step} trained on {source} and sampled nothing that could be sampled again")
            rows = _sample_again(trainer, step, recorded) if rollout else []
            metrics = _update_again(trainer, step, recorded, is_fresh=source is None)
            trainer.save(step, metrics)
        finally:
            trainer.environments.close()
            asyncio.run(trainer.rollouts.engine.close())
        rows += compare_numbers(_shared(logged), _shared(metrics))
        rows.append(compare_advantages(recorded, read_rollout(_rollout_file(aside, step))))
        after, notes = _compare_checkpoints(folder, aside, step)
    if later := changed_since(folder, step):
        notes.append(f"replayed with the settings of step {step}; the run has changed since: {'; '.join(map(str, later))}")
    return Replay(folder=folder, step=step, rows=(*rows, *after), notes=tuple(notes))


def _sample_again(trainer: Trainer, step: int, recorded: list[Recorded]) -> list[Row]:
    played = trainer.rollouts.play(step - 1)
    return compare_played(groups_of(recorded), played.groups)


def _update_again(trainer: Trainer, step: int, recorded: list[Recorded], *, is_fresh: bool) -> dict[str, float]:
    """The metrics of the step, as if it had just been played."""
    return trainer.learn(step - 1, trainer.rollouts.of_record(step - 1, groups_of(recorded), is_fresh=is_fresh))


def _shared(metrics: Mapping[str, float]) -> dict[str, float]:
    """Those that a repetition has to give as well."""
    return {
        key: value
        for key, value in metrics.items()
        if key != "step" and key not in UNSHARED and not key.startswith(UNSHARED_PREFIXES)
    }


def _compare_checkpoints(folder: Path, aside: Path, step: int) -> tuple[list[Row], list[str]]:
    """Weights, optimiser state, critic and counters after the step; a note where the run has not kept them."""
    kept, made = (root / CHECKPOINTS / f"step-{step:06d}" for root in (folder, aside))
    if find_fault(kept):
        return [], [
            f"weights not compared: {kept.name} is not kept; trainer.save_every=1 and a larger trainer.keep_checkpoints keep it"
        ]
    rows = compare_tensors(kept, made)
    then, now = (json.loads((checkpoint / STATE).read_text(encoding="utf-8")) for checkpoint in (kept, made))
    for key in sorted((then.keys() | now.keys()) - {"metrics"}):
        rows.append(equal_or(f"state: {key}", _brief(then.get(key)), _brief(now.get(key)), then.get(key) == now.get(key)))
    return rows, []


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _rollout_file(folder: Path, step: int) -> Path:
    return folder / ROLLOUTS / f"step-{step:06d}.parquet"


def _read_step(folder: Path, step: int) -> list[Recorded]:
    path = _rollout_file(folder, step)
    if not path.is_file():
        present = sorted(int(each.stem.removeprefix("step-")) for each in path.parent.glob("step-*.parquet"))
        known = f"there are those of {_ranges(present)}" if present else "there are none"
        raise StorageError(f"{folder}: there is no rollout file of step {step}; {known} (trainer.keep_rollouts=null keeps all)")
    return read_rollout(path)


def _checkpoint_before(folder: Path, step: int, config: Config) -> Checkpoint | None:
    """The one that the step began from; None for the first step, which began from the model as it is."""
    if step == 1:
        return None
    path = folder / CHECKPOINTS / f"step-{step - 1:06d}"
    if path.is_dir():
        return load_checkpoint(path)
    kept = sorted(int(match[1]) for each in path.parent.glob("step-*") if (match := NAME.fullmatch(each.name)))
    possible = [1] + [after + 1 for after in kept if _rollout_file(folder, after + 1).is_file()]
    kept_by = f"trainer.save_every={config.trainer.save_every} and trainer.keep_checkpoints={config.trainer.keep_checkpoints}"
    raise StorageError(
        f"{folder}: step {step} begins from {path.name}, which is not kept with {kept_by}; "
        f"save_every=1 and a larger keep_checkpoints keep it; can be replayed here: {_ranges(possible)}"
    )


def _ranges(numbers: list[int]) -> str:
    """1, 2, 3, 7 as "1-3, 7"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
