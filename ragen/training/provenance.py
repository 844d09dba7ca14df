"""Where a trained token came from, and the proof, before every update, that a batch is what was recorded when it was sampled.

Ids, masks and log-probs pass through many hands between an engine and the loss. Each turn and each trained or untrained summary
carries the digest that was taken when its completion arrived, over all ids up to its last one and over its log-probs. Here it is
taken again from the arrays that the loss is about to read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragen.errors import TrainingError
from ragen.records import FinishReason, MaskT, Sample, Segment, Summary, Turn, digest_of
from ragen.training.packing import Pack, named

MAX_LOGPROB = 1e-4  # what rounding may add to a log-prob of 0


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of one trained token. Exactly one of `turn` and `summary` is given."""

    turn: int | None  # index into the trajectory's turns
    summary: int | None  # index into its summaries
    position: int  # of the token in the completion, from 0
    policy_version: int
    finish_reason: FinishReason


@dataclass(frozen=True, kw_only=True)
class _Span:
    """One recorded completion of a segment."""

    name: str  # for a message
    completion: Turn | Summary
    index: int  # into the turns, or into the summaries
    trained: bool


class _Mismatch(Exception):
    """What does not match, for a message that names the trajectory."""


def verify(samples: Sequence[Sample]) -> None:
    """Raise TrainingError, naming trajectory, turn and fault, unless every sample is what was recorded when it was sampled.

    That is: no segment comes twice, and of a trajectory either every segment with a trained token or none; ids, mask, log-probs
    and advantages have one length, and the advantages are numbers; the mask is True exactly where a completion was recorded, and
    tokens are trained exactly where that completion is; log-probs are finite and not positive there, and 0 elsewhere; each
    completion, and the ids before it, have the digest of that time.
    """
    _check_whole(samples)
    for sample in samples:
        try:
            _verify(sample)
        except _Mismatch as mismatch:
            raise TrainingError(
                f"{named([sample])}, {mismatch}; the batch is not what was sampled, and is not trained on"
            ) from None


def verify_pack(part: Pack) -> None:
    """Raise TrainingError unless the flat rows of a pack hold each sample's trained tokens, each behind the token before it.

    The last look before the loss: a shift by one would train every token on the prediction of its neighbour.
    """
    ids_L, predictor_M, target_M, sample_M = (
        x.cpu().numpy() for x in (part.ids_L, part.predictor_M, part.target_M, part.sample_M)
    )
    for index, sample in enumerate(part.samples):
        own_M = sample_M == index
        trained = sample.mask.nonzero()[0]
        is_whole = np.array_equal(target_M[own_M], sample.ids[trained])
        if not is_whole or not np.array_equal(ids_L[predictor_M[own_M]], sample.ids[trained - 1]):
            raise TrainingError(f"{named([sample])}: is packed with other tokens than it has, and is not trained on")


def _check_whole(samples: Sequence[Sample]) -> None:
    """Every completion of a trajectory is trained once, or the trajectory is not trained on at all."""
    counts = Counter((sample.trajectory.key, sample.segment) for sample in samples)
    for sample in {sample.trajectory.key: sample for sample in samples}.values():
        key, segments = sample.trajectory.key, sample.trajectory.segments
        for index in range(len(segments)):
            expected = int(any(span.trained and span.completion.stop > span.completion.start for span in _spans(sample, index)))
            if (found := counts[key, index]) != expected:
                raise TrainingError(
                    f"{named([sample])}, segment {index + 1}: comes {found} times instead of {expected}; the batch is not what"
                    " was sampled, and is not trained on"
                )


def trace(sample: Sample, t: int) -> Provenance:
    """Where the trained token at position `t` of the sample's T axis came from. Raises ValueError if it is not trained."""
    for span in _spans(sample):
        start, stop = span.completion.start, span.completion.stop
        if span.trained and start <= t < stop:
            is_turn = isinstance(span.completion, Turn)
            return Provenance(
                turn=span.index if is_turn else None,
                summary=None if is_turn else span.index,
                position=t - start,
                policy_version=span.completion.policy_version,
                finish_reason=span.completion.finish_reason,
            )
    raise ValueError(f"token {t} of {named([sample])}, segment {sample.segment}: is not trained")


