"""Short ways to play whole trajectories of the corridor with a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ragen.engines.scripted import ScriptedEngine
from ragen.models.chat import ChatTemplate
from ragen.records import Sampling, Trajectory
from ragen.rollout.agent import Limits, run_trajectory
from ragen.rollout.context_manager import ContextConfig, ContextManager
from ragen.rollout.state_manager import EnvHandle, EnvironmentConfig
from tests.support import episodes
from tests.support.tokenizers import CHATML, END, Kind, make_tokenizer

RESERVE = 400  # ids per reply: byte-level replies are long
SAMPLING = Sampling(max_new_tokens=RESERVE, seed=(9,))
PENALTY = -0.1


def walk(*actions: str) -> str:
    """A valid reply as it is sampled, behind the '<think>' that the prompt ends with."""
    return f"go</think><answer>{' || '.join(actions)}</answer>"


def corridor(*, max_turns: int = 5, **options: Any) -> EnvironmentConfig:
    """`episodes.corridor` with a turn limit."""
    return replace(episodes.corridor(**options), max_turns=max_turns)


def contexts(
    kind: Kind = "plain", template: str = CHATML, *, reserve: int = RESERVE, max_invalid_turns: int = 3, **config: Any
) -> Callable[[EnvHandle], ContextManager]:
    """A `make_context` over one of the odd tokenizers."""
    chat = ChatTemplate(make_tokenizer(kind, template))
    settings = ContextConfig(**{"max_context_tokens": 100_000, **config})

    def make(handle: EnvHandle) -> ContextManager:
        return ContextManager(chat, settings, handle.config, lambda: handle.action_names, PENALTY, reserve, max_invalid_turns)

    return make


def scripted(texts: Iterable[str], *, kind: Kind = "plain", **options: Any) -> ScriptedEngine:
    """An engine that plays these replies, each ended by the template's end-of-turn id."""
    tokenizer = make_tokenizer(kind)
    end = tokenizer.convert_tokens_to_ids(END)
    return ScriptedEngine([(*encode(text, kind), end) for text in texts], **options)


def encode(text: str, kind: Kind = "plain") -> Sequence[int]:
    """Ids of a reply's text."""
    return list(make_tokenizer(kind)(text, add_special_tokens=False)["input_ids"])


def play(
    engine: ScriptedEngine,
    config: EnvironmentConfig,
    *,
    make_context: Callable[[EnvHandle], ContextManager] | None = None,
    max_invalid_turns: int = 3,
    sampling: Sampling = SAMPLING,
) -> Trajectory:
    """One trajectory of the first episode of `config`."""
    limits = Limits(max_turns=config.max_turns, max_invalid_turns=max_invalid_turns)
    with episodes.manager(corridor=config) as manager:
        handle = manager.open(0)[0][0]
        return asyncio.run(run_trajectory(handle, (make_context or contexts())(handle), engine, sampling, limits))
