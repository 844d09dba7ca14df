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
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.text import Text

from ragen.config.check import check, check_source, check_trainable
from ragen.config.load import dump, load_file
from ragen.config.schema import Config
from ragen.config.suites import load_suite
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import RagenError
from ragen.evaluation.measurements import measurements
from ragen.evaluation.results import EVALUATIONS, EvaluationResult
from ragen.evaluation.validation import Validation
from ragen.files import write_text
from ragen.models.aliases import resolve
from ragen.models.chat import ChatTemplate
from ragen.models.policy import Policy, load_policy
from ragen.models.processor import processor
from ragen.records import Split
from ragen.rollout.collect import context_factory
from ragen.rollout.state_manager import EnvStateManager
from ragen.run_folder import (
    CONFIG_FILE,
    LEARNING_CURVE,
    LOG,
    alone_in,
    find_checkpoint,
    is_logged,
    result_at,
    run_folder,
)
from ragen.training.checkpoint import CHECKPOINTS, Checkpoint, saved_steps
from ragen.training.critic import Critic, load_critic
from ragen.training.display import Display
from ragen.training.learning_curve import draw_learning_curve
from ragen.training.memory_plan import free_bytes, plan_memory
from ragen.training.memory_probe import measure_cost
from ragen.training.pack_size import PackSize
from ragen.training.recorded import rollout_files
from ragen.training.report import before_after_table, example_panels, next_commands
from ragen.training.scoring import chunk_scores
from ragen.training.signals import Stop
from ragen.training.superseded import set_aside_later
from ragen.training.trackers import RunInfo, Trackers, read_metrics
from ragen.training.trainer import Trainer, peak_memory_gib
from ragen.training.update import Learner
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
        _other_rollouts(config)
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
            write_text(folder / CONFIG_FILE, dump(replace(config, name=folder.name)))  # so that the folder resumes as itself
            with Watchdog(config.trainer.stall_timeout_s, folder / LOG, advice=f"ragen train {folder} --resume") as watchdog:
                display.on_life = watchdog.alive
                steps = _run(config, folder, checkpoint, trackers, display, stop)
            after = result_at(folder, steps)
            assert after is not None, "the last step is always evaluated"
            summary = RunSummary(
                folder=folder,
                steps=steps,
                seconds=time.monotonic() - started,
                peak_memory_gib=peak_memory_gib(),
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
        closing.callback(lambda: asyncio.run(trainer.engine.close()))
        closing.callback(trainer.environments.close)
        if checkpoint is not None and (kept := set_aside_later(folder, checkpoint.step)) is not None:
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
    """Show what parts of the package warn of between the progress bars, and keep it in the run's log."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: display.message(record.getMessage(), style="yellow")  # type: ignore[method-assign]
    logger = logging.getLogger("ragen")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def assemble(
    config: Config,
    folder: Path,
    checkpoint: Checkpoint | None,
    trackers: Trackers,
    display: Display,
    stop: Stop | None = None,
) -> tuple[Trainer, Callable[[int], Mapping[str, float]]]:
    """Load the model and make every part of the run around it; also returns how the policy is measured after a step."""
    stop = stop or Stop()
    resolve(config.model.name, display.download)
    display.end_download()
    with_reference = config.algorithm.kl.coef > 0 or config.trainer.kl_groups > 0
    weights = checkpoint.folder if checkpoint else None
    policy = load_policy(config.model, checkpoint=weights, seed=config.seed, with_reference=with_reference)
    policy.check_window(config.rollout.context.max_context_tokens)
    template = ChatTemplate.configured(policy.tokenizer, config.model)
    engine = TorchEngine(policy, config.engine, on_step=lambda: display.on_life())
    display.message(_describe(policy, config, template))

    measure = Validation(
        measurements=measurements(config.environments, config.evaluation, [*map(load_suite, config.evaluation.suites)]),
        engine=engine,
        template=template,
        rollout=config.rollout,
        rewards=config.rewards,
        model=config.model.name,
        folder=folder / EVALUATIONS,
        show_episodes=config.evaluation.show_episodes,
        trackers=trackers,
        display=display,
        stop=stop,
    )
    sampling = config.rollout.sampling
    pack_size = PackSize()
    learner = Learner(
        policy,
        config.algorithm,
        config.optimizer,
        temperature=sampling.temperature,
        run_seed=config.seed,
        truncated=sampling.top_p < 1 or sampling.top_k > 0,
        episode_tokens=_episode_tokens(config),
        pack_size=pack_size,
    )
    needs_critic = config.algorithm.advantage.needs_critic
    critic = _critic(config, policy, weights, display, pack_size) if needs_critic else None
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
        critic=critic,
        engine=engine,
        environments=environments,
        make_context=context_factory(template, config.rollout),
        evaluate=measure,
        evaluate_every=config.evaluation.every,
        trackers=trackers,
        display=display,
        stop=stop,
        other_rollouts=_other_rollouts(config) if config.trainer.rollouts_from else (),
    )
    if checkpoint is not None:
        trainer.restore(checkpoint)
    plan_packs(config, learner, critic, display, resumed=checkpoint is not None)
    return trainer, measure


def _other_rollouts(config: Config) -> list[Path]:
    """The files of the run that `trainer.rollouts_from` names, if they can be trained on."""
    folder = Path(config.trainer.rollouts_from)
    files = rollout_files(folder)
    check_source(config, load_file(folder / CONFIG_FILE))
    return files


def plan_packs(config: Config, learner: Learner, critic: Critic | None, display: Display, *, resumed: bool) -> None:
    """Choose how many tokens a forward pass of the update takes, and say how much memory that is expected to need.

    A resumed run keeps the size it had, unless another one is asked for.
    """
    chosen = config.trainer.pack_tokens or (learner.pack_size.tokens if resumed else None)
    device = learner.policy.device
    cost = measure_cost(learner.policy, learner.score, scores_at_once=chunk_scores(device))
    trained = [*learner.policy.trainable().values(), *(critic.trainable().values() if critic else ())]
    plan = plan_memory(
        cost,
        prompt=config.rollout.context.max_context_tokens,  # at most: a prompt with what follows it is not longer
        continuation=0,
        num_trained=sum(p.numel() for p in trained),
        reserved_bytes=0,  # the engine hands back its caches before the update
        budget=config.trainer.memory_budget,
        free_bytes=free_bytes(device),
        pack_tokens=chosen,
    )
    learner.pack_size.tokens = plan.pack_tokens
    display.message(str(plan))


def _critic(config: Config, policy: Policy, weights: Path | None, display: Display, pack_size: PackSize) -> Critic:
    """The critic of the policy, from the same checkpoint if there is one."""
    settings = config.algorithm.critic
    if settings.model:
        resolve(settings.model, display.download)
        display.end_download()
    critic = load_critic(
        settings, policy, config.model, config.optimizer, run_seed=config.seed, checkpoint=weights, pack_size=pack_size
    )
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
        f"{str(policy.dtype).removeprefix('torch.')} on {policy.device}{_measured(policy)}\n"
        f"{config.trainer.steps} steps of {groups} groups x {config.rollout.group_size} trajectories, "
        f"{config.algorithm.advantage.estimator}, seed {config.seed}\n{template.report()}"
    )


def _measured(policy: Policy) -> str:
    """Why this number format and this layout of the weights, where that was found out by measuring."""
    return f" ({processor()})" if policy.device.type == "cpu" and policy.dtype == torch.bfloat16 else ""


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
