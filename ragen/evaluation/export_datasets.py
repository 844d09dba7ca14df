"""A folder that Hugging Face `datasets` opens with `load_dataset(FOLDER)`: Parquet files by split, and the card that lists them.

The recorder's own files hold maps, which that library does not read; here every column is plain.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragen.evaluation.export import KEEPS, Source, Written, write_tables
from ragen.evaluation.export_chat import chat_line
from ragen.files import folder_written_aside, write_text
from ragen.records import Split, Trajectory

CARD = "README.md"
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("reward", pa.float64()), ("format_penalty", pa.float64())])
DATASET_SCHEMA = pa.schema(
    [
        ("messages", pa.list_(MESSAGE)),
        ("environment", pa.string()),
        ("split", pa.string()),
        ("step", pa.int64()),
        ("group", pa.int32()),
        ("member", pa.int32()),
        ("attempt", pa.int32()),
        ("task_seed", pa.uint64()),
        ("dynamics_seed", pa.uint64()),
        ("success", pa.bool_()),
        ("end_reason", pa.string()),
        ("truncated", pa.bool_()),
        ("failed", pa.bool_()),
        ("error", pa.string()),
        ("return", pa.float64()),
        ("num_turns", pa.int32()),
        ("num_actions", pa.int32()),
        ("num_sampled", pa.int32()),
        ("final_observation", pa.string()),
        ("input_ids", pa.list_(pa.list_(pa.int32()))),
        ("assistant_masks", pa.list_(pa.list_(pa.int8()))),
        ("logprobs", pa.list_(pa.list_(pa.float32()))),
    ]
)
WHAT: Mapping[str, str] = {
    "messages": "the episode as a chat; `reward` and `format_penalty` stand on the reply that earned them",
    "environment": "the tag under which it was configured",
    "split": "`train` or `validation`: which seeds it was played from",
    "step": "of the run in which it was played, from 0",
    "group": "episodes of one group share the task seed",
    "member": "of the group",
    "attempt": "above 0: played in the place of one that broken infrastructure ended",
    "task_seed": "of the initial state",
    "dynamics_seed": "of what chance did afterwards",
    "success": "the environment's word, whatever was paid",
    "end_reason": "why it ended",
    "truncated": "ended by a limit that the agent could not know",
    "failed": "ended by broken infrastructure; nobody's success or failure",
    "error": "of such a failure",
    "return": "rewards and format penalties together",
    "num_turns": "replies",
    "num_actions": "actions that reached the environment",
    "num_sampled": "tokens that the model wrote",
    "final_observation": "what the environment answered last",
    "input_ids": "token ids, a list for each segment (a prompt that was built anew begins one); none of policies behind a server",
    "assistant_masks": "1 where the model wrote the id",
    "logprobs": "of these ids when they were sampled, else 0",
}


def write_dataset(source: Source, out: Path) -> Written:
    """Write card and data into the new folder `out`. Raises StorageError when the disk refuses."""
    counts: dict[Split, Counter[tuple[str, bool]]] = {}
    with folder_written_aside(out) as folder:
        for split in Split:
            counted: Counter[tuple[str, bool]] = Counter()
            data = folder / "data" / f"{split.value}-00000-of-00001.parquet"
            if write_tables(data, DATASET_SCHEMA, _tables(source, split, counted)):
                counts[split] = counted
            else:
                data.unlink()
        write_text(folder / CARD, card(source, counts))
    num_episodes = sum(counted.total() for counted in counts.values())
    return Written(path=out, num_episodes=num_episodes, num_rows=num_episodes)


def dataset_row(trajectory: Trajectory) -> dict[str, Any]:
    """One episode, by column."""
    line = chat_line(trajectory)
    segments = [segment for segment in trajectory.segments if segment.has_ids]
    return {
        "messages": line["messages"],
        **line["metadata"],
        "input_ids": [segment.ids for segment in segments],
        "assistant_masks": [segment.mask.astype("int8") for segment in segments],
        "logprobs": [segment.logprobs for segment in segments],
    }


def card(source: Source, counts: Mapping[Split, Mapping[tuple[str, bool], int]]) -> str:
    """README.md: first the block that `datasets` and the hub read, then what a person wants to know.

    `counts` holds for each split the episodes of each environment, failures and successes apart.
    """
    return "\n".join((*_front_matter(counts), "", *_about(source), "", *_table(counts), "", *_columns(), ""))


def _tables(source: Source, split: Split, counted: Counter[tuple[str, bool]]) -> Iterator[pa.Table]:
    for rows in source.rows():
        chosen = [row.trajectory for row in rows if row.trajectory.key.split is split]
        counted.update((trajectory.key.environment, trajectory.success) for trajectory in chosen)
        yield pa.Table.from_pylist([dataset_row(trajectory) for trajectory in chosen], schema=DATASET_SCHEMA)


def _front_matter(counts: Mapping[Split, Mapping[tuple[str, bool], int]]) -> list[str]:
    files = [line for split in counts for line in (f"  - split: {split.value}", f"    path: data/{split.value}-*.parquet")]
    tags = ["tags:", "- ragen", "- multi-turn", "- agent", "task_categories:", "- reinforcement-learning"]
    return ["---", *tags, "configs:", "- config_name: default", "  data_files:", *files, "---"]


def _about(source: Source) -> list[str]:
    facts = [f"- {key}: {value}" for key, value in source.facts.items()]
    return [
        f"# Episodes of {source.name}",
        "",
        "Whole episodes of a language-model agent, recorded by RAGEN as they were played: " + KEEPS[source.keep] + ".",
        *(["", *facts] if facts else []),
    ]


def _table(counts: Mapping[Split, Mapping[tuple[str, bool], int]]) -> list[str]:
    lines = ["| split | environment | episodes | successes |", "|---|---|---|---|"]
    for split, counted in counts.items():
        for environment in sorted({tag for tag, _ in counted}):
            won, lost = counted.get((environment, True), 0), counted.get((environment, False), 0)
            lines.append(f"| {split.value} | {_cell(environment)} | {won + lost} | {won} |")
    return lines


def _columns() -> Sequence[str]:
    rows = [f"| `{field.name}` | {WHAT[field.name]} |" for field in DATASET_SCHEMA]
    return ["| column | what it is |", "|---|---|", *rows]


def _cell(text: str) -> str:
    """A tag in a table of Markdown: as JSON where it could end the cell."""
    return json.dumps(text).replace("|", "\\|") if "|" in text or not text.isprintable() else text
