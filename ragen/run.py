"""From a configuration to a finished run: has every part made, lets the trainer loop, and shows what came of it.

The same function serves the command line and Python:

    from ragen.config.load import load
    from ragen.run import train

    summary = train(load("bandit", ["trainer.steps=2"]))
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ragen.assembly import assemble, other_rollouts
from ragen.config.check import check, check_trainable
from ragen.config.schema import Config
from ragen.errors import RagenError
from ragen.evaluation.results import EvaluationResult
from ragen.redaction import redact
from ragen.run_folder import (
    LEARNING_CURVE,
    LOG,
    alone_in,
    find_checkpoint,
    go_on_from,
    is_logged,
    result_at,
    run_folder,
    write_config,
)
from ragen.training.checkpoint import CHECKPOINTS, Checkpoint, saved_steps
from ragen.training.config import TrainerConfig
from ragen.training.display import Display
from ragen.training.learning_curve import draw_learning_curve
from ragen.training.memory_plan import highest_gib
from ragen.training.report import before_after_table, example_panels, next_commands
from ragen.training.retention import best_step
from ragen.training.signals import Stop
from ragen.training.trackers import RunInfo, Trackers, read_metrics
from ragen.training.watchdog import Watchdog


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a finished run leaves."""

    folder: Path
    steps: int
    seconds: float  # of this process, evaluation included
    peak_memory_gib: float
    before: EvaluationResult | None  # held-out evaluation of the start policy, if it was asked for
    after: EvaluationResult

    def to_json(self) -> dict[str, Any]:
        def brief(result: EvaluationResult) -> dict[str, Any]:
            interval = result.success
            success = {"mean": interval.mean, "low": interval.low, "high": interval.high}
            return {"step": result.step, "num_episodes": result.num_episodes, "success": success}

        return {
            "folder": str(self.folder),
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "peak_memory_gib": round(self.peak_memory_gib, 2),
            "before": brief(self.before) if self.before else None,
            "after": brief(self.after),
        }


def train(config: Config, *, resume: bool | str = False, console: Console | None = None) -> RunSummary:
    """Train from the start, or go on from a checkpoint of the run folder: the newest whole one (`resume=True`) or a named one.

    A name is a step ("40") or the folder of one of the run's own checkpoints; what lies beyond it is moved to `superseded/`.
    Everything that can be refused is refused before the model loads. On the main thread Ctrl-C and SIGTERM end the run with
    everything saved, as docs/resume.md says. Raises the RagenErrors of the parts, Stopped after such a signal, StopNow (a
    KeyboardInterrupt) after a second one, and NothingToDo when a resumed run has no step left.
    """
    check(config)
    check_trainable(config)
    if config.trainer.rollouts_from:
        other_rollouts(config)
    display = Display(console, max_log_bytes=config.trainer.keep_log_mib * 2**20)
    with _warnings_on(display), Stop(config.trainer.on_signal) as stop:
        return _train(config, resume, display, stop)


def _train(config: Config, resume: bool | str, display: Display, stop: Stop) -> RunSummary:
    started = time.monotonic()
    trackers = Trackers(config.tracking, warn=display.message)
    folder = run_folder(config, resume=bool(resume), say=display.message)
    with alone_in(folder):
        # What is refused here has touched nothing.
        checkpoint = find_checkpoint(folder, config, resume, say=display.message) if resume else None
        display.open_log(folder / LOG)
        try:
            if checkpoint is None:
                write_config(folder, config)
            with Watchdog(config.trainer.stall_timeout_s, folder / LOG, advice=f"ragen train {folder} --resume") as watchdog:
                display.on_life = watchdog.alive
                steps = _run(config, folder, checkpoint, trackers, display, stop)
            after = result_at(folder, steps)
            assert after is not None, "the last step is always evaluated"
            summary = RunSummary(
                folder=folder,
                steps=steps,
                seconds=time.monotonic() - started,
                peak_memory_gib=highest_gib(),
                before=result_at(folder, 0),
                after=after,
            )
            _report(summary, config, display)
            return summary
        except RagenError as error:
            display.log(Text(f"error: {error}"))
            raise
        except KeyboardInterrupt as stopped:
            display.log(Text("stopped at once"))
            if saved_steps(folder / CHECKPOINTS):
                stopped.add_note(f"ragen train {folder} --resume goes on from the last checkpoint")
            raise
        finally:
            display.close_log()


