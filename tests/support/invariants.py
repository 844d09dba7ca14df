"""Invariants of a trajectory's tokens, checked against what the engine was asked and what it answered.

I1: the trained ids are the sampled ids, in order. I2: the mask is True exactly there, and ids, mask, log-probs go together.
I3: every prompt starts with the prompt before it plus what was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from ragen.records import Completion, Trajectory


class Request(Protocol):
    """One call of an engine; the scripted engine keeps such records."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...

    @property
    def completion(self) -> Completion | None: ...


def assert_i1(trajectory: Trajectory, requests: Sequence[Request]) -> None:
    sampled = [i for completion in _answered(requests) for i in completion.ids]
    assert trajectory.segments[0].ids[trajectory.segments[0].mask].tolist() == sampled


def assert_i2(trajectory: Trajectory, requests: Sequence[Request]) -> None:
    assert trajectory.segments[0].ids.shape == trajectory.segments[0].mask.shape == trajectory.segments[0].logprobs.shape
    completions = _answered(requests)
    assert len(trajectory.turns) == len(completions)
    expected_mask = np.zeros(len(trajectory.segments[0].ids), dtype=bool)
    expected_logprobs = np.zeros(len(trajectory.segments[0].ids), dtype=np.float32)
    for turn, completion in zip(trajectory.turns, completions, strict=True):
        assert turn.stop - turn.start == len(completion.ids)
        expected_mask[turn.start : turn.stop] = True
        expected_logprobs[turn.start : turn.stop] = completion.logprobs
    np.testing.assert_array_equal(trajectory.segments[0].mask, expected_mask)
    np.testing.assert_array_equal(trajectory.segments[0].logprobs, expected_logprobs)


def assert_i3(trajectory: Trajectory, requests: Sequence[Request]) -> None:
    """Also: what is trained on is the last prompt and reply, to the id, and each reply stands where it was sampled."""
    whole = [(*request.prompt_ids, *request.completion.ids) for request in requests if request.completion is not None]
    for before, request in pairwise(requests):
        emitted = before.completion.ids if before.completion is not None else ()
        seen = (*before.prompt_ids, *emitted)
        assert request.prompt_ids[: len(seen)] == seen
    for turn, request in zip(trajectory.turns, requests, strict=False):
        assert turn.start == len(request.prompt_ids)
    if whole:
        assert tuple(trajectory.segments[0].ids.tolist()) == whole[-1]


def assert_token_invariants(trajectory: Trajectory, requests: Sequence[Request]) -> None:
    """I1, I2 and I3."""
    assert_i1(trajectory, requests)
    assert_i2(trajectory, requests)
    assert_i3(trajectory, requests)


def _answered(requests: Sequence[Request]) -> list[Completion]:
    return [request.completion for request in requests if request.completion is not None]
