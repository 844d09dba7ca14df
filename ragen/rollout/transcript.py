"""The tokens of one trajectory: segments that only ever grow. Where an id came from decides its mask; nothing is searched.

Of a policy that reads and writes text (models/text_chat.py) only the number of tokens is kept: the ids are UNKNOWN_ID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ragen.records import UNKNOWN_ID, ChatMessage, Completion, Counted, IdsT, Segment, digest_of


@dataclass
class _Growing:
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: int | None = None  # behind the last completion; None if there was none
    prompt: tuple[ChatMessage, ...] = ()  # what the first ids render

    def up_to_last_completion(self) -> Segment:
        stop = self.stop
        return Segment(
            ids=_known(self.ids[:stop]),
            mask=np.array(self.mask[:stop], dtype=np.bool_),
            logprobs=np.array(self.logprobs[:stop], dtype=np.float32),
            prompt=self.prompt,
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

    def restart(self, ids: Sequence[int], prompt: Sequence[ChatMessage] = ()) -> None:
        """Begin a segment with a new prompt, of which `ids` are the rendering. A last one that nobody answered is given up."""
        if self._segments[-1].stop is None:
            self._segments.pop()
        self._segments.append(_Growing(prompt=tuple(prompt)))
        self.read(ids)

    def read(self, ids: Sequence[int]) -> None:
        """Append what the model reads."""
        self._append(ids, [False] * len(ids), [0.0] * len(ids))

    def sampled(self, completion: Completion) -> Span:
        """Append what the model wrote, exactly as sampled."""
        ids, logprobs = completion.ids, completion.logprobs
        if completion.counted is not None:
            self._count(completion.counted)
            ids = (UNKNOWN_ID,) * completion.counted.num_sampled
            logprobs = (0.0,) * len(ids)
        start = self.length
        self._append(ids, [True] * len(ids), logprobs)
        self._segments[-1].stop = self.length
        digest = digest_of(_known(self._segments[-1].ids), logprobs)
        return Span(segment=len(self._segments) - 1, start=start, stop=self.length, digest=digest)

    def segments(self) -> tuple[Segment, ...]:
        """Each up to its last completion; a last one that nobody answered only if it is the only one."""
        grown = self._segments[:-1] if len(self._segments) > 1 and self._segments[-1].stop is None else self._segments
        return tuple(segment.up_to_last_completion() for segment in grown)

    def _count(self, counted: Counted) -> None:
        """The prompt has as many tokens as the server says: the estimate was for the limits."""
        self._segments[-1] = _Growing(prompt=self._segments[-1].prompt)
        self.read([UNKNOWN_ID] * counted.num_prompt)

    def _append(self, ids: Sequence[int], mask: Sequence[bool], logprobs: Sequence[float]) -> None:
        """The only place where ids, mask and log-probs grow."""
        last = self._segments[-1]
        last.ids.extend(ids)
        last.mask.extend(mask)
        last.logprobs.extend(logprobs)
        lengths = (len(last.ids), len(last.mask), len(last.logprobs))
        assert len(set(lengths)) == 1, lengths


def _known(ids: Sequence[int]) -> IdsT:
    """Ids as they are recorded. A negative one stands for a piece of text in one `TextChat`, and means nothing elsewhere."""
    return np.maximum(np.array(ids, dtype=np.int32), UNKNOWN_ID)
