"""Invariants of a trajectory's tokens, checked against what the engine was asked and what it answered.

I1: the sampled ids are the ids that the engine emitted, each completion once and in order. I2: the mask is True exactly there,
and ids, mask and log-probs go together. I3: what stands before a completion is the prompt that it was sampled from; so within a
segment each prompt starts with the prompt before it and its completion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ragen.records import Completion, Sample, Summary, Trajectory, Turn


class Request(Protocol):
    """One call of an engine; the scripted engine keeps such records."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...

    @property
    def completion(self) -> Completion | None: ...


def written(trajectory: Trajectory) -> list[Turn | Summary]:
    """Replies and summaries in the order in which they were sampled."""
    return sorted([*trajectory.turns, *trajectory.summaries], key=lambda part: (part.segment, part.start))


def assert_i1(trajectory: Trajectory, requests: Sequence[Request]) -> None:
    """Also: each completion is known by its turn or summary, with its version, its reason to stop and its digest."""
    answered = _answered(requests)
    parts = written(trajectory)
    assert len(parts) == len(answered)
    assert [turn for turn in parts if isinstance(turn, Turn)] == list(trajectory.turns)  # the order of the turns is that of time
    for part, (prompt_ids, completion) in zip(parts, answered, strict=True):
        segment = trajectory.segments[part.segment]
        assert tuple(segment.ids[part.start : part.stop].tolist()) == completion.ids
        assert part.policy_version == completion.policy_version
        assert part.finish_reason is completion.finish_reason
        assert part.digest == _digest(prompt_ids, completion)


def assert_i2(trajectory: Trajectory, requests: Sequence[Request]) -> None:
    completions = [completion for _, completion in _answered(requests)]
    masks = [np.zeros(len(segment.ids), dtype=bool) for segment in trajectory.segments]
    logprobs = [np.zeros(len(segment.ids), dtype=np.float32) for segment in trajectory.segments]
    for part, completion in zip(written(trajectory), completions, strict=True):
        assert not masks[part.segment][part.start : part.stop].any()  # no id belongs to two completions
        masks[part.segment][part.start : part.stop] = True
        logprobs[part.segment][part.start : part.stop] = completion.logprobs
    for segment, mask, logprob in zip(trajectory.segments, masks, logprobs, strict=True):
        assert segment.ids.shape == segment.mask.shape == segment.logprobs.shape
        np.testing.assert_array_equal(segment.mask, mask)
        np.testing.assert_array_equal(segment.logprobs, logprob)


def assert_i3(trajectory: Trajectory, requests: Sequence[Request]) -> None:
    """Also: a segment ends with its last completion, and there is none without a completion unless nothing was answered."""
    ends = dict.fromkeys(range(len(trajectory.segments)), -1)
    for part, (prompt_ids, _) in zip(written(trajectory), _answered(requests), strict=True):
        assert tuple(trajectory.segments[part.segment].ids[: part.start].tolist()) == prompt_ids
        ends[part.segment] = part.stop
    if written(trajectory):
        assert list(ends.values()) == [len(segment.ids) for segment in trajectory.segments]
    else:
        assert len(trajectory.segments) == 1


def assert_trained_once(trajectory: Trajectory) -> None:
    """The samples of a trajectory train every completion once, and nothing else; untrained summaries not at all."""
    trained: list[int] = []
    for index, segment in enumerate(trajectory.segments):
        sample = Sample(trajectory=trajectory, segment=index, advantages=np.zeros(len(segment.ids), dtype=np.float32))
        trained += sample.ids[sample.mask].tolist()
        assert not (sample.mask & ~segment.mask).any()
    wanted = [part for part in written(trajectory) if isinstance(part, Turn) or part.trained]
    assert trained == [i for part in wanted for i in trajectory.segments[part.segment].ids[part.start : part.stop].tolist()]


def assert_token_invariants(trajectory: Trajectory, requests: Sequence[Request]) -> None:
    """I1, I2 and I3, and what is trained."""
    assert_i1(trajectory, requests)
    assert_i2(trajectory, requests)
    assert_i3(trajectory, requests)
    assert_trained_once(trajectory)


def _answered(requests: Sequence[Request]) -> list[tuple[tuple[int, ...], Completion]]:
    return [(request.prompt_ids, request.completion) for request in requests if request.completion is not None]


def _digest(prompt_ids: tuple[int, ...], completion: Completion) -> str:
    """By hand: 8 bytes of BLAKE2b over prompt and completion as int32 and the completion's log-probs as float32."""
    ids = np.array([*prompt_ids, *completion.ids], dtype="<i4").tobytes()
    return hashlib.blake2b(ids + np.array(completion.logprobs, dtype="<f4").tobytes(), digest_size=8).hexdigest()
