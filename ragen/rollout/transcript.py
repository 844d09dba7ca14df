"""The tokens of one trajectory: segments that only ever grow. Where an id came from decides its mask; nothing is searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ragen.records import Completion, Segment, digest_of


@dataclass
class _Growing:
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: int | None = None  # behind the last completion; None if there was none

    def up_to_last_completion(self) -> Segment:
        stop = self.stop
        return Segment(
            ids=np.array(self.ids[:stop], dtype=np.int32),
            mask=np.array(self.mask[:stop], dtype=np.bool_),
            logprobs=np.array(self.logprobs[:stop], dtype=np.float32),
        )


@dataclass(frozen=True, kw_only=True)
class Span:
    """Where a completion stands: [start, stop) on the T axis of a segment."""

    segment: int
    start: int
    stop: int
    digest: str  # of the segment's ids up to `stop`, and of the completion's log-probs


class Transcript:
    """Segments in the order of time; ids, mask and log-probs of the last one grow together."""

    def __init__(self) -> None:
        self._segments = [_Growing()]

    @property
    def ids(self) -> tuple[int, ...]:
        """The last segment: what the next tokens are sampled from."""
        return tuple(self._segments[-1].ids)

    @property
    def length(self) -> int:
        """Of the last segment."""
        return len(self._segments[-1].ids)

    @property
    def last_sampled_id(self) -> int | None:
        """The last id, if it was sampled: not if the last completion was empty."""
        last = self._segments[-1]
        return last.ids[-1] if last.mask and last.mask[-1] else None

    def restart(self, ids: Sequence[int]) -> None:
        """Begin a segment with a new prompt. A last one that nobody answered is given up."""
        if self._segments[-1].stop is None:
            self._segments.pop()
        self._segments.append(_Growing())
        self.read(ids)

    def read(self, ids: Sequence[int]) -> None:
        """Append what the model reads."""
        self._append(ids, [False] * len(ids), [0.0] * len(ids))

    def sampled(self, completion: Completion) -> Span:
        """Append what the model wrote, exactly as sampled."""
        start = self.length
        self._append(completion.ids, [True] * len(completion.ids), completion.logprobs)
        self._segments[-1].stop = self.length
        digest = digest_of(self._segments[-1].ids, completion.logprobs)
        return Span(segment=len(self._segments) - 1, start=start, stop=self.length, digest=digest)

    def segments(self) -> tuple[Segment, ...]:
        """Each up to its last completion; a last one that nobody answered only if it is the only one."""
        grown = self._segments[:-1] if len(self._segments) > 1 and self._segments[-1].stop is None else self._segments
        return tuple(segment.up_to_last_completion() for segment in grown)

    def _append(self, ids: Sequence[int], mask: Sequence[bool], logprobs: Sequence[float]) -> None:
        """The only place where ids, mask and log-probs grow."""
        last = self._segments[-1]
        last.ids.extend(ids)
        last.mask.extend(mask)
        last.logprobs.extend(logprobs)
        lengths = (len(last.ids), len(last.mask), len(last.logprobs))
        assert len(set(lengths)) == 1, lengths
