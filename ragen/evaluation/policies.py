"""Every policy that can be evaluated, made ready to play: what replies, and how its prompts are made.

A model has tokens; all others read and write text (models/text_chat.py), and are played by the same agent loop under the same
prompts, parser, budgets and penalties.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ragen.engines.base import Engine
from ragen.engines.budget import Budget
from ragen.engines.server_config import ServerConfig
from ragen.errors import ConfigError, EngineFailure, RagenError, boundary
from ragen.evaluation.kinds import Kind
from ragen.evaluation.players import OraclePlayer, PlayerLeft, RandomPlayer, Typist, as_reply
from ragen.files import storage
from ragen.models.text_chat import TextChat
from ragen.records import ChatMessage, Completion, FinishReason, Sampling
from ragen.rollout.collect import EngineOf
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.env_handle import EnvHandle

if TYPE_CHECKING:
    from ragen.models.chat import ChatTemplate

Reader = Callable[[Sequence[ChatMessage]], str]  # from the chat so far to an answer: actions, or a whole reply with its tags
ROOMY = 1_000_000  # tokens: whoever has no tokenizer has no window
SUMMARY = "I go on from here."  # of a player that is asked for one


class PersonLeft(RagenError):
    """The person who played has had enough: the evaluation stops, with what was finished kept."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A policy that can be played."""

    engine: Engine | EngineOf
    template: ChatTemplate | TextChat
    concurrency: int | None  # episodes at the same time; None: all


@asynccontextmanager
async def open_server(kind: Kind, model: str, server: ServerConfig, budget: Budget) -> AsyncIterator[Ready]:
    """A server's model, whose replies `budget` counts.

    Raises ConfigError where there is no key; ModuleNotFoundError names a client that is not installed.
    """
    from ragen.engines.patience import Patience
    from ragen.engines.server_engine import Client, ServerEngine

    client: Client
    if kind is Kind.OPENAI:
        from ragen.engines.openai_client import OpenAIClient

        client = OpenAIClient(model, server)
    else:
        from ragen.engines.anthropic_client import AnthropicClient

        client = AnthropicClient(model, server)
    chat = TextChat()
    engine = ServerEngine(client, chat, Patience(server, f"{kind}:{model}"), budget)
    try:
        yield Ready(engine=engine, template=chat, concurrency=server.concurrency)
    finally:
        await engine.close()


def rollout_for(kind: Kind, rollout: RolloutConfig, server: ServerConfig) -> RolloutConfig:
    """The settings under which a kind of policy plays.

    A server writes the reply's first tag itself, unless it can be given as a beginning. A player has no window to fill.
    """
    context = rollout.context
    if kind is Kind.MODEL or (kind.is_server and server.prefill):
        return rollout
    if kind.is_server:
        return replace(rollout, context=replace(context, reply_prefix=False))
    return replace(rollout, context=replace(context, max_context_tokens=ROOMY))


def open_player(kind: Kind, name: str, *, stream: TextIO = sys.stdin, show: Callable[[str], None] = print) -> Ready:
    """An oracle, chance, a script or a person; `stream` and `show` are a person's. Raises ConfigError for what cannot play."""
    chat = TextChat()
    script = load_script(name) if kind is Kind.SCRIPTED else None

    def reader(handle: EnvHandle, context: ContextManager) -> Reader:
        match kind:
            case Kind.RANDOM:
                chance = RandomPlayer(lambda: handle.action_names, (handle.key.task_seed, handle.key.dynamics_seed))
                return lambda _: chance.answer()
            case Kind.ORACLE:
                return _oracle(handle, context)
            case Kind.HUMAN:
                return _person(stream, show)
        assert script is not None, kind
        return script(handle)

    def engine(handle: EnvHandle, context: ContextManager) -> Engine:
        return PlayerEngine(reader(handle, context), chat, handle, context)

    return Ready(engine=engine, template=chat, concurrency=1 if kind is Kind.HUMAN else None)


class PlayerEngine:
    """Replies what a reader of text answers, in one episode."""

    policy_version = 0

    def __init__(self, answer: Reader, chat: TextChat, handle: EnvHandle, context: ContextManager) -> None:
        self._answer = answer
        self._chat = chat
        self._handle = handle
        self._context = context

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """A player has no tokens to run out of, so it is never cut."""
        ids = tuple(self._chat.encode_text(SUMMARY if self._context.wants_summary else self._reply(prompt_ids)))
        return Completion(
            ids=ids, logprobs=(0.0,) * len(ids), finish_reason=FinishReason.STOP, policy_version=self.policy_version
        )

    def release(self, prompt_ids: Sequence[int]) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is held."""

    def _reply(self, prompt_ids: Sequence[int]) -> str:
        form = self._context.format
        answer = self._answer(self._chat.messages(prompt_ids)[:-1])
        return as_reply(form, answer, self._handle.action_names).removeprefix(form.prefix)


def load_script(name: str) -> Callable[[EnvHandle], Reader]:
    """What plays an episode by a script: the lines of a file, or a function. Raises ConfigError or StorageError.

    A file has one answer a line; the last one is repeated for as long as the episode goes on. A function gets the messages of
    the chat and the names of the actions (None: any text is one), and returns an answer.
    """
    module_name, colon, function_name = name.partition(":")
    if not colon:
        return _lines(Path(name))
    where = f"scripted:{name}"
    with boundary(ConfigError, f"{where}: cannot be imported"):
        function = getattr(importlib.import_module(module_name), function_name)
    if not callable(function):
        raise ConfigError(f"{where}: must be a function of messages and action names")

    def begin(handle: EnvHandle) -> Reader:
        def answer(messages: Sequence[ChatMessage]) -> str:
            with boundary(EngineFailure, where):
                said = function(messages, handle.action_names)
            if not isinstance(said, str):
                raise ConfigError(f"{where}: must return text, not {said!r:.60}")
            return said

        return answer

    return begin


def _lines(path: Path) -> Callable[[EnvHandle], Reader]:
    with storage("read", path):
        lines = path.read_text(encoding="utf-8").splitlines()
    if not lines:
        raise ConfigError(f"scripted:{path}: holds no line; write one answer a line")

    def begin(handle: EnvHandle) -> Reader:
        remaining = iter(lines)
        return lambda _: next(remaining, lines[-1])

    return begin


def _oracle(handle: EnvHandle, context: ContextManager) -> Reader:
    """The environment's oracle. Where it sees no way on, it has lost: it answers nothing."""
    player = OraclePlayer(handle.key, handle.config, context.config.action_separator)

    def answer(messages: Sequence[ChatMessage]) -> str:
        try:
            return player.answer()
        except PlayerLeft:
            return ""

    return answer


def _person(stream: TextIO, show: Callable[[str], None]) -> Reader:
    typist = Typist(stream)
    is_new = True

    def answer(messages: Sequence[ChatMessage]) -> str:
        nonlocal is_new
        show("\n\n".join(message.content for message in (messages if is_new else messages[-1:])))
        is_new = False
        try:
            return typist.answer()
        except PlayerLeft:
            raise PersonLeft("the player left") from None

    return answer
