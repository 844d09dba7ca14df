"""Conversations with an engine, and whether what it recorded is what a plain forward pass says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from ragen.engines.base import Engine
from ragen.records import Completion, Sampling
from tests.support.architectures import plain_logprobs
from tests.support.models import SMALL_VOCAB

EXACT = 1e-4  # float32: what the engine promises about its log-probs
DEADLINE_S = 60.0  # a request that nobody answers fails by name instead of hanging the run


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A conversation: its first prompt, and per turn how many ids to sample and what the environment says afterwards."""

    prompt: tuple[int, ...]
    seed: int
    lengths: tuple[int, ...]  # max_new_tokens per turn
    answers: tuple[tuple[int, ...], ...] = ()  # new ids between the turns
    temperature: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Said:
    prompt: tuple[int, ...]
    completion: Completion


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(np.random.default_rng((length, seed)).integers(3, SMALL_VOCAB, length).tolist())


async def play(engine: Engine, talk: Talk) -> list[Said]:
    said: list[Said] = []
    prompt = talk.prompt
    for turn, length in enumerate(talk.lengths):
        sampling = Sampling(max_new_tokens=length, temperature=talk.temperature, seed=(talk.seed, turn))
        completion = await engine.generate(prompt, sampling)
        said.append(Said(prompt=prompt, completion=completion))
        prompt = (*prompt, *completion.ids, *(talk.answers[turn] if turn < len(talk.answers) else ()))
    return said


def play_all(engine: Engine, talks: Sequence[Talk]) -> list[list[Said]]:
    async def together() -> list[list[Said]]:
        return await asyncio.wait_for(asyncio.gather(*(play(engine, talk) for talk in talks)), DEADLINE_S)

    return asyncio.run(together())


def ask(engine: Engine, prompt: Sequence[int], sampling: Sampling) -> Completion:
    return asyncio.run(asyncio.wait_for(engine.generate(prompt, sampling), DEADLINE_S))


def assert_exact(model: torch.nn.Module, talk: Talk, said: Sequence[Said], *, bound: float = EXACT) -> None:
    for one in said:
        completion = one.completion
        expected = plain_logprobs(model, one.prompt, completion.ids, temperature=talk.temperature)
        assert completion.logprobs == pytest.approx(expected, abs=bound)


def ids_of(conversations: Sequence[Sequence[Said]]) -> list[list[tuple[int, ...]]]:
    return [[one.completion.ids for one in said] for said in conversations]


def crowd() -> list[Talk]:
    """Nine conversations of one to four turns: a group of four, prompts of 1 to 30 ids, turns of one id, an empty answer."""
    shared = prompt_of(17)
    return [
        *(Talk(prompt=shared, seed=i, lengths=(5 + i, 1, 9), answers=((40, 41), (50,) * (i + 1))) for i in range(4)),
        Talk(prompt=(7,), seed=10, lengths=(12, 3, 2, 6), answers=((9,), prompt_of(11), (5, 6))),
        Talk(prompt=prompt_of(30), seed=11, lengths=(1, 8), answers=((),)),
        Talk(prompt=prompt_of(9), seed=12, lengths=(20,), temperature=0.6),
        Talk(prompt=prompt_of(4), seed=13, lengths=(2, 2, 2), answers=(prompt_of(20), (3,)), temperature=1.7),
        Talk(prompt=shared[:16], seed=14, lengths=(6, 6), answers=((8,),)),
    ]


def greedy(length: int, **more: Any) -> Sampling:
    return Sampling(max_new_tokens=length, temperature=0.0, **more)


async def steps(number: int) -> None:
    for _ in range(3 * number):
        await asyncio.sleep(0)
