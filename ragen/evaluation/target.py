"""What `ragen eval TARGET` measures: a run's newest checkpoint, one checkpoint, a model as it is, or a policy without tokens."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ragen.credit.rewards import RewardsConfig
from ragen.engines.budget import Budget
from ragen.engines.config import EngineConfig
from ragen.engines.server_config import ServerConfig
from ragen.errors import ConfigError, RagenError, StorageError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.estimate import check_affordable
from ragen.evaluation.evaluate import evaluate, settings_of
from ragen.evaluation.journal import Journal
from ragen.evaluation.kinds import Kind, kind_of
from ragen.evaluation.policies import Ready, open_player, open_server, rollout_for
from ragen.evaluation.results import EVALUATIONS, EvaluationResult, read_result, write_result
from ragen.models.config import ModelConfig
from ragen.rollout.collect import Progress
from ragen.rollout.config import RolloutConfig
from ragen.rollout.environment_config import EnvironmentConfig

NUM_NAMED = 8  # folders that an error names at most


@dataclass(frozen=True, kw_only=True)
class Target:
    """A policy that can be played, and where the measurements of it belong."""

    kind: Kind = Kind.MODEL
    name: str = ""  # without the kind; of a model, its configuration has the name
    model: ModelConfig
    checkpoint: Path | None  # None: the model as it is
    step: int  # training steps behind it
    results: Path  # the folder for `write_result`
    engine: EngineConfig = dataclasses.field(default_factory=EngineConfig)  # of a model

    @property
    def label(self) -> str:
        """What results call it."""
        if self.kind is Kind.MODEL:
            return self.model.name
        return str(self.kind) if self.name == self.kind else f"{self.kind}:{self.name}"


@dataclass(frozen=True, kw_only=True)
class Person:
    """Where a person who plays reads and types."""

    stream: TextIO = dataclasses.field(default_factory=lambda: sys.stdin)
    show: Callable[[str], None] = print


def run_folder_of(target: str) -> Path | None:
    """The run that `target` names, by its own folder or by one of its checkpoints; None if it names something else.

    Raises StorageError for a path where nothing is, or a file, or all of a run's checkpoints.
    """
    path = Path(target)
    if not path.is_dir():
        _refuse_missing(target)
        return None
    from ragen.training.checkpoint import CHECKPOINTS  # here, so that a policy without weights is evaluated without torch

    if path.resolve().name == CHECKPOINTS:
        raise StorageError(f"{target}: holds checkpoints, name one or the run's folder; there are {_saved(path)}")
    if (path / CHECKPOINTS).is_dir():
        return path
    return path.parent.parent if path.resolve().parent.name == CHECKPOINTS else None


def _refuse_missing(target: str) -> None:
    """Raise StorageError if `target` can only be a path, and no folder is there.

    A hub id looks like a path; it is taken for none unless its first part is a folder here.
    """
    path = Path(target)
    is_plain = len(path.parts) == 1 and path.name == target
    if is_plain or kind_of(target)[0] is not Kind.MODEL:
        return
    if path.exists():
        raise StorageError(f"{target}: is a file; name a run's folder, a checkpoint or a model")
    above = next(folder for folder in path.parents if folder.is_dir())
    if above == Path() and not target.startswith("."):
        return
    from ragen.training.checkpoint import CHECKPOINTS

    root = above if above.name == CHECKPOINTS else above / CHECKPOINTS
    if root.is_dir():
        raise StorageError(f"{target}: no such checkpoint; {root} holds {_saved(root)}")
    found = sorted(each.name for each in above.iterdir() if each.is_dir() and not each.name.startswith("."))
    names = ", ".join([*found[:NUM_NAMED], *(["..."] if len(found) > NUM_NAMED else [])]) or "no folder"
    raise StorageError(f"{target}: no such run folder, checkpoint or model; {above} holds {names}")


def _saved(root: Path) -> str:
    from ragen.training.checkpoint import saved_steps

    return ", ".join(f"step-{step:06d}" for step in sorted(saved_steps(root))) or "none"


def find_target(target: str, model: ModelConfig, *, output_dir: Path, engine: EngineConfig | None = None) -> Target:
    """Find what `target` names. `model` is the run's own configuration; for a model by name, only its name is replaced.

    Raises StorageError for a run without a whole checkpoint, or for a damaged one. A model's name is not looked up yet.
    """
    run = run_folder_of(target)
    if run is None:
        kind, name = kind_of(target)
        return Target(
            kind=kind,
            name="" if kind is Kind.MODEL else name,
            model=dataclasses.replace(model, name=target) if kind is Kind.MODEL else model,
            checkpoint=None,
            step=0,
            engine=engine or EngineConfig(),
            results=output_dir / (re.sub(r"[^A-Za-z0-9._-]+", "-", target).strip("-.") or "model") / EVALUATIONS,
        )
    from ragen.training.checkpoint import CHECKPOINTS, latest_checkpoint, load_checkpoint

    checkpoint = latest_checkpoint(run / CHECKPOINTS) if run == Path(target) else Path(target)
    if checkpoint is None:
        raise StorageError(f"{run}: no whole checkpoint to evaluate; go on training with --resume, or name a model")
    return Target(
        model=model,
        checkpoint=checkpoint,
        step=load_checkpoint(checkpoint).step,
        results=run / EVALUATIONS,
        engine=engine or EngineConfig(),
    )


def check_effect(target: Target, rollout: RolloutConfig, server: ServerConfig, overrides: Sequence[str] = ()) -> None:
    """Raise ConfigError for a setting that would have no effect on this kind of policy.

    `overrides` are those of the command line: a run has settings of its own for where it lies, which are not in the way.
    """
    label = target.label
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key == "name":
            raise ConfigError(f"{override}: has no effect, results lie in the folder {target.results}; leave name out")
        if key == "output_dir" and target.checkpoint is not None:
            raise ConfigError(f"{override}: has no effect, results of a run lie in it, in {target.results}; leave output_dir out")
    if not target.kind.is_server:
        for key in _changed(server):
            raise ConfigError(f"server.{key}: has no effect, {label} is no server; only openai:MODEL and anthropic:MODEL are")
    if target.kind is not Kind.MODEL:
        for key in _changed(target.model):
            raise ConfigError(f"model.{key}: has no effect, {label} loads no model")
        for key in _changed(target.engine):
            raise ConfigError(f"engine.{key}: has no effect, {label} loads no model")
    if target.kind is Kind.ANTHROPIC and server.dialect != "auto":
        raise ConfigError(f"server.dialect={server.dialect}: has no effect, {label} speaks Anthropic's protocol")
    if server.prefill and not rollout.context.reply_prefix:
        raise ConfigError("server.prefill=true: has no effect without rollout.context.reply_prefix=true")
    if server.prefill and target.kind is Kind.OPENAI and server.speaks == "openai":
        raise ConfigError("server.prefill=true: OpenAI's own models do not go on from a beginning; set server.base_url")


def evaluate_target(
    target: Target,
    environments: Mapping[str, EnvironmentConfig],
    evaluation: EvaluationConfig,
    rollout: RolloutConfig,
    *,
    server: ServerConfig | None = None,
    kind: str = "eval",
    rewards: RewardsConfig | None = None,
    journal: Journal | None = None,
    person: Person | None = None,
    on_progress: Progress | None = None,
) -> EvaluationResult:
    """Make the policy of `target` ready and evaluate it.

    Nothing is written before it is ready; then `journal` begins. Its end is the caller's.
    Raises ModelError or ServerError if it cannot be had, ConfigError if a key is missing or a server is estimated to cost more
    than it may, BudgetSpent where it does, else as `evaluate`.
    """
    server = server or ServerConfig()
    rollout = rollout_for(target.kind, rollout, server)
    check_affordable(environments, evaluation, rollout, server)
    budget = Budget(server, paid=journal.paid, on_paid=journal.pay) if journal else Budget(server)

    async def play() -> EvaluationResult:
        async with _open(target, rollout, server, budget, person or Person()) as ready:
            if journal is not None:
                journal.begin()
            result = await evaluate(
                ready.engine,
                ready.template,
                environments,
                evaluation,
                rollout,
                model=target.label,
                step=target.step,
                kind=kind,
                rewards=rewards,
                concurrency=ready.concurrency,
                journal=journal,
                on_progress=on_progress,
            )
        if not target.kind.is_server:
            return result
        return dataclasses.replace(result, usage=dataclasses.asdict(budget.usage))

    return asyncio.run(play())


def evaluate_and_keep(
    target: Target,
    environments: Mapping[str, EnvironmentConfig],
    evaluation: EvaluationConfig,
    rollout: RolloutConfig,
    *,
    server: ServerConfig,
    kind: str = "eval",
    rewards: RewardsConfig | None = None,
    resume: bool = False,
    or_begin: bool = False,
    person: Person | None = None,
    on_progress: Progress | None = None,
) -> tuple[EvaluationResult, Path]:
    """As `evaluate_target`, with every episode kept as soon as it has ended; also gives the file that holds the result.

    With `resume`, the episodes that an evaluation with the same settings had finished when it was stopped are not played again;
    if it had finished all of them, its result is read. Where there was none, that is a StorageError, unless `or_begin`; where
    another process is writing it, always.
    """
    settings = settings_of(environments, evaluation, rollout_for(target.kind, rollout, server))
    about = {"model": target.label, "checkpoint": str(target.checkpoint or ""), "settings": settings}
    about["server"] = _asked(server) if target.kind.is_server else {}
    stem = f"step-{target.step:06d}-{kind}"
    journal = Journal.resume(target.results, stem, about) if resume else None
    if resume and journal is None and (done := _finished(target, kind, settings)):
        return done
    if journal is None and resume and not or_begin:
        hint = Journal.differences(target.results, stem, about)
        raise StorageError(f"{target.results}: no stopped evaluation with these settings{hint}; evaluate without --resume")
    journal = journal or Journal(target.results, stem, about)
    with _told_how_to_go_on(journal):
        result = evaluate_target(
            target,
            environments,
            evaluation,
            rollout,
            server=server,
            kind=kind,
            rewards=rewards,
            journal=journal,
            person=person,
            on_progress=on_progress,
        )
        path = write_result(target.results, result)
        journal.remove()
    return result, path


def _finished(target: Target, kind: str, settings: Mapping[str, Any]) -> tuple[EvaluationResult, Path] | None:
    """The result of an evaluation like this one that was ended, and its file."""
    written = json.loads(json.dumps(settings))
    for path in sorted(target.results.glob(f"step-{target.step:06d}-{kind}*.json")):
        result = read_result(path)
        if (result.model, result.kind, result.settings) == (target.label, kind, written):
            return result, path
    return None


@contextmanager
def _told_how_to_go_on(journal: Journal) -> Iterator[None]:
    """Whatever stops an evaluation says what is kept of it. A journal of nothing is not kept."""
    try:
        yield
    except (RagenError, KeyboardInterrupt) as stop:
        num_finished = len(journal.finished)
        if not num_finished and not journal.paid:
            journal.remove()
            raise
        how = f"{num_finished} finished episodes are kept in {journal.path}, --resume goes on with the others"
        if isinstance(stop, KeyboardInterrupt):
            stop.add_note(how)
            raise
        raise type(stop)(f"{stop}; {how}") from stop
    finally:
        journal.release()


@asynccontextmanager
async def _open(
    target: Target, rollout: RolloutConfig, server: ServerConfig, budget: Budget, person: Person
) -> AsyncIterator[Ready]:
    if target.kind.is_server:
        async with open_server(target.kind, target.name, server, budget) as ready:
            yield ready
    elif target.kind is not Kind.MODEL:
        yield open_player(target.kind, target.name, stream=person.stream, show=person.show)
    else:
        async with _open_model(target, rollout) as ready:
            yield ready


@asynccontextmanager
async def _open_model(target: Target, rollout: RolloutConfig) -> AsyncIterator[Ready]:
    from ragen.engines.torch_engine import TorchEngine
    from ragen.models.chat import ChatTemplate
    from ragen.models.policy import load_policy

    policy = load_policy(target.model, checkpoint=target.checkpoint)
    policy.check_window(rollout.context.max_context_tokens)
    template = ChatTemplate.configured(policy.tokenizer, target.model)
    engine = TorchEngine(policy, target.engine)
    try:
        yield Ready(engine=engine, template=template, concurrency=None)
    finally:
        await engine.close()


def _changed(config: ModelConfig | ServerConfig | EngineConfig) -> list[str]:
    """The settings that are not the default."""
    default = type(config)()
    return [f.name for f in dataclasses.fields(config) if getattr(config, f.name) != getattr(default, f.name)]


def _asked(server: ServerConfig) -> dict[str, object]:
    """What decides a server's replies: where it is and what is sent to it, not how patiently."""
    keys = ("base_url", "dialect", "prefill", "omit", "extra")
    return {key: getattr(server, key) for key in keys}
