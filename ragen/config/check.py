"""Is this configuration possible? Every section checks itself; here are the checks that need more than one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from ragen.config.schema import Config
from ragen.config.suites import load_suite
from ragen.engines.server_config import ServerConfig
from ragen.environments import registry
from ragen.errors import ConfigError, near_match
from ragen.evaluation.kinds import Kind, kind_of
from ragen.models.config import ModelConfig
from ragen.redaction import is_secret_setting, redact
from ragen.rollout.curriculum import FIXED, Curriculum


def check(config: Config) -> None:
    """Raise ConfigError, one line naming key, value and what is allowed, for the first thing that is wrong. Loads nothing."""
    _check_secrets(config)
    _check_finite(config)
    _check_run(config)
    for section in (
        config.model,
        config.engine,
        config.rollout,
        config.rewards,
        config.algorithm,
        config.optimizer,
        config.trainer,
        config.evaluation,
        config.server,
        config.tracking,
    ):
        section.check()
    _check_environments(config)
    _check_suites(config)
    _check_group_size(config)
    _check_critic(config)
    _check_minibatches(config)
    _check_correction(config)
    _check_room(config)
    _check_overlong(config)
    _check_tuning(config.model)
    _check_keep_best(config)
    _check_beside(config)
    _check_recorded(config)


def check_trainable(config: Config) -> None:
    """Raise ConfigError for settings that only an evaluation can follow, since they are of policies without token ids."""
    kind, _ = kind_of(config.model.name)
    if kind is not Kind.MODEL:
        raise ConfigError(
            f"model.name={config.model.name}: has no token ids to train on or to look at; it is for ragen eval alone"
        )
    for key, value in leaves(config.server):
        if value != getattr(ServerConfig(), key, None):
            raise ConfigError(f"server.{key}: has no effect here; only ragen eval openai:MODEL and anthropic:MODEL ask a server")


def _check_finite(config: Config) -> None:
    """One rule for all: no setting is nan or infinite. Comparisons with nan are false, so a range check alone may let it pass."""
    for key, value in leaves(config):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}={value}: must be a finite number")


def _check_secrets(config: Config) -> None:
    """Settings are written into the run folder and sent to trackers. The first check: what is refused later shows its value."""
    for key, value in leaves(config):
        if isinstance(value, str) and value and (is_secret_setting(key.rpartition(".")[2]) or redact(value) != value):
            raise ConfigError(
                f"{key}: holds a key or password, and settings are written into the run folder and sent to trackers; "
                "put it into an environment variable that the part reads itself"
            )


def _check_run(config: Config) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", config.name):
        raise ConfigError(
            f"name={config.name!r}: names the run folder, so letters, digits, '.', '_' and '-' only, with a letter or digit first"
        )
    if config.seed < 0:
        raise ConfigError(f"seed={config.seed}: must be at least 0")
    if not config.output_dir:
        raise ConfigError("output_dir='': must be a folder; '.' is the current one")


def _check_environments(config: Config) -> None:
    if not config.environments:
        raise ConfigError("environments: at least one is needed; add one with +env@environments.bandit=bandit")
    for tag, environment in config.environments.items():
        environment.check(tag)
        if environment.max_actions_per_turn > environment.max_actions:
            raise ConfigError(
                f"environments.{tag}.max_actions_per_turn={environment.max_actions_per_turn}: must be at most "
                f"environments.{tag}.max_actions={environment.max_actions}, the budget of the whole trajectory"
            )


def _check_suites(config: Config) -> None:
    named: dict[str, str] = {}
    for target in config.evaluation.suites:
        try:
            suite = load_suite(target)
        except ConfigError as error:
            raise ConfigError(f"evaluation.suites: {error}") from None
        if (other := named.setdefault(suite.name, target)) != target:
            raise ConfigError(f"evaluation.suites: {other} and {target} would both be called {suite.name!r} in files and metrics")


def _check_group_size(config: Config) -> None:
    """bug-log row 17: the advantage of the only member of a group is nothing, or nan."""
    advantage, size = config.algorithm.advantage, config.rollout.group_size
    if advantage.compares_members and size < 2:
        raise ConfigError(
            f"rollout.group_size={size}: must be at least 2 with algorithm.advantage.estimator={advantage.estimator}, "
            "which compares the members of a group with each other"
        )
    if advantage.estimator == "brpo" and _num_trajectories(config) < 2:
        raise ConfigError(
            f"rollout.group_size={size}: one trajectory a step leaves algorithm.advantage.estimator=brpo nothing to compare; "
            "raise it, or num_groups of an environment"
        )
    num_groups = {tag: environment.num_groups for tag, environment in config.environments.items()}
    config.algorithm.filter.check_groups(sum(num_groups.values()), size)
    Curriculum(config.rollout.curriculum, num_groups)


def _check_critic(config: Config) -> None:
    if not config.algorithm.advantage.needs_critic:
        return
    critic = config.algorithm.critic
    critic.check_beside(config.model)
    if critic.warmup_steps >= config.trainer.steps:
        raise ConfigError(
            f"algorithm.critic.warmup_steps={critic.warmup_steps}: must be less than trainer.steps={config.trainer.steps}, "
            "or the policy is never trained"
        )


def _check_minibatches(config: Config) -> None:
    total, algorithm = _num_trajectories(config), config.algorithm
    for key, number in (
        ("num_minibatches", algorithm.num_minibatches),
        ("critic.num_minibatches", algorithm.critic.num_minibatches),
    ):
        if number > total and (algorithm.advantage.needs_critic or key == "num_minibatches"):
            raise ConfigError(
                f"algorithm.{key}={number}: must be at most {total}, the number of trajectories in a step (num_groups of every "
                "environment x rollout.group_size)"
            )


def _check_correction(config: Config) -> None:
    """Weights from learner to engine need both of the same distribution; that of a cut rollout is another one."""
    sampling, loss = config.rollout.sampling, config.algorithm.loss
    if loss.corrects_engine and (sampling.top_p < 1 or sampling.top_k > 0):
        key = next(key for key in ("tis_cap", "tis_mask_low", "tis_mask_high") if getattr(loss, key) is not None)
        raise ConfigError(
            f"algorithm.loss.{key}={getattr(loss, key)}: needs rollout.sampling.top_p=1 and rollout.sampling.top_k=0, since the "
            "engine's log-probs of a cut distribution cannot be compared with the learner's"
        )


def _check_room(config: Config) -> None:
    context, new = config.rollout.context, config.rollout.sampling.max_new_tokens
    summary = context.summary_tokens if context.asks_for_summaries else 0
    if new + summary >= context.max_context_tokens:
        both = f" and rollout.context.summary_tokens={summary}" if summary else ""
        raise ConfigError(
            f"rollout.sampling.max_new_tokens={new}{both}: must be less than "
            f"rollout.context.max_context_tokens={context.max_context_tokens}, which also holds the prompt"
        )
    most = max(environment.max_turns for environment in config.environments.values())
    if context.mode == "window" and context.window > most > 1:
        raise ConfigError(
            f"rollout.context.window={context.window}: has no effect, no episode has more than {most} turns; use at most "
            f"{most}, or rollout.context.mode=full"
        )
    if context.summarise_every and context.summarise_every >= most:
        raise ConfigError(
            f"rollout.context.summarise_every={context.summarise_every}: has no effect, no episode has more than {most} turns"
        )


def _check_overlong(config: Config) -> None:
    buffer, new = config.algorithm.overlong.buffer, config.rollout.sampling.max_new_tokens
    if buffer is not None and buffer > new:
        raise ConfigError(
            f"algorithm.overlong.buffer={buffer}: must be at most rollout.sampling.max_new_tokens={new}, or a reply without a "
            "single token would pay already"
        )


def _check_tuning(model: ModelConfig) -> None:
    if model.tuning != "full":
        return
    default = ModelConfig()
    for key in ("lora_rank", "lora_alpha", "lora_targets", "kernels"):
        value = getattr(model, key)
        if value != getattr(default, key):
            raise ConfigError(f"model.{key}={value}: has no effect with model.tuning=full; set model.tuning=lora or leave it out")


def _check_keep_best(config: Config) -> None:
    """What is never measured is never the best, and what is measured must have been saved."""
    key, every, save_every = config.trainer.keep_best, config.evaluation.every, config.trainer.save_every
    if key is None or not key.startswith("eval/"):
        return
    if every == 0 or every % save_every:
        raise ConfigError(
            f"trainer.keep_best={key}: needs evaluated steps that are saved; make evaluation.every={every} a multiple of "
            f"trainer.save_every={save_every}, above 0"
        )
    tag, tags = key.split("/")[1], list(config.environments)
    if not config.evaluation.suites and tag not in tags:  # what suites measure is known once they are read
        raise ConfigError(f"trainer.keep_best={key}: {tag!r} must be one of {', '.join(tags)}{near_match(tag, tags)}")


def _check_beside(config: Config) -> None:
    """Another process measures what was saved, and has to find the environments."""
    every, save_every = config.evaluation.every, config.trainer.save_every
    if not config.evaluation.beside:
        return
    if every % save_every:
        raise ConfigError(
            f"evaluation.beside=true: measures what was saved; make evaluation.every={every} a multiple of "
            f"trainer.save_every={save_every}"
        )
    for tag, environment in config.environments.items():
        try:
            registry.portable_name(environment.name)
        except ConfigError as error:
            raise ConfigError(f"evaluation.beside=true: environments.{tag}.name: {error}") from None


def _check_recorded(config: Config) -> None:
    """A curriculum is led by what is played; what is read back has been counted."""
    trainer, rule = config.trainer, config.rollout.curriculum.rule
    if rule != FIXED and trainer.rollouts_from:
        raise ConfigError(f"rollout.curriculum.rule={rule}: has no effect with trainer.rollouts_from, where nothing is played")
    refill = config.algorithm.filter.refill_frac
    if refill and trainer.rollouts_from:
        raise ConfigError(f"algorithm.filter.refill_frac={refill}: has no effect with trainer.rollouts_from: nothing is played")


def check_source(config: Config, source: Config) -> None:
    """Raise ConfigError unless rollouts that `source` has sampled can be trained on as `config` says (trainer.rollouts_from).

    Ids mean nothing to another model, and log-probs were taken of the distribution that was sampled from.
    """
    folder = config.trainer.rollouts_from
    here, there = config.rollout.sampling, source.rollout.sampling
    pairs = [("model.name", config.model.name, source.model.name)]
    pairs += [(f"rollout.sampling.{key}", getattr(here, key), getattr(there, key)) for key in ("temperature", "top_p", "top_k")]
    for key, ours, theirs in pairs:
        if ours != theirs:
            raise ConfigError(f"{key}={ours}: must be {theirs}, as in the run that sampled, trainer.rollouts_from={folder}")


def _num_trajectories(config: Config) -> int:
    return config.rollout.group_size * sum(environment.num_groups for environment in config.environments.values())


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every (dotted key, value) below a section, a mapping or a list."""
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    elif isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield prefix, value
        return
    for name, item in value.items():
        yield from leaves(item, f"{prefix}.{name}" if prefix else str(name))
