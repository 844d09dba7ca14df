"""Trajectories, groups and samples written down as literals, for what comes after the rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ragen.records import (
    EndReason,
    EpisodeKey,
    FinishReason,
    Group,
    Reply,
    Sample,
    Segment,
    Split,
    Summary,
    Trajectory,
    Turn,
    Verdict,
    digest_of,
)


def make_trajectory(
    prompt: Sequence[int],
    *segments: Sequence[int],
    logprobs: Sequence[float] | None = None,
    rewards: Sequence[float] = (),
    penalties: Sequence[float] = (),
    group: int = 0,
    member: int = 0,
    end_reason: EndReason = EndReason.FAILED,
    tag: str = "corridor",
    verdict: Verdict = Verdict.VALID,
    finish_reason: FinishReason = FinishReason.STOP,
    num_executed: int = 1,
    error: str = "",
) -> Trajectory:
    """A prompt, then in turn a sampled reply and what the environment says: `make_trajectory([1, 2], [7, 8], [3], [9])`.

    `logprobs` are those of all sampled ids in order, -1 each by default; `rewards` and `penalties` are per reply, 0 by default.
    """
    ids, mask, turns = list(prompt), [False] * len(prompt), []
    for place, segment in enumerate(segments):
        sampled = place % 2 == 0
        if sampled:
            turn = place // 2
            turns.append(
                Turn(
                    start=len(ids),
                    stop=len(ids) + len(segment),
                    observation="o",
                    reply=Reply(text="t", thought="", actions=("a",), verdict=verdict),
                    executed=("a",) * num_executed,
                    reward=rewards[turn] if rewards else 0.0,
                    format_penalty=penalties[turn] if penalties else 0.0,
                    finish_reason=finish_reason,
                    policy_version=0,
                )
            )
        ids += segment
        mask += [sampled] * len(segment)
    values = np.zeros(len(ids), dtype=np.float32)
    values[np.array(mask, dtype=np.bool_)] = -1.0 if logprobs is None else logprobs
    key = EpisodeKey(
        split=Split.TRAIN, step=0, group=group, member=member, environment=tag, task_seed=100 + group, dynamics_seed=member
    )
    trajectory = Trajectory(
        key=key,
        segments=(Segment(ids=np.array(ids, dtype=np.int32), mask=np.array(mask, dtype=np.bool_), logprobs=values),),
        turns=tuple(turns),
        final_observation="",
        end_reason=end_reason,
        success=end_reason is EndReason.SOLVED,
        truncated=end_reason.is_truncation,
        error=error,
    )
    return signed(trajectory)


def signed(trajectory: Trajectory) -> Trajectory:
    """The same trajectory as if an engine had sampled just these ids with just these log-probs."""

    def digest(written: Turn | Summary) -> str:
        segment = trajectory.segments[written.segment]
        return digest_of(segment.ids[: written.stop], segment.logprobs[written.start : written.stop])

    return replace(
        trajectory,
        turns=tuple(replace(turn, digest=digest(turn)) for turn in trajectory.turns),
        summaries=tuple(replace(summary, digest=digest(summary)) for summary in trajectory.summaries),
    )


def make_sample(prompt: Sequence[int], *segments: Sequence[int], advantage: float = 1.0, **details: object) -> Sample:
    """A trajectory as above with the same advantage on every token."""
    trajectory = make_trajectory(prompt, *segments, **details)  # type: ignore[arg-type]
    return Sample(trajectory=trajectory, advantages=np.full(len(trajectory.segments[0].ids), advantage, dtype=np.float32))


def make_group(*returns: float, group: int = 0, failed: Sequence[EndReason] = ()) -> Group:
    """A group whose members have these returns; `failed` adds members lost to broken infrastructure."""
    played = [make_trajectory([1], [2], rewards=[r], group=group, member=m) for m, r in enumerate(returns)]
    lost = [make_trajectory([1], [2], group=group, member=len(returns) + m, end_reason=reason) for m, reason in enumerate(failed)]
    return Group(trajectories=tuple(played), failed=tuple(lost))


def same_trajectory(a: Trajectory, b: Trajectory) -> bool:
    """Equal in every field, arrays bit for bit."""

    def plain(trajectory: Trajectory) -> object:
        arrays = [array.tobytes() for s in trajectory.segments for array in (s.ids, s.mask, s.logprobs)]
        return {name: value for name, value in vars(trajectory).items() if name != "segments"}, arrays

    return plain(a) == plain(b)
