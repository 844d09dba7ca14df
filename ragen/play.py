"""A person, the oracle or chance in the place of the model: one episode through the agent loop of training and evaluation.

What is shown is the prompt itself, decoded from the ids that a model would be given; what is answered goes through the same
parser, budgets and recorder. Behind `ragen play ENV`.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from ragen.config.schema import Config
from ragen.engines.base import Engine
from ragen.environments.spaces import normalise
from ragen.errors import ConfigError, EnvironmentFailure
from ragen.evaluation.players import OraclePlayer, Player, PlayerLeft, RandomPlayer, Typist, as_reply
from ragen.models.chat import ChatTemplate
from ragen.records import Completion, EndReason, EpisodeKey, FinishReason, Group, Sampling, Split, Trajectory
from ragen.rollout.agent import Limits, run_trajectory
from ragen.rollout.collect import context_factory
from ragen.rollout.env_handle import EnvHandle
from ragen.rollout.hosts import InlineHost
from ragen.rollout.recorder import write_rollout
from ragen.rollout.replies import ReplyFormat

Show = Callable[[str], None]

# Settings of a played episode: a tokenizer that only stands in for a model's says nothing about room, and people think aloud.
ROOM = ("rollout.context.max_context_tokens=1000000", "rollout.sampling.max_new_tokens=10000")
DIRECTIONS = {"up": ("\x1b[A", "w"), "down": ("\x1b[B", "s"), "left": ("\x1b[D", "a"), "right": ("\x1b[C", "d")}
DIGITS = "1234567890"
LEAVE_KEYS = frozenset({"", "q", "\x04"})  # the end of a piped input, q, Ctrl-D


class Who(StrEnum):
    """Who plays."""

    PERSON = "person"  # types answers
    KEYS = "keys"  # a person who presses single keys
    ORACLE = "oracle"
    RANDOM = "random"


class KeyPlayer:
    """A person who presses single keys: at a terminal, or piped in."""

    echoes = True

    def __init__(self, stream: TextIO, names: Callable[[], Sequence[str] | None], show: Show) -> None:
        self._stream = stream
        self._names = names
        self._show = show
        self._explained = False

    def answer(self) -> str:
        bindings = key_bindings(self._names() or ())
        if not bindings:
            raise ConfigError("--keys: any text is an action here; play without it")
        if not self._explained:
            self._show(f"keys: {', '.join(f'{key} {name}' for key, name in bindings.items() if key.isprintable())}; q leaves")
            self._explained = True
        while (key := self._press()) not in LEAVE_KEYS:
            if key in bindings:
                return bindings[key]
        raise PlayerLeft("the player left")

    def _press(self) -> str:
        if not self._stream.isatty():
            return self._stream.read(1)
        import readchar

        return readchar.readkey()


class PlayerEngine:
    """An engine whose replies are a player's. Shows of each prompt what is new, and encodes the answers; log-probs are 0."""

    policy_version = 0

    def __init__(
        self, player: Player, template: ChatTemplate, format_: ReplyFormat, names: Callable[[], Sequence[str] | None], show: Show
    ) -> None:
        self._player = player
        self._template = template
        self._format = format_
        self._names = names
        self._show = show
        self._num_seen = 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Raises PlayerLeft."""
        self._show(self._template.decode(prompt_ids[self._num_seen :]))
        answer = self._player.answer()
        if self._player.echoes:
            self._show(f"> {answer}")
        form = self._format
        opened = form.prefix or (form.opening and self._template.opens_with(form.opening))
        reply = as_reply(form, answer, self._names())
        encoded = self._template.encode_text(reply.removeprefix(form.opening) if opened else reply)
        ids = tuple(encoded[: sampling.max_new_tokens])
        self._num_seen = len(prompt_ids) + len(ids)
        finish = FinishReason.STOP if len(ids) == len(encoded) else FinishReason.LENGTH
        return Completion(ids=ids, logprobs=(0.0,) * len(ids), finish_reason=finish, policy_version=self.policy_version)

    def release(self, prompt_ids: Sequence[int]) -> None:
        """Nothing is cached."""

    async def close(self) -> None:
        """Nothing is held."""


def play(config: Config, *, who: Who, seed: int, stream: TextIO, show: Show) -> Trajectory:
    """Play the one environment of `config` from the task seed `seed`. People answer through `stream`.

    Raises ConfigError if the environment does not suit that player, and what the agent loop lets through.
    """
    from ragen.models.tokenizer import load_tokenizer  # here, so that a mistyped name is refused before transformers is imported

    ((tag, environment),) = config.environments.items()
    if who is Who.KEYS:  # a key is a turn
        environment = replace(environment, max_turns=max(environment.max_turns, environment.max_actions))
    key = EpisodeKey(split=Split.TRAIN, step=0, group=0, member=0, environment=tag, task_seed=seed, dynamics_seed=seed)
    handle = EnvHandle(key, environment, InlineHost(environment), _never_replaced)
    template = ChatTemplate.configured(load_tokenizer(config.model.name), config.model)
    context = context_factory(template, config.rollout)(handle)
    player = _player(who, handle, config.rollout.context.action_separator, stream, show)
    engine: Engine = PlayerEngine(player, template, context.format, lambda: handle.action_names, show)
    limits = Limits(max_turns=environment.max_turns, max_invalid_turns=config.rollout.max_invalid_turns)
    sampling = Sampling(max_new_tokens=config.rollout.sampling.max_new_tokens)

    async def episode() -> Trajectory:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio's would wait until the line is typed
        return await run_trajectory(handle, context, engine, sampling, limits)

    return asyncio.run(episode())


def save_trajectory(trajectory: Trajectory, path: Path) -> None:
    """Write the trajectory as a rollout file. Raises StorageError."""
    failed = trajectory.end_reason.is_infrastructure
    write_rollout(path, [Group(trajectories=() if failed else (trajectory,), failed=(trajectory,) if failed else ())])


def key_bindings(names: Sequence[str]) -> dict[str, str]:
    """Key -> action: arrows and w, a, s, d for Up, Down, Left and Right; digits in order for all others."""
    bindings: dict[str, str] = {}
    digits = iter(DIGITS)
    for name in names:
        keys = DIRECTIONS.get(normalise(name)) or (next(digits, ""),)
        bindings |= {key: name for key in keys if key}
    return bindings


def summary(trajectory: Trajectory) -> str:
    """How the episode ended, in one paragraph. Raises EnvironmentFailure if the environment broke it off."""
    if trajectory.end_reason is EndReason.ENGINE_ERROR:
        num_turns = len(trajectory.turns)
        return f"{trajectory.error} after {num_turns} turn{'' if num_turns == 1 else 's'}"
    if trajectory.end_reason.is_infrastructure:
        raise EnvironmentFailure(trajectory.error)
    return (
        f"{trajectory.final_observation}\n\nend: {trajectory.end_reason}, success: {'yes' if trajectory.success else 'no'}, "
        f"return: {trajectory.return_:g} (rewards {trajectory.rewards:g}, format penalties {trajectory.format_penalties:g})"
    )


def turn_rows(trajectory: Trajectory) -> list[tuple[str, ...]]:
    """One row per turn: number, actions executed, reward, format penalty, what the parser said."""
    return [
        (str(number), " || ".join(turn.executed), f"{turn.reward:g}", f"{turn.format_penalty:g}", turn.reply.verdict)
        for number, turn in enumerate(trajectory.turns, start=1)
    ]


def _player(who: Who, handle: EnvHandle, separator: str, stream: TextIO, show: Show) -> Player:
    def names() -> Sequence[str] | None:
        return handle.action_names  # known once the episode has begun

    match who:
        case Who.PERSON:
            return Typist(stream)
        case Who.KEYS:
            return KeyPlayer(stream, names, show)
        case Who.ORACLE:
            return OraclePlayer(handle.key, handle.config, separator)
        case Who.RANDOM:
            return RandomPlayer(names, handle.key.task_seed)


def _never_replaced(key: EpisodeKey) -> EnvHandle:
    raise AssertionError(f"{key}: an episode that is played has no second attempt")
