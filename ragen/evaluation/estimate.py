"""What an evaluation over a server will ask and cost, before anything is spent.

Some of its episodes are played without the server, through the same agent loop with the same prompts: once by the environment's
oracle (chance, where there is none) with nothing but its answers, which is about as short as an evaluation can be, and once by
chance with thoughts that fill every reply, which is about as long. Prompts are counted in pieces of text (models/text_chat.py).
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragen.engines.budget import Usage
from ragen.engines.server_config import ServerConfig
from ragen.environments import registry
from ragen.errors import ConfigError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.episodes import play_episodes
from ragen.evaluation.kinds import Kind
from ragen.evaluation.players import RandomPlayer
from ragen.evaluation.policies import open_player
from ragen.evaluation.usage import usage_of
from ragen.models.text_chat import TextChat
from ragen.records import Completion, Counted, FinishReason, Sampling
from ragen.rollout.collect import EngineOf
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.env_handle import EnvHandle
from ragen.rollout.environment_config import EnvironmentConfig

NUM_PLAYED = 8  # episodes per tag; the others are taken to be like them


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Of one tag."""

    num_episodes: int
    short: Usage
    long: Usage


def forecast(
    environments: Mapping[str, EnvironmentConfig], evaluation: EvaluationConfig, rollout: RolloutConfig, server: ServerConfig
) -> dict[str, Forecast]:
    """What each tag takes. `rollout` is that under which the server plays. Raises what `play_episodes` does."""
    num_episodes = evaluation.num_episodes * evaluation.samples_per_seed
    few = dataclasses.replace(evaluation, num_episodes=min(evaluation.num_episodes, NUM_PLAYED), samples_per_seed=1)
    scale = num_episodes / few.num_episodes

    def used(engine: EngineOf, chat: TextChat, tag: str, environment: EnvironmentConfig) -> Usage:
        groups = asyncio.run(play_episodes(engine, chat, {tag: environment}, few, rollout, step=0))
        return _scaled(usage_of(groups, server), scale)

    found = {}
    for tag, environment in environments.items():
        terse = open_player(Kind.ORACLE if _has_oracle(environment) else Kind.RANDOM, "")
        assert callable(terse.engine)
        assert isinstance(terse.template, TextChat)
        chat = TextChat()
        found[tag] = Forecast(
            num_episodes=num_episodes,
            short=used(terse.engine, terse.template, tag, environment),
            long=used(functools.partial(Talker, chat), chat, tag, environment),
        )
    return found


def check_affordable(
    environments: Mapping[str, EnvironmentConfig], evaluation: EvaluationConfig, rollout: RolloutConfig, server: ServerConfig
) -> None:
    """Raise ConfigError where `server.max_cost` would stop the evaluation even if all its episodes were short; ask nobody."""
    if server.max_cost is None:
        return
    found = forecast(environments, evaluation, rollout, server).values()
    short, long = total([each.short for each in found]).cost, total([each.long for each in found]).cost
    assert short is not None, "max_cost without prices is refused when it is set"
    assert long is not None
    if short > server.max_cost:
        raise ConfigError(
            f"server.max_cost={server.max_cost:g}: the evaluation is estimated to cost {short:.4g} to {long:.4g};"
            " raise it, or play fewer episodes; nobody was asked"
        )


def total(forecasts: Sequence[Usage]) -> Usage:
    """The sum over tags."""
    costs = [each.cost for each in forecasts if each.cost is not None]
    return Usage(
        num_requests=sum(each.num_requests for each in forecasts),
        num_prompt_tokens=sum(each.num_prompt_tokens for each in forecasts),
        num_sampled_tokens=sum(each.num_sampled_tokens for each in forecasts),
        cost=sum(costs) if len(costs) == len(forecasts) else None,
    )


class Talker:
    """Plays at random, and thinks aloud until its tokens are used up."""

    policy_version = 0

    def __init__(self, chat: TextChat, handle: EnvHandle, context: ContextManager) -> None:
        self._chat = chat
        self._handle = handle
        self._form = context.format
        self._player = RandomPlayer(lambda: handle.action_names, (handle.key.task_seed, handle.key.dynamics_seed))

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        names, limit = self._handle.action_names, sampling.max_new_tokens
        action = self._player.answer()
        room = limit - len(self._chat.encode_text(self._form.render("", [action], names)))
        thought = " well" * max(0, room) if self._form.think else ""
        ids = tuple(self._chat.encode_text(self._form.render(thought.strip(), [action], names)))
        return Completion(
            ids=ids,
            logprobs=(0.0,) * len(ids),
            finish_reason=FinishReason.STOP,
            policy_version=self.policy_version,
            counted=Counted(num_prompt=len(prompt_ids), num_sampled=limit),
        )

    def release(self, prompt_ids: Sequence[int]) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is held."""


def _has_oracle(environment: EnvironmentConfig) -> bool:
    env = registry.make(environment.name, environment.options)
    try:
        env.reset(seed=1, options={"dynamics_seed": 1})
        return env.oracle_action() is not None
    finally:
        env.close()


def _scaled(usage: Usage, factor: float) -> Usage:
    return Usage(
        num_requests=round(usage.num_requests * factor),
        num_prompt_tokens=round(usage.num_prompt_tokens * factor),
        num_sampled_tokens=round(usage.num_sampled_tokens * factor),
        cost=None if usage.cost is None else usage.cost * factor,
    )
