from __future__ import annotations

import pytest

from ragen.records import Completion, FinishReason, digest_of
from ragen.rollout.transcript import Transcript


def completion(*ids: int) -> Completion:
    return Completion(ids=ids, logprobs=(-0.5,) * len(ids), finish_reason=FinishReason.STOP, policy_version=0)


def test_what_is_read_and_what_is_sampled_grow_into_one_sequence() -> None:
    transcript = Transcript()
    transcript.read([1, 2])
    span = transcript.sampled(completion(3, 4))
    transcript.read([5])
    transcript.sampled(completion(6))
    assert (span.segment, span.start, span.stop, span.digest) == (0, 2, 4, digest_of([1, 2, 3, 4], [-0.5, -0.5]))
    (segment,) = transcript.segments()
    assert segment.ids.tolist() == list(transcript.ids) == [1, 2, 3, 4, 5, 6]
    assert segment.mask.tolist() == [False, False, True, True, False, True]
    assert segment.logprobs.tolist() == [0.0, 0.0, -0.5, -0.5, 0.0, -0.5]


def test_a_restart_begins_a_segment_and_keeps_those_that_were_answered() -> None:
    transcript = Transcript()
    transcript.restart([1])
    transcript.sampled(completion(2))
    transcript.read([3])  # never answered: not trained, so not kept
    transcript.restart([4, 5])
    assert (transcript.ids, transcript.length) == ((4, 5), 2)
    assert [segment.ids.tolist() for segment in transcript.segments()] == [[1, 2]]
    transcript.restart([6])  # the one before was not answered either
    assert transcript.sampled(completion()).segment == 1
    assert [segment.ids.tolist() for segment in transcript.segments()] == [[1, 2], [6]]


def test_there_is_always_a_segment() -> None:
    transcript = Transcript()
    assert [len(segment.ids) for segment in transcript.segments()] == [0]
    transcript.restart([1, 2])
    assert [segment.ids.tolist() for segment in transcript.segments()] == [[1, 2]]


def test_only_a_sampled_id_is_the_last_sampled_one() -> None:
    transcript = Transcript()
    assert transcript.last_sampled_id is None
    transcript.read([7])
    transcript.sampled(completion())
    assert transcript.last_sampled_id is None
    transcript.sampled(completion(7, 8))
    assert transcript.last_sampled_id == 8
    transcript.read([8])
    assert transcript.last_sampled_id is None


def test_ids_without_their_log_probs_are_never_kept() -> None:
    """Bug-log row 2."""
    transcript = Transcript()
    with pytest.raises(AssertionError):
        transcript._append([1, 2], [True], [0.0])
