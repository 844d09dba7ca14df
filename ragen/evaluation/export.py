"""Recorded episodes in the forms that other programs read: where they come from, which of them, and how they are written.

parquet    whole trajectories, every column of the recorder, in one file
chat       one line of JSON an episode: messages with the reward on the reply that earned it (export_chat.py)
datasets   a folder that Hugging Face `datasets` opens, with its card (export_datasets.py)
sft        ids with their mask, and chats, for fine-tuning on what went well (export_sft.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ragen.errors import ConfigError, StorageError, near_match
from ragen.evaluation.results import read_result
from ragen.files import file_written_aside
from ragen.rollout.recorder import SCHEMA, Recorded, read_rollout, read_table

KEEPS: Mapping[str, str] = {
    "all": "every recorded episode",
    "scored": "all but those that broken infrastructure ended",
    "successes": "those that the environment calls a success",
}
ROLLOUTS = "rollouts"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Recorder files to export, and what is known about them."""

    name: str
    files: tuple[Path, ...]
    keep: str  # of KEEPS
    facts: Mapping[str, str]  # what is known of how the episodes were made, for people

    def __post_init__(self) -> None:
        if self.keep not in KEEPS:
            raise ConfigError(f"--keep={self.keep}: must be one of {', '.join(KEEPS)}{near_match(self.keep, KEEPS)}")

    def rows(self) -> Iterator[list[Recorded]]:
        """The episodes that are kept, file after file."""
        for path in self.files:
            yield [row for row in read_rollout(path) if self._keeps(row)]

    def tables(self) -> Iterator[pa.Table]:
        """The same as the recorder's own columns."""
        for path in self.files:
            table = read_table(path)
            match self.keep:
                case "scored":
                    table = table.filter(pc.invert(table["failed"]))
                case "successes":
                    table = table.filter(pc.and_(table["success"], pc.invert(table["failed"])))
            yield table

    def _keeps(self, row: Recorded) -> bool:
        is_scored = not row.trajectory.end_reason.is_infrastructure
        return self.keep == "all" or (is_scored and (self.keep == "scored" or row.trajectory.success))


@dataclass(frozen=True, kw_only=True)
class Written:
    """What an export has written."""

    path: Path
    num_episodes: int
    num_rows: int


def find_source(target: Path, *, keep: str) -> Source:
    """The recorder files that `target` names.

    A run folder means the rollouts of its training; its `eval/`, or any folder of recorder files, those files; the JSON file of
    an evaluation the episodes beside it; a .parquet file itself. Raises StorageError if there is nothing to export.
    """
    if target.suffix == ".json":
        result = read_result(target)
        if result.episodes_file is None:
            raise StorageError(
                f"{target}: the episodes of this evaluation are not beside it ({target.with_suffix('.parquet').name})"
            )
        facts = {"model": result.model, "training steps": str(result.step), "evaluation": result.kind}
        return Source(name=f"{result.model} {target.stem}", files=(result.episodes_file,), keep=keep, facts=facts)
    if target.suffix == ".parquet":
        if not target.is_file():
            raise StorageError(f"{target}: no such file")
        return Source(name=target.stem, files=(target,), keep=keep, facts={})
    folder = target / ROLLOUTS if (target / ROLLOUTS).is_dir() else target
    files = tuple(sorted(folder.glob("*.parquet")))
    if not files:
        raise StorageError(f"{target}: no recorded episodes: name a run folder, its eval/ folder, or a file of either")
    return Source(name=target.resolve().name, files=files, keep=keep, facts={"files": str(len(files))})


def refuse_existing(path: Path) -> None:
    """Raise StorageError if something stands where an export would go."""
    if path.exists():
        raise StorageError(f"{path}: is there already; an export never overwrites, so name another place or remove it")


def write_parquet(source: Source, out: Path) -> Written:
    """One file of whole trajectories, a row group for each recorder file. Raises StorageError when the disk refuses."""
    num_rows = write_tables(out, SCHEMA, source.tables())
    return Written(path=out, num_episodes=num_rows, num_rows=num_rows)


def write_tables(out: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> int:
    """Write tables of one schema into one Parquet file, all or nothing; the number of rows."""
    num_rows = 0
    with file_written_aside(out) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in tables:
            if table.num_rows:
                writer.write_table(table.cast(schema))
                num_rows += table.num_rows
    return num_rows


Export = Callable[[Source, Path], Written]
