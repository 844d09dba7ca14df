"""Five turns of one Sokoban room with a real tokenizer and template, as docs/context.md shows them in every context mode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from transformers import PreTrainedTokenizerBase

from ragen.config.environments import named
from ragen.engines.scripted import Request, ScriptedEngine
from ragen.environments import registry
from ragen.models.chat import ChatTemplate
from ragen.records import EndReason, EpisodeKey, Sampling, Split, Trajectory
from ragen.rollout.agent import Limits, run_trajectory
from ragen.rollout.collect import context_factory
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.env_handle import EnvHandle
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.hosts import InlineHost

TAG, SEED = "sokoban_simple", 7  # a room that takes five moves
THOUGHTS = (
    "The box has to go up. I must get below it.",
    "One more step down.",
    "Now I go left, below the box.",
    "I push the box up.",
    "One more push and the box is on the target.",
)
SUMMARY = "I am walking around the box. Once I stand below it I push it up, onto the target."


def play_sokoban(tokenizer: PreTrainedTokenizerBase, chat: ChatTemplate, **context: object) -> tuple[Trajectory, list[Request]]:
    """The oracle's moves, one a turn, each behind a thought of its own, through the agent loop of training."""
    environment = EnvironmentConfig(**named(TAG)[1])
    environment.check(TAG)
    moves = _oracle(environment)
    assert len(moves) == len(THOUGHTS) == environment.max_turns

    def script(prompt_ids: Sequence[int], sampling: Sampling) -> Sequence[int]:
        if sampling.max_new_tokens == ContextConfig.summary_tokens:
            text = SUMMARY
        else:
            turn = len(moves) - turns_left(tokenizer.decode(list(prompt_ids)))
            text = f"{THOUGHTS[turn]}</think><answer>{moves[turn]}</answer>"
        return [*chat.encode_text(text), chat.end_of_turn_id or 0]

    config = RolloutConfig(context=ContextConfig(**context))  # type: ignore[arg-type]
    config.check()
    key = EpisodeKey(split=Split.TRAIN, step=0, group=0, member=0, environment=TAG, task_seed=SEED, dynamics_seed=0)
    handle = EnvHandle(key, environment, InlineHost(environment), _never_replaced)
    limits = Limits(max_turns=environment.max_turns, max_invalid_turns=config.max_invalid_turns)
    engine = ScriptedEngine(script)
    sampling = Sampling(max_new_tokens=config.sampling.max_new_tokens)
    trajectory = asyncio.run(run_trajectory(handle, context_factory(chat, config)(handle), engine, sampling, limits))
    assert trajectory.end_reason is EndReason.SOLVED, trajectory.end_reason
    return trajectory, engine.requests


def turns_left(prompt: str) -> int:
    """What the last message of a prompt announces."""
    return int(prompt.rpartition("Turns left: ")[2].partition("\n")[0])


def shown(tokenizer: PreTrainedTokenizerBase, trajectory: Trajectory, segments: Sequence[int] | None = None) -> str:
    """Every segment with its counts, and those in `segments` (None: all) as text.

    Between ⟦ and ⟧ stands what was sampled and is trained, between ⟪ and ⟫ what was sampled and is not.
    """
    untrained = {(each.segment, each.start) for each in trajectory.summaries if not each.trained}
    lines = []
    for index, segment in enumerate(trajectory.segments):
        lines.append(f"--- segment {index + 1}: {len(segment.ids)} tokens, {segment.num_sampled} of them sampled ---")
        if segments is not None and index not in segments:
            continue
        bounds = [0, *(np.flatnonzero(np.diff(segment.mask)) + 1).tolist(), len(segment.ids)]
        text = ""
        for start, stop in pairwise(bounds):
            span = tokenizer.decode(segment.ids[start:stop].tolist())
            marks = "⟪⟫" if (index, start) in untrained else "⟦⟧"
            text += f"{marks[0]}{span}{marks[1]}" if segment.mask[start] else span
        lines.append(text)
    return "\n".join(lines)


def _oracle(environment: EnvironmentConfig) -> list[str]:
    twin = registry.make(environment.name, environment.options)
    twin.reset(seed=SEED, options={"dynamics_seed": 0})
    moves: list[str] = []
    terminated = False
    while not terminated:
        move = twin.oracle_action()
        assert move is not None
        _, _, terminated, _, _ = twin.step(move)
        moves.append(move)
    return moves


def _never_replaced(key: EpisodeKey) -> EnvHandle:
    raise AssertionError(f"{key}: an episode of the page has no second attempt")
