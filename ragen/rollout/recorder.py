"""Trajectories on disk: one Parquet file a step, whole enough that the viewer, evaluation and a replay need nothing else.

One row a trajectory, in the order of the groups, infrastructure failures included. Ids, masks, log-probs and advantages are list
columns on the T axis; turns are a list of structs. `return`, `num_sampled` and `failed` repeat what the row implies, so that a
query over many files need not open the lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragen.errors import StorageError
from ragen.files import file_written_aside
from ragen.records import (
    EndReason,
    EpisodeKey,
    FinishReason,
    FloatT,
    Group,
    IdsT,
    MaskT,
    Reply,
    Split,
    Trajectory,
    Turn,
    Verdict,
)

FORMAT = b"2"  # raised when a column changes its meaning

TEXTS = pa.list_(pa.string())
TURN = pa.struct(
    [
        ("start", pa.int32()),
        ("stop", pa.int32()),
        ("observation", pa.string()),
        ("text", pa.string()),
        ("thought", pa.string()),
        ("actions", TEXTS),
        ("verdict", pa.string()),
        ("executed", TEXTS),
        ("reward", pa.float64()),
        ("format_penalty", pa.float64()),
        ("finish_reason", pa.string()),
        ("policy_version", pa.int64()),
        ("info", pa.map_(pa.string(), pa.float64())),
        ("parts", pa.map_(pa.string(), pa.float64())),
    ]
)
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
        ("failed", pa.bool_()),
        ("error", pa.string()),
        ("return", pa.float64()),
        ("num_sampled", pa.int32()),
        ("final_observation", pa.string()),
        ("turns", pa.list_(TURN)),
        ("ids", pa.list_(pa.int32())),
        ("mask", pa.list_(pa.bool_())),
        ("logprobs", pa.list_(pa.float32())),
        ("advantages", pa.list_(pa.float32())),  # null where the trajectory was not trained on
    ],
    metadata={"ragen.format": FORMAT},
)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One row: the trajectory, and its advantages [T] if it was trained on."""

    trajectory: Trajectory
    advantages: FloatT | None


def write_rollout(path: Path, groups: Sequence[Group], advantages: Mapping[EpisodeKey, FloatT] | None = None) -> None:
    """Write a step's trajectories to `path`, all or nothing; `advantages` holds [T] arrays of those that were trained on.

    Raises StorageError, with nothing half-written left, when the disk refuses.
    """
    trajectories = [t for group in groups for t in (*group.trajectories, *group.abstained, *group.failed)]
    known = advantages or {}
    rows = [known.get(t.key) for t in trajectories]
    for trajectory, row in zip(trajectories, rows, strict=True):
        assert row is None or row.shape == trajectory.ids.shape, (trajectory.key, row.shape, trajectory.ids.shape)
    columns = {
        **_scalar_columns(trajectories),
        "turns": pa.array([[_turn_to_row(turn) for turn in t.turns] for t in trajectories], SCHEMA.field("turns").type),
        "ids": _list_column([t.ids for t in trajectories], pa.int32()),
        "mask": _list_column([t.mask for t in trajectories], pa.bool_()),
        "logprobs": _list_column([t.logprobs for t in trajectories], pa.float32()),
        "advantages": _list_column(rows, pa.float32()),
    }
    table = pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
    with file_written_aside(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_rollout(path: Path) -> list[Recorded]:
    """Read what `write_rollout` wrote: equal in every field, in the same order. Raises StorageError for any other file."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        detail = " ".join(str(error).split())
        raise StorageError(f"{path}: cannot read this rollout: {detail}") from error
    if (table.schema.metadata or {}).get(b"ragen.format") != FORMAT:
        raise StorageError(f"{path}: not a rollout file of format {FORMAT.decode()}")
    rows = table.drop_columns(["ids", "mask", "logprobs", "advantages"]).to_pylist()
    lists = zip(table["ids"], table["mask"], table["logprobs"], table["advantages"], strict=True)
    return [
        Recorded(
            trajectory=_row_to_trajectory(row, _array(ids, np.int32), _array(mask, np.bool_), _array(logprobs, np.float32)),
            advantages=_array(advantages, np.float32) if advantages.is_valid else None,
        )
        for row, (ids, mask, logprobs, advantages) in zip(rows, lists, strict=True)
    ]


def _scalar_columns(trajectories: Sequence[Trajectory]) -> dict[str, pa.Array]:
    rows = [
        {
            **asdict(t.key),
            "end_reason": t.end_reason,
            "success": t.success,
            "failed": t.end_reason.is_infrastructure,
            "error": t.error,
            "return": t.return_,
            "num_sampled": t.num_sampled,
            "final_observation": t.final_observation,
        }
        for t in trajectories
    ]
    names = [field.name for field in SCHEMA if not pa.types.is_list(field.type)]
    return {name: pa.array([row[name] for row in rows], SCHEMA.field(name).type) for name in names}


def _list_column(arrays: Sequence[NDArray[Any] | None], values: pa.DataType) -> pa.ListArray:
    """One list a row from numpy arrays without a Python object per number; None becomes null."""
    lengths = [0 if array is None else len(array) for array in arrays]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    present = [array for array in arrays if array is not None]
    flat = np.concatenate(present) if present else np.empty(0, values.to_pandas_dtype())
    nulls = pa.array([array is None for array in arrays], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, values), mask=nulls)


def _array(scalar: pa.ListScalar, dtype: type[np.generic]) -> NDArray[Any]:
    array: NDArray[Any] = scalar.values.to_numpy(zero_copy_only=False)
    return array.astype(dtype, copy=False)


def _turn_to_row(turn: Turn) -> dict[str, Any]:
    return {
        "start": turn.start,
        "stop": turn.stop,
        "observation": turn.observation,
        "text": turn.reply.text,
        "thought": turn.reply.thought,
        "actions": turn.reply.actions,
        "verdict": turn.reply.verdict,
        "executed": turn.executed,
        "reward": turn.reward,
        "format_penalty": turn.format_penalty,
        "finish_reason": turn.finish_reason,
        "policy_version": turn.policy_version,
        "info": dict(turn.info),
        "parts": dict(turn.parts),
    }


def _row_to_turn(row: Mapping[str, Any]) -> Turn:
    return Turn(
        start=row["start"],
        stop=row["stop"],
        observation=row["observation"],
        reply=Reply(text=row["text"], thought=row["thought"], actions=tuple(row["actions"]), verdict=Verdict(row["verdict"])),
        executed=tuple(row["executed"]),
        reward=row["reward"],
        format_penalty=row["format_penalty"],
        finish_reason=FinishReason(row["finish_reason"]),
        policy_version=row["policy_version"],
        info=dict(row["info"]),
        parts=dict(row["parts"]),
    )


def _row_to_trajectory(row: Mapping[str, Any], ids: IdsT, mask: MaskT, logprobs: FloatT) -> Trajectory:
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
        ids=ids,
        mask=mask,
        logprobs=logprobs,
        turns=tuple(_row_to_turn(turn) for turn in row["turns"]),
        final_observation=row["final_observation"],
        end_reason=EndReason(row["end_reason"]),
        success=row["success"],
        error=row["error"],
    )