def _spans(sample: Sample, segment: int | None = None) -> list[_Span]:
    """The recorded completions of the sample's segment, or of another one, in the order of their tokens."""
    trajectory = sample.trajectory
    segment = sample.segment if segment is None else segment
    turns = [
        _Span(name=f"turn {index + 1}", completion=turn, index=index, trained=True)
        for index, turn in enumerate(trajectory.turns)
        if turn.segment == segment
    ]
    summaries = [
        _Span(name=f"summary {index + 1}", completion=summary, index=index, trained=summary.trained)
        for index, summary in enumerate(trajectory.summaries)
        if summary.segment == segment
    ]
    return sorted([*turns, *summaries], key=lambda span: span.completion.start)


def _verify(sample: Sample) -> None:
    """Raises _Mismatch."""
    segment, spans = sample.tokens, _spans(sample)
    _check_lengths(sample)
    sampled = _mask_of(spans, len(segment.ids))
    trained = _mask_of([span for span in spans if span.trained], len(segment.ids))
    _check_mask(spans, segment.mask, sampled, "sampled")
    _check_mask(spans, sample.mask, trained, "trained")
    _check_logprobs(spans, segment, sampled)
    for span in spans:
        start, stop = span.completion.start, span.completion.stop
        if span.completion.digest != digest_of(segment.ids[:stop], segment.logprobs[start:stop]):
            raise _Mismatch(f"{span.name}: the digest of its ids and log-probs is not the one recorded when they were sampled")


def _check_lengths(sample: Sample) -> None:
    segment = sample.tokens
    lengths = {
        "ids": len(segment.ids),
        "mask": len(segment.mask),
        "logprobs": len(segment.logprobs),
        "advantages": len(sample.advantages),
    }
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise _Mismatch(f"segment {sample.segment + 1}: one number per token is needed, found {told}")
    if not np.isfinite(sample.advantages).all():
        raise _Mismatch(f"segment {sample.segment + 1}: an advantage is not a finite number")


def _mask_of(spans: Sequence[_Span], length: int) -> MaskT:
    """[T], True on the spans. Raises _Mismatch for a span that lies outside or on another one."""
    mask = np.zeros(length, dtype=np.bool_)
    end = 0
    for span in spans:
        start, stop = span.completion.start, span.completion.stop
        if not end <= start <= stop <= length:
            raise _Mismatch(f"{span.name}: its span {start}..{stop} does not lie within {end}..{length}")
        mask[start:stop] = True
        end = stop
    return mask


def _check_mask(spans: Sequence[_Span], mask: MaskT, expected: MaskT, what: str) -> None:
    if np.array_equal(mask, expected):
        return
    t = int((mask != expected).argmax())
    was = "was" if expected[t] else "was not"
    raise _Mismatch(f"{_place(spans, t)}: the mask is {bool(mask[t])} on token {t}, which {was} {what}")


def _check_logprobs(spans: Sequence[_Span], segment: Segment, sampled: MaskT) -> None:
    logprobs = segment.logprobs
    # -inf is no log-prob of a token that was sampled, and a comparison with NaN is False.
    good = np.where(sampled, (logprobs <= MAX_LOGPROB) & (logprobs > -np.inf), logprobs == 0)
    if good.all():
        return
    t = int(good.argmin())
    allowed = "must be finite and at most 0" if sampled[t] else "must be 0, since it was not sampled"
    raise _Mismatch(f"{_place(spans, t)}: the log-prob of token {t} is {logprobs[t]}: {allowed}")


def _place(spans: Sequence[_Span], t: int) -> str:
    """The completion on which, or behind which, token `t` stands."""
    before = [span for span in spans if span.completion.start <= t]
    if not before:
        return "the prompt"
    last = before[-1]
    return last.name if t < last.completion.stop else f"behind {last.name}"
