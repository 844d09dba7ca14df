"""From a configuration to the parts of a run: model, engine, environments, critic, learner, and the trainer over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from ragen.config.check import check_source
from ragen.config.load import load_file
from ragen.config.schema import Config
from ragen.config.suites import load_suite
from ragen.engines.torch_engine import TorchEngine
from ragen.evaluation.measurements import measurements
from ragen.evaluation.results import EVALUATIONS
from ragen.evaluation.validation import Validation
from ragen.models.aliases import resolve
from ragen.models.chat import ChatTemplate
from ragen.models.policy import Policy, load_policy
from ragen.models.processor import processor
from ragen.records import Split
from ragen.rollout.collect import context_factory
from ragen.rollout.state_manager import EnvStateManager
from ragen.training.checkpoint import Checkpoint
from ragen.training.critic import Critic, load_critic
from ragen.training.display import Display
from ragen.training.memory_plan import MemoryPlan, UpdateCost, free_bytes, plan_memory
from ragen.training.memory_probe import measure_cost
from ragen.training.pack_size import PackSize
from ragen.training.recorded import rollout_files
from ragen.training.rollout_phase import RolloutPhase
from ragen.training.scoring import chunk_scores
from ragen.training.signals import Stop
from ragen.training.superseded import CONFIG_FILE
from ragen.training.trackers import Trackers
from ragen.training.trainer import Trainer
from ragen.training.update import Learner


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
        model=config.model,
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
    rollouts = RolloutPhase(
        folder=folder,
        rollout=config.rollout,
        rewards=config.rewards,
        algorithm=config.algorithm,
        engine=engine,
        environments=environments,
        make_context=context_factory(template, config.rollout),
        display=display,
        stop=stop,
        updates_per_rollout=config.trainer.updates_per_rollout,
        other_rollouts=other_rollouts(config) if config.trainer.rollouts_from else (),
    )
    trainer = Trainer(
        folder=folder,
        config=config.trainer,
        algorithm=config.algorithm,
        rollouts=rollouts,
        learner=learner,
        critic=critic,
        evaluate=measure,
        evaluate_every=config.evaluation.every,
        evaluate_beside=measure.beside if config.evaluation.beside else None,
        trackers=trackers,
        display=display,
        stop=stop,
    )
    if checkpoint is not None:
        trainer.restore(checkpoint)
    plan_packs(config, learner, critic, display, resumed=checkpoint is not None)
    return trainer, measure


def other_rollouts(config: Config) -> list[Path]:
    """The files of the run that `trainer.rollouts_from` names, if they can be trained on."""
    folder = Path(config.trainer.rollouts_from)
    files = rollout_files(folder)
    check_source(config, load_file(folder / CONFIG_FILE))
    return files


def plan_packs(config: Config, learner: Learner, critic: Critic | None, display: Display, *, resumed: bool) -> None:
    """Choose how many tokens a forward pass of the update takes, and say how much memory that is expected to need.

    A resumed run keeps the size it had, unless another one is asked for. What does not fit otherwise is computed again in the
    backward pass, which changes no bit.
    """
    chosen = config.trainer.pack_tokens or (learner.pack_size.tokens if resumed else None)
    policy = learner.policy
    cost = measure_cost(policy, learner.score, scores_at_once=chunk_scores(policy.device))
    plan = _plan(cost, config, learner, critic, chosen)
    if not plan.fits and (num_layers := policy.recompute_layers()):
        display.message(
            f"memory of the update: {plan.forecast_bytes / 2**30:.2f} GiB would be more than the {plan.budget_bytes / 2**30:.2f} "
            "allowed, so layers are computed again in the backward pass"
        )
        less = cost.recomputed(num_layers=num_layers, input_bytes=policy.width * policy.dtype.itemsize)
        plan = _plan(less, config, learner, critic, chosen)
    learner.pack_size.tokens = plan.pack_tokens
    display.message(str(plan))


def _plan(cost: UpdateCost, config: Config, learner: Learner, critic: Critic | None, chosen: int | None) -> MemoryPlan:
    trained = [*learner.policy.trainable().values(), *(critic.trainable().values() if critic else ())]
    return plan_memory(
        cost,
        prompt=config.rollout.context.max_context_tokens,  # at most: a prompt with what follows it is not longer
        continuation=0,
        num_trained=sum(p.numel() for p in trained),
        reserved_bytes=0,  # the engine hands back its caches before the update
        budget=config.trainer.memory_budget,
        free_bytes=free_bytes(learner.policy.device),
        pack_tokens=chosen,
    )


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
        f"{str(policy.dtype).removeprefix('torch.')} on {policy.device}{_measured(policy)}; sampling by "
        f"{policy.paths}\n"
        f"{config.trainer.steps} steps of {groups} groups x {config.rollout.group_size} trajectories, "
        f"{config.algorithm.advantage.estimator}, seed {config.seed}\n{template.report()}"
    )


def _measured(policy: Policy) -> str:
    """Why this number format and this layout of the weights, where that was found out by measuring."""
    return f" ({processor()})" if policy.device.type == "cpu" and policy.dtype == torch.bfloat16 else ""
