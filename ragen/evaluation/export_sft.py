"""Episodes for fine-tuning, in the two forms that TRL's SFTTrainer takes.

`tokens.parquet`: a row a segment, the ids that were sampled and read, with `assistant_masks` over those that the model wrote.
Nothing is encoded again; episodes of policies whose ids nobody knows are in the other file alone. `messages.jsonl`: a row a
reply, `prompt` the chat that the model read and `completion` what it wrote; the trainer encodes it, for any model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragen.evaluation.export import Source, Written, write_tables
from ragen.evaluation.export_chat import json_line
from ragen.files import folder_written_aside
from ragen.records import MaskT, Trajectory, Turn
from ragen.rollout.messages import prompted

TOKENS, MESSAGES = "tokens.parquet", "messages.jsonl"
TOKEN_SCHEMA = pa.schema(
    [
        ("input_ids", pa.list_(pa.int32())),
        ("assistant_masks", pa.list_(pa.int8())),  # 1 where the model wrote the id
        ("environment", pa.string()),
        ("task_seed", pa.uint64()),
        ("step", pa.int64()),
        ("group", pa.int32()),
        ("member", pa.int32()),
        ("segment", pa.int32()),
        ("success", pa.bool_()),
        ("return", pa.float64()),
    ]
)


def write_sft(source: Source, out: Path) -> Written:
    """Write both files into the new folder `out`. Raises StorageError when the disk refuses."""
    num_episodes = num_rows = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal num_episodes, num_rows
        for rows in source.rows():
            trajectories = [row.trajectory for row in rows]
            lines = [line for trajectory in trajectories for line in message_rows(trajectory)]
            file.writelines(map(json_line, lines))
            num_episodes, num_rows = num_episodes + len(rows), num_rows + len(lines)
            yield pa.Table.from_pylist([row for each in trajectories for row in token_rows(each)], schema=TOKEN_SCHEMA)

    with folder_written_aside(out) as folder, (folder / MESSAGES).open("w", encoding="utf-8", newline="\n") as file:
        write_tables(folder / TOKENS, TOKEN_SCHEMA, tables())
    return Written(path=out, num_episodes=num_episodes, num_rows=num_rows)


def token_rows(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """The segments in which the model wrote anything that is to be learned."""
    for index, segment in enumerate(trajectory.segments):
        mask = learned(trajectory, index)
        if mask.any() and segment.has_ids:
            yield {
                "input_ids": segment.ids,
                "assistant_masks": mask.astype("int8"),
                **_key(trajectory),
                "segment": index,
                "success": trajectory.success,
                "return": trajectory.return_,
            }


def message_rows(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """What the model wrote and is to learn, reply by reply, behind the chat that it read."""
    for chat, each in prompted(trajectory):
        if isinstance(each.what, Turn) or each.what.trained:
            yield {
                "prompt": [dataclasses.asdict(message) for message in chat],
                "completion": [{"role": "assistant", "content": each.text}],
                **_key(trajectory),
            }


def learned(trajectory: Trajectory, index: int) -> MaskT:
    """[T] of a segment: True where the model wrote the id, but in summaries that the run does not train."""
    mask: MaskT = trajectory.segments[index].mask.copy()
    for summary in trajectory.summaries:
        if summary.segment == index and not summary.trained:
            mask[summary.start : summary.stop] = False
    return mask


def _key(trajectory: Trajectory) -> dict[str, Any]:
    names = ("environment", "task_seed", "step", "group", "member")
    return {name: getattr(trajectory.key, name) for name in names}
