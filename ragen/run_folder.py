"""The folder of a run: a new one or the one to go on in, one process at a time, where in it a resumed run begins, and under which
settings each of its steps was played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from ragen.config.changes import Change, changes
from ragen.config.continuation import consequences, refuse_what_cannot_continue
from ragen.config.load import dump, load_file, recipes
from ragen.config.schema import Config
from ragen.errors import ConfigError, NothingToDo, StorageError
from ragen.evaluation.locks import alone_writing
from ragen.evaluation.results import EVALUATIONS, EvaluationResult, read_results
from ragen.files import make_folder, storage, write_text
from ragen.training.checkpoint import CHECKPOINTS, Checkpoint, latest_checkpoint, load_checkpoint, named_checkpoint, step_of
from ragen.training.superseded import CONFIG_FILE, EARLIER_CONFIGS, set_aside_later
from ragen.training.trackers import METRICS_FILE, read_metrics

LEARNING_CURVE, LOG, LOCK = "learning_curve.png", "log.txt", ".lock"
WHEREABOUTS = ("name", "output_dir")  # settings that say where the folder lies, and nothing of the run

Say = Callable[[str], None]


def run_folder(config: Config, *, resume: bool, say: Say) -> Path:
    """The folder of the run: the one to go on in, or a new one. A new run never writes into an earlier run's folder."""
    folder = Path(config.output_dir) / config.name
    if resume:
        if not folder.is_dir():
            raise StorageError(f"{folder}: no whole checkpoint to resume from; train without --resume")
        return folder
    number = 2
    while _is_taken(folder):
        folder = Path(config.output_dir) / f"{config.name}-{number}"
        number += 1
    if folder.name != config.name:
        say(f"{config.output_dir}/{config.name} holds an earlier run; this one goes to {folder}")
    with storage("create", folder):
        make_folder(folder)
    return folder


def where_it_lies(config: Config, target: str, overrides: Sequence[str]) -> Config:
    """The settings of a run that is resumed as `target`: if that is a folder, or its config.yaml, the run is the one in there.

    Wherever it lay when it began: it may have been moved, copied or renamed. Raises ConfigError for overrides that name another
    place.
    """
    path = Path(target)
    is_file = path.name == CONFIG_FILE and (path.parent / CHECKPOINTS).is_dir()
    folder = path.parent if is_file else path
    if target in recipes() or not (folder / CONFIG_FILE).is_file():
        return config  # a recipe: the run is where its settings say
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        if key in WHEREABOUTS:
            raise ConfigError(f"{override}: the run in {folder} is resumed where it lies; leave {key} out, or move the folder")
    if folder.name in ("", ".."):
        folder = folder.resolve()
    return replace(config, name=folder.name, output_dir=str(folder.parent))


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep a second process out of the run folder. The lock ends with the process, however that ends."""
    lock = FileLock(folder / LOCK)
    with storage("lock", folder):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise StorageError(f"{folder}: another process is training in it; wait for it, or give this run name=...") from None
    try:
        yield
    finally:
        lock.release()


def find_checkpoint(folder: Path, config: Config, resume: bool | str, *, say: Say) -> Checkpoint:
    """The newest whole checkpoint, or the one that `resume` names, if the run can go on from it and has something left to do.

    Tells what has been changed since and what that means. Raises ConfigError, StorageError or NothingToDo; nothing is touched.
    """
    root = folder / CHECKPOINTS
    chosen = named_checkpoint(root, resume) if isinstance(resume, str) else latest_checkpoint(root)
    if chosen is None:
        raise StorageError(f"{folder}: no whole checkpoint to resume from; train without --resume")
    rows = read_metrics(folder)  # refuses a damaged file before anything is changed
    found = consequences(config_of(folder, step_of(chosen)), config)
    refuse_what_cannot_continue(found)
    for consequence in found:
        say(f"changed since the run began: {consequence}")
    checkpoint = load_checkpoint(chosen)
    done = checkpoint.step
    if lost := sorted(set(range(1, done)) - {row["step"] for row in rows}):
        say(f"{folder / METRICS_FILE} has no rows of steps that are done and cannot be made again: {', '.join(map(str, lost))}")
    is_measured = is_logged(folder, done) and result_at(folder, done) is not None
    if done >= config.trainer.steps and is_measured and (folder / LEARNING_CURVE).exists():
        raise NothingToDo(f"{folder}: all {done} steps are done; trainer.steps=N with a larger N goes on")
    say(f"resuming {folder} from {chosen.name}")
    return checkpoint


def write_config(folder: Path, config: Config) -> None:
    """Write the settings of the steps to come, so that the folder resumes as itself."""
    write_text(folder / CONFIG_FILE, dump(replace(config, name=folder.name)))


def config_of(folder: Path, step: int) -> Config:
    """The settings that a step (counted from 1) was or will be played under, also where the run was resumed with others later."""
    return load_file(_config_file(folder, step))


def changed_since(folder: Path, step: int) -> list[Change]:
    """In which settings the run has been changed since it played this step."""
    return _changes(config_of(folder, step), load_file(folder / CONFIG_FILE))


def go_on_from(folder: Path, step: int, config: Config) -> Path | None:
    """Make the folder that of a run which has done `step` steps and goes on under `config`; what was played beyond is set aside.

    Returns where that lies now, None if there was nothing. The settings of the steps that stay are kept under the last of them.
    In this order a kill leaves at most a copy too many, never a step without the settings that it was played under.
    """
    then, own = _config_file(folder, step), folder / EARLIER_CONFIGS / f"step-{step:06d}.yaml"
    was_changed = bool(_changes(load_file(then), config))
    if step and then != own and (was_changed or then != folder / CONFIG_FILE):
        with storage("read", then):
            text = then.read_text(encoding="utf-8")
        write_text(own, text)
    with alone_writing(folder / EVALUATIONS):  # an evaluation of one of its checkpoints may end in this moment
        kept = set_aside_later(folder, step)
    write_config(folder, config)
    if not was_changed:
        with storage("delete", own):
            own.unlink(missing_ok=True)
    return kept


def _config_file(folder: Path, step: int) -> Path:
    by_last_step = sorted((step_of(path), path) for path in (folder / EARLIER_CONFIGS).glob("step-*.yaml"))
    return next((path for last, path in by_last_step if step <= last), folder / CONFIG_FILE)


def _changes(old: Config, new: Config) -> list[Change]:
    return [change for change in changes(old, new) if change.key not in WHEREABOUTS]


def is_logged(folder: Path, step: int) -> bool:
    """Whether the metrics of a step have been written."""
    return any(row["step"] == step for row in read_metrics(folder))


def result_at(folder: Path, step: int) -> EvaluationResult | None:
    """The held-out evaluation after a step, if there was one."""
    return next((result for result in read_results(folder / EVALUATIONS) if result.step == step), None)


def _is_taken(folder: Path) -> bool:
    """Whether something lies there that must not be written into. A run that failed before it began left nothing of worth."""
    if not folder.is_dir():
        return folder.exists()
    return any(path.name not in (CONFIG_FILE, LOG, LOCK) for path in folder.iterdir())