def _run(config: Config, folder: Path, checkpoint: Checkpoint | None, trackers: Trackers, display: Display, stop: Stop) -> int:
    """Train to the last step, with everything closed in every exit; returns the number of steps done."""
    trainer, measure = assemble(config, folder, checkpoint, trackers, display, stop)
    with ExitStack() as closing:  # each of them whatever happens to the others, from the last to the first
        closing.callback(lambda: asyncio.run(trainer.rollouts.engine.close()))
        closing.callback(trainer.environments.close)
        if checkpoint is not None and (kept := go_on_from(folder, checkpoint.step, config)) is not None:
            display.message(f"what came after step {checkpoint.step} is played again; it is kept in {kept}")
        closing.callback(trackers.finish)
        resumed_step = checkpoint.step if checkpoint else None
        trackers.start(RunInfo(folder=folder, name=folder.name, config=asdict(config), resumed_step=resumed_step))
        is_unmeasured = trainer.num_done == 0 and config.evaluation.before_training
        if checkpoint is not None and not is_logged(folder, checkpoint.step):
            if trainer.num_done or is_unmeasured:  # the run was stopped between saving this step and logging it
                trainer.unlogged = checkpoint.state["metrics"]
        elif checkpoint is None and is_unmeasured:
            trainer.unlogged = {}
        checkpoint = None  # its optimiser state has been copied; twice the size of the trained weights
        with stop.may_wait():
            trainer.run()
        if result_at(folder, trainer.num_done) is None:  # the last step was not the last when the run began
            measure(trainer.num_done)
    return trainer.num_done


@contextmanager
def _warnings_on(display: Display) -> Iterator[None]:
    """Show what parts of the package warn of between the progress bars; the run's log keeps it, with its stack."""

    def emit(record: logging.LogRecord) -> None:
        display.message(record.getMessage(), style="yellow")
        if record.exc_info:
            display.log(Text(redact(logging.Formatter().formatException(record.exc_info))))

    handler = logging.Handler(logging.WARNING)
    handler.emit = emit  # type: ignore[method-assign]
    logger = logging.getLogger("ragen")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _best_checkpoint(folder: Path, config: TrainerConfig) -> str:
    """Where the checkpoint lies that `trainer.keep_best` has kept, and its value; "" where none is asked for or none has it."""
    key, rows = config.keep_best, read_metrics(folder)
    if key is None:
        return ""
    step = best_step(rows, key, direction=config.keep_best_direction, saved=saved_steps(folder / CHECKPOINTS))
    if step is None:
        return ""
    (value,) = (row[key] for row in rows if row["step"] == step)
    return f"{folder / CHECKPOINTS / f'step-{step:06d}'} ({key}={value:.4g})"


def _report(summary: RunSummary, config: Config, display: Display) -> None:
    """The closing page: table, example trajectories, picture, folder, next commands."""
    curve = summary.folder / LEARNING_CURVE
    draw_learning_curve(read_metrics(summary.folder), curve, title=f"{summary.folder.name}: {config.model.name}")
    display.show(before_after_table(summary.before, summary.after))
    display.show(example_panels(summary.before, summary.after))
    minutes = summary.seconds / 60
    display.message(f"{minutes:.1f} minutes, peak memory {summary.peak_memory_gib:.1f} GiB")
    display.message(f"run folder      {summary.folder}")
    if best := _best_checkpoint(summary.folder, config.trainer):
        display.message(f"best checkpoint {best}")
    display.message(f"learning curve  {curve}")
    display.show(next_commands(summary.folder, tag=next(iter(config.environments))))
