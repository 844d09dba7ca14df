"""Trajectories on disk: one Parquet file a step, whole enough that the viewer, evaluation and a replay need nothing else.

One row a trajectory, in the order of the groups, infrastructure failures included. Ids, masks, log-probs and advantages are
lists of segments, each a list on the segment's T axis; turns and summaries are lists of structs. `return`, `num_sampled` and
`failed` repeat what the row implies, so that a query over many files need not open the lists. `abstained` marks what no reward
function would judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragen.errors import StorageError
from ragen.files import file_written_aside
from ragen.records import (
    ChatMessage,
    EndReason,
    EpisodeKey,
    FinishReason,
    FloatT,
    Group,
    Reply,
    Sample,
    Segment,
    Split,
    Summary,
    Trajectory,
    Turn,
    Verdict,
)

FORMAT = b"4"  # raised when a column changes its meaning

TEXTS = pa.list_(pa.string())
TURN = pa.struct(
    [
        ("segment", pa.int32()),
        ("start", pa.int32()),
        ("stop", pa.int32()),
        ("observation", pa.string()),
        ("state", pa.string()),
        ("text", pa.string()),
        ("thought", pa.string()),
        ("actions", TEXTS),
        ("verdict", pa.string()),
        ("feedback", pa.string()),
        ("executed", TEXTS),
        ("reward", pa.float64()),
        ("format_penalty", pa.float64()),
        ("finish_reason", pa.string()),
        ("policy_version", pa.int64()),
        ("digest", pa.string()),
        ("info", pa.map_(pa.string(), pa.float64())),
        ("parts", pa.map_(pa.string(), pa.float64())),
    ]
)
SUMMARY = pa.struct(
    [
        ("segment", pa.int32()),
        ("start", pa.int32()),
        ("stop", pa.int32()),
        ("num_turns", pa.int32()),
        ("text", pa.string()),
        ("trained", pa.bool_()),
        ("finish_reason", pa.string()),
        ("policy_version", pa.int64()),
        ("digest", pa.string()),
    ]
)
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("step", pa.int64()),
        ("group", pa.int32()),
        ("member", pa.int32()),
        ("environment", pa.string()),
        ("task_seed", pa.uint64()),
        ("dynamics_seed", pa.uint64()),
        ("attempt", pa.int32()),
        ("end_reason", pa.string()),
        ("success", pa.bool_()),
        ("truncated", pa.bool_()),
        ("failed", pa.bool_()),
        ("abstained", pa.bool_()),
        ("error", pa.string()),
        ("return", pa.float64()),
        ("num_sampled", pa.int32()),
        ("final_observation", pa.string()),
        ("turns", pa.list_(TURN)),
        ("summaries", pa.list_(SUMMARY)),
        ("prompts", pa.list_(pa.list_(MESSAGE))),  # of each segment: the chat that its first prompt renders
        ("ids", pa.list_(pa.list_(pa.int32()))),
        ("mask", pa.list_(pa.list_(pa.bool_()))),
        ("logprobs", pa.list_(pa.list_(pa.float32()))),
        ("advantages", pa.list_(pa.list_(pa.float32()))),  # null where a segment was not trained on
    ],
    metadata={"ragen.format": FORMAT},
)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One row: the trajectory, and for each segment its advantages [T] if it was trained on."""

    trajectory: Trajectory
    advantages: tuple[FloatT | None, ...]
    abstained: bool = False

    @property
    def is_trained(self) -> bool:
        """Whether any segment was trained on."""
        return any(each is not None for each in self.advantages)


