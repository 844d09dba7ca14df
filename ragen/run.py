"""From a configuration to a finished run: makes every part, lets the trainer loop, and shows what came of it.

The same function serves the command line and Python:

    from ragen.config.load import load
    from ragen.run import train

    summary = train(load("bandit", ["trainer.steps=2"]))
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console
from rich.text import Text

from ragen.config.changes import changes
from ragen.config.check import check
from ragen.config.load import dump, load_file
from ragen.config.schema import Config
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import ConfigError, NothingToDo, RagenError, StorageError
from ragen.evaluation.evaluate import evaluate
from ragen.evaluation.results import EvaluationResult, read_results, write_result
from ragen.files import storage, write_text
from ragen.models.aliases import resolve
from ragen.models.chat import ChatTemplate
from ragen.models.policy import Policy, load_policy
from ragen.records import Split
from ragen.rollout.collect import context_factory
from ragen.rollout.state_manager import EnvStateManager
from ragen.training.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint
from ragen.training.critic import Critic, load_critic
from ragen.training.display import Display
from ragen.training.learning_curve import draw_learning_curve
from ragen.training.report import before_after_table, example_panels, next_commands
from ragen.training.trackers import RunInfo, Trackers, read_metrics
from ragen.training.trainer import CHECKPOINTS, Trainer, peak_memory_gib
from ragen.training.update import Learner

CONFIG_FILE, EVALUATIONS, LEARNING_CURVE, LOG, LOCK = "config.yaml", "eval", "learning_curve.png", "log.txt", ".lock"
FIXED_KEYS = (
    "seed",
    "model.",
    "rollout.group_size",
    "environments.",
    "algorithm.critic.kind",
    "algorithm.critic.model",
    "algorithm.critic.lora_rank",
)  # what a run cannot change on its way


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


def train(config: Config, *, resume: bool = False, console: Console | None = None) -> RunSummary:
    """Train from the start, or from the newest whole checkpoint of the run folder with `resume`.

    Everything that can be refused is refused before the model loads.
    Raises the RagenErrors of the parts, and NothingToDo when a resumed run has no step left.
    """
    check(config)
    display = Display(console)
    with _warnings_on(display):
        return _train(config, resume, display)


def _train(config: Config, resume: bool, display: Display) -> RunSummary:
    started = time.monotonic()
    trackers = Trackers(config.tracking, warn=display.message)
    folder = _run_folder(config, resume, display)
    with _alone_in(folder):
        checkpoint = _find_checkpoint(folder, config, display) if resume else None  # refused: nothing is touched
        display.open_log(folder / LOG)
        try:
            write_text(folder / CONFIG_FILE, dump(replace(config, name=folder.name)))  # so that the folder resumes as itself
            steps = _run(config, folder, checkpoint, trackers, display)
            after = _result_at(folder, steps)
            assert after is not None, "the last step is always evaluated"
            summary = RunSummary(
                folder=folder,
                steps=steps,
                seconds=time.monotonic() - started,
                peak_memory_gib=peak_memory_gib(),
                before=_result_at(folder, 0),
                after=after,
            )
            _report(summary, config, display)
            return summary
        except RagenError as error:
            display.log(Text(f"error: {error}"))
            raise
        finally:
            display.close_log()


def _run(config: Config, folder: Path, checkpoint: Checkpoint | None, trackers: Trackers, display: Display) -> int:
    """Train to the last step, with everything closed in every exit; returns the number of steps done."""
    trainer, measure = _assemble(config, folder, checkpoint, trackers, display)
    resumed_step = checkpoint.step if checkpoint else None
    trackers.start(RunInfo(folder=folder, name=folder.name, config=asdict(config), resumed_step=resumed_step))
    try:
        if checkpoint is None:
            if config.evaluation.before_training:
                trackers.log(measure(0), 0)
        elif not _is_logged(folder, checkpoint.step):  # the run was stopped between saving this step and logging it
            trainer.finish_step(checkpoint.step, checkpoint.state["metrics"])
        checkpoint = None  # its optimiser state has been copied; twice the size of the trained weights
        trainer.run()
        if _result_at(folder, trainer.num_done) is None:  # the last step was not the last when the run began
            measure(trainer.num_done)
    finally:
        trackers.finish()
        trainer.environments.close()
        asyncio.run(trainer.engine.close())
    return trainer.num_done


@contextmanager
def _warnings_on(display: Display) -> Iterator[None]:
    """Show what parts of the package warn of between the progress bars, and keep it in the run's log."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: display.message(record.getMessage(), style="yellow")  # type: ignore[method-assign]
    logger = logging.getLogger("ragen")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _run_folder(config: Config, resume: bool, display: Display) -> Path:
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
        display.message(f"{config.output_dir}/{config.name} holds an earlier run; this one goes to {folder}")
    with storage("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
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


def _find_checkpoint(folder: Path, config: Config, display: Display) -> Checkpoint:
    """The newest whole checkpoint, if the run can go on from it as configured and has something left to do."""
    latest = latest_checkpoint(folder / CHECKPOINTS)
    if latest is None:
        raise StorageError(f"{folder}: no whole checkpoint to resume from; train without --resume")
    read_metrics(folder)  # refuses a damaged file before anything is changed
    for change in changes(load_file(folder / CONFIG_FILE), config):
        if change.key.startswith(FIXED_KEYS):
            raise ConfigError(f"{change}: cannot change when a run is resumed; start a new one with name=...")
        display.message(f"changed since the run began: {change}")
    checkpoint = load_checkpoint(latest)
    done = checkpoint.step
    is_measured = _is_logged(folder, done) and _result_at(folder, done) is not None
    if done >= config.trainer.steps and is_measured and (folder / LEARNING_CURVE).exists():
        raise NothingToDo(f"{folder}: all {done} steps are done; trainer.steps=N with a larger N goes on")
    display.message(f"resuming {folder} from {latest.name}")
    return checkpoint


def _is_taken(folder: Path) -> bool:
    """Whether something lies there that must not be written into. A run that failed before it began left nothing of worth."""
    if not folder.is_dir():
        return folder.exists()
    return any(path.name not in (CONFIG_FILE, LOG, LOCK) for path in folder.iterdir())


def _is_logged(folder: Path, step: int) -> bool:
    return any(row["step"] == step for row in read_metrics(folder))


def _assemble(
    config: Config, folder: Path, checkpoint: Checkpoint | None, trackers: Trackers, display: Display
) -> tuple[Trainer, Callable[[int], Mapping[str, float]]]:
    """Load the model and make every part of the run around it; also returns how the policy is measured after a step."""
    resolve(config.model.name, display.download)
    display.end_download()
    with_reference = config.algorithm.kl.coef > 0 or config.trainer.kl_groups > 0
    weights = checkpoint.folder if checkpoint else None
    policy = load_policy(config.model, checkpoint=weights, seed=config.seed, with_reference=with_reference)
    policy.check_window(config.rollout.context.max_context_tokens)
    template = ChatTemplate.configured(policy.tokenizer, config.model)
    engine = TorchEngine(policy, config.engine)
    display.message(_describe(policy, config, template))

    def measure(done: int) -> Mapping[str, float]:
        """Evaluate on held-out seeds, keep the result in the run folder, return its metrics."""
        engine.reset()
        episodes = config.evaluation.num_episodes * len(config.environments)
        with display.rollout_progress(episodes, "evaluation") as show:
            result = asyncio.run(
                evaluate(
                    engine,
                    template,
                    config.environments,
                    config.evaluation,
                    config.rollout,
                    model=config.model.name,
                    step=done,
                    rewards=config.rewards,
                    on_progress=show,
                )
            )
        write_result(folder / EVALUATIONS, result)
        interval = result.success
        display.message(
            f"held-out success after {done} steps: {interval.mean:.1%} [{interval.low:.1%}, {interval.high:.1%}], "
            f"{result.num_episodes} episodes"
        )
        return {**result.metrics(), "time/eval_s": result.seconds}

    sampling = config.rollout.sampling
    learner = Learner(
        policy,
        config.algorithm,
        config.optimizer,
        temperature=sampling.temperature,
        run_seed=config.seed,
        truncated=sampling.top_p < 1 or sampling.top_k > 0,
        episode_tokens=_episode_tokens(config),
    )
    environments = EnvStateManager(
        config.environments,
        group_size=config.rollout.group_size,
        run_seed=config.seed,
        split=Split.TRAIN,
        curriculum=config.rollout.curriculum,
    )
    trainer = Trainer(
        folder=folder,
        config=config.trainer,
        rollout=config.rollout,
        rewards=config.rewards,
        algorithm=config.algorithm,
        learner=learner,
        critic=_critic(config, policy, weights, display) if config.algorithm.advantage.needs_critic else None,
        engine=engine,
        environments=environments,
        make_context=context_factory(template, config.rollout),
        evaluate=measure,
        trackers=trackers,
        display=display,
    )
    if checkpoint is not None:
        trainer.restore(checkpoint)
    return trainer, measure


def _critic(config: Config, policy: Policy, weights: Path | None, display: Display) -> Critic:
    """The critic of the policy, from the same checkpoint if there is one."""
    settings = config.algorithm.critic
    if settings.model:
        resolve(settings.model, display.download)
        display.end_download()
    critic = load_critic(settings, policy, config.model, config.optimizer, run_seed=config.seed, checkpoint=weights)
    critic.check_window(config.rollout.context.max_context_tokens)
    trained = sum(p.numel() for p in critic.trainable().values())
    display.message(f"critic: {settings.kind_beside(config.model)}, {trained / 1e6:.1f}M trained")
    return critic


def _episode_tokens(config: Config) -> int:
    """Trained tokens that an episode may hold at most: those of every reply, and of the summaries before all but the first."""
    most_turns = max(environment.max_turns for environment in config.environments.values())
    context = config.rollout.context
    summary = context.summary_tokens if context.asks_for_summaries and context.train_summaries else 0
    return config.rollout.sampling.max_new_tokens * most_turns + summary * (most_turns - 1)


def _describe(policy: Policy, config: Config, template: ChatTemplate) -> str:
    trained = sum(p.numel() for p in policy.trainable().values())
    groups = sum(environment.num_groups for environment in config.environments.values())
    return (
        f"{policy.name}: {policy.num_parameters / 1e6:.0f}M parameters, {trained / 1e6:.1f}M trained ({config.model.tuning}), "
        f"{str(policy.dtype).removeprefix('torch.')} on {policy.device}\n"
        f"{config.trainer.steps} steps of {groups} groups x {config.rollout.group_size} trajectories, "
        f"{config.algorithm.advantage.estimator}, seed {config.seed}\n{template.report()}"
    )


def _result_at(folder: Path, step: int) -> EvaluationResult | None:
    return next((result for result in read_results(folder / EVALUATIONS) if result.step == step), None)


def _report(summary: RunSummary, config: Config, display: Display) -> None:
    """The closing page: table, example trajectories, picture, folder, next commands."""
    curve = summary.folder / LEARNING_CURVE
    draw_learning_curve(read_metrics(summary.folder), curve, title=f"{summary.folder.name}: {config.model.name}")
    display.show(before_after_table(summary.before, summary.after))
    display.show(example_panels(summary.before, summary.after))
    minutes = summary.seconds / 60
    display.message(f"{minutes:.1f} minutes, peak memory {summary.peak_memory_gib:.1f} GiB")
    display.message(f"run folder      {summary.folder}")
    display.message(f"learning curve  {curve}")
    display.show(next_commands(summary.folder, tag=next(iter(config.environments))))
