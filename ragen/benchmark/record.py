"""Conversations of a real environment, recorded once under a fixed policy, so that every engine can be given the same ones.

The policy writes thoughts of varying length and simple actions; a side later reads the same observations and samples as many
tokens as the policy wrote, whatever they are. No weights are needed, only tokenizer and chat template.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from ragen.benchmark.work import Conversation, Exchange
from ragen.config.schema import Config
from ragen.engines.scripted import ScriptedEngine
from ragen.models.chat import ChatTemplate
from ragen.records import Group, Sampling, Split, Trajectory
from ragen.rollout.collect import collect, context_factory
from ragen.rollout.state_manager import EnvStateManager

THOUGHT = ("the", "box", "has", "to", "go", "to", "the", "target", "so", "i", "walk", "around", "it", "before", "i", "push")


def record(config: Config, template: ChatTemplate, replies: Sequence[Sequence[int]]) -> list[Group]:
    """Play one step of `config` with the replies, handed out in the order in which they are asked for."""
    rollout = config.rollout
    engine = ScriptedEngine(replies)
    with EnvStateManager(config.environments, group_size=rollout.group_size, run_seed=config.seed, split=Split.TRAIN) as manager:
        sampling = Sampling(max_new_tokens=rollout.sampling.max_new_tokens)
        return asyncio.run(collect(manager.open(0), context_factory(template, rollout), engine, sampling, rollout))


def scripted_replies(count: int, actions: Sequence[str], *, fewest: int, most: int, seed: int = 0) -> list[str]:
    """Replies with a thought of `fewest` to `most` words and one of `actions` in turn."""
    random = np.random.default_rng(seed)
    replies = []
    for number, num_words in enumerate(random.integers(fewest, most + 1, count).tolist()):
        words = (THOUGHT * (num_words // len(THOUGHT) + 1))[:num_words]
        replies.append(f"{' '.join(words)}</think><answer>{actions[number % len(actions)]}</answer>")
    return replies


def conversation(trajectory: Trajectory) -> Conversation:
    """What was read and how much was written in turn, of a trajectory of one segment."""
    (segment,) = trajectory.segments
    turns: list[Exchange] = []
    at = 0
    observed: tuple[int, ...] = ()
    for is_sampled, run in groupby(segment.mask.tolist()):
        length = len(list(run))
        if is_sampled:
            turns.append(Exchange(observed=observed, num_new=length))
        else:
            observed = tuple(segment.ids[at : at + length].tolist())
        at += length
    return tuple(turns)