def write_rollout(path: Path, groups: Sequence[Group], samples: Sequence[Sample] = ()) -> None:
    """Write a step's trajectories to `path`, all or nothing; `samples` are what was trained on, for its advantages.

    Raises StorageError, with nothing half-written left, when the disk refuses.
    """
    trajectories = [t for group in groups for t in (*group.trajectories, *group.abstained, *group.failed)]
    known = {(sample.trajectory.key, sample.segment): sample.advantages for sample in samples}
    columns = {
        **_scalar_columns(trajectories, abstained={t.key for group in groups for t in group.abstained}),
        "turns": pa.array([[_turn_to_row(turn) for turn in t.turns] for t in trajectories], SCHEMA.field("turns").type),
        "summaries": pa.array([[asdict(each) for each in t.summaries] for t in trajectories], SCHEMA.field("summaries").type),
        "prompts": pa.array(
            [[[asdict(each) for each in s.prompt] for s in t.segments] for t in trajectories], SCHEMA.field("prompts").type
        ),
        "ids": _segments_column([[s.ids for s in t.segments] for t in trajectories], pa.int32()),
        "mask": _segments_column([[s.mask for s in t.segments] for t in trajectories], pa.bool_()),
        "logprobs": _segments_column([[s.logprobs for s in t.segments] for t in trajectories], pa.float32()),
        "advantages": _segments_column(
            [[known.get((t.key, index)) for index in range(len(t.segments))] for t in trajectories], pa.float32()
        ),
    }
    table = pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
    with file_written_aside(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_table(path: Path) -> pa.Table:
    """The columns of what `write_rollout` wrote. Raises StorageError for any other file."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        detail = " ".join(str(error).split())
        raise StorageError(f"{path}: cannot read this rollout: {detail}") from error
    if (table.schema.metadata or {}).get(b"ragen.format") != FORMAT:
        raise StorageError(f"{path}: not a rollout file of format {FORMAT.decode()}")
    return table


def read_rollout(path: Path) -> list[Recorded]:
    """Read what `write_rollout` wrote: equal in every field, in the same order. Raises StorageError for any other file."""
    table = read_table(path)
    rows = table.drop_columns(["ids", "mask", "logprobs", "advantages"]).to_pylist()
    lists = zip(table["ids"], table["mask"], table["logprobs"], table["advantages"], strict=True)
    return [
        Recorded(
            trajectory=_row_to_trajectory(row, tuple(map(_segment, ids.values, mask.values, logprobs.values, row["prompts"]))),
            advantages=tuple(_array(each, np.float32) if each.is_valid else None for each in advantages.values),
            abstained=row["abstained"],
        )
        for row, (ids, mask, logprobs, advantages) in zip(rows, lists, strict=True)
    ]


def groups_of(rows: Sequence[Recorded]) -> list[Group]:
    """The groups that were written, each with its rows in the order in which they stand."""
    members: dict[tuple[str, int], list[Recorded]] = {}
    for row in rows:
        key = row.trajectory.key
        members.setdefault((key.environment, key.group), []).append(row)
    return [
        Group(
            trajectories=tuple(r.trajectory for r in each if not r.abstained and not r.trajectory.end_reason.is_infrastructure),
            failed=tuple(r.trajectory for r in each if r.trajectory.end_reason.is_infrastructure),
            abstained=tuple(r.trajectory for r in each if r.abstained),
        )
        for each in members.values()
    ]


def _scalar_columns(trajectories: Sequence[Trajectory], *, abstained: Set[EpisodeKey]) -> dict[str, pa.Array]:
    rows = [
        {
            **asdict(t.key),
            "end_reason": t.end_reason,
            "success": t.success,
            "truncated": t.truncated,
            "failed": t.end_reason.is_infrastructure,
            "abstained": t.key in abstained,
            "error": t.error,
            "return": t.return_,
            "num_sampled": t.num_sampled,
            "final_observation": t.final_observation,
        }
        for t in trajectories
    ]
    names = [field.name for field in SCHEMA if not pa.types.is_list(field.type)]
    return {name: pa.array([row[name] for row in rows], SCHEMA.field(name).type) for name in names}


def _segments_column(rows: Sequence[Sequence[NDArray[Any] | None]], values: pa.DataType) -> pa.ListArray:
    """For each row a list of segments, each a list of numbers."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _list_column(list(chain.from_iterable(rows)), values))


def _list_column(arrays: Sequence[NDArray[Any] | None], values: pa.DataType) -> pa.ListArray:
    """One list each from numpy arrays without a Python object per number; None becomes null."""
    lengths = [0 if array is None else len(array) for array in arrays]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    present = [array for array in arrays if array is not None]
    flat = np.concatenate(present) if present else np.empty(0, values.to_pandas_dtype())
    nulls = pa.array([array is None for array in arrays], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, values), mask=nulls)


def _array(scalar: pa.ListScalar, dtype: type[np.generic]) -> NDArray[Any]:
    array: NDArray[Any] = scalar.values.to_numpy(zero_copy_only=False)
    return array.astype(dtype, copy=False)


def _segment(ids: pa.ListScalar, mask: pa.ListScalar, logprobs: pa.ListScalar, prompt: Sequence[Mapping[str, str]]) -> Segment:
    return Segment(
        ids=_array(ids, np.int32),
        mask=_array(mask, np.bool_),
        logprobs=_array(logprobs, np.float32),
        prompt=tuple(ChatMessage(**message) for message in prompt),
    )


def _turn_to_row(turn: Turn) -> dict[str, Any]:
    return {
        "segment": turn.segment,
        "start": turn.start,
        "stop": turn.stop,
        "observation": turn.observation,
        "state": turn.state,
        "text": turn.reply.text,
        "thought": turn.reply.thought,
        "actions": turn.reply.actions,
        "verdict": turn.reply.verdict,
        "feedback": turn.reply.feedback,
        "executed": turn.executed,
        "reward": turn.reward,
        "format_penalty": turn.format_penalty,
        "finish_reason": turn.finish_reason,
        "policy_version": turn.policy_version,
        "digest": turn.digest,
        "info": dict(turn.info),
        "parts": dict(turn.parts),
    }


def _row_to_turn(row: Mapping[str, Any]) -> Turn:
    return Turn(
        segment=row["segment"],
        start=row["start"],
        stop=row["stop"],
        observation=row["observation"],
        state=row["state"],
        reply=Reply(
            text=row["text"],
            thought=row["thought"],
            actions=tuple(row["actions"]),
            verdict=Verdict(row["verdict"]),
            feedback=row["feedback"],
        ),
        executed=tuple(row["executed"]),
        reward=row["reward"],
        format_penalty=row["format_penalty"],
        finish_reason=FinishReason(row["finish_reason"]),
        policy_version=row["policy_version"],
        digest=row["digest"],
        info=dict(row["info"]),
        parts=dict(row["parts"]),
    )


def _row_to_summary(row: Mapping[str, Any]) -> Summary:
    return Summary(**{**row, "finish_reason": FinishReason(row["finish_reason"])})


def _row_to_trajectory(row: Mapping[str, Any], segments: tuple[Segment, ...]) -> Trajectory:
    key = EpisodeKey(
        split=Split(row["split"]),
        step=row["step"],
        group=row["group"],
        member=row["member"],
        environment=row["environment"],
        task_seed=row["task_seed"],
        dynamics_seed=row["dynamics_seed"],
        attempt=row["attempt"],
    )
    return Trajectory(
        key=key,
        segments=segments,
        turns=tuple(_row_to_turn(turn) for turn in row["turns"]),
        summaries=tuple(_row_to_summary(summary) for summary in row["summaries"]),
        final_observation=row["final_observation"],
        end_reason=EndReason(row["end_reason"]),
        success=row["success"],
        truncated=row["truncated"],
        error=row["error"],
    )
