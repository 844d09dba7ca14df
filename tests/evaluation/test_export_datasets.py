"""A folder as Hugging Face `datasets` reads it: what the card lists is there, and the columns are plain.

The library itself is tried where it is installed; it is no dependency of the tests.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from ragen.evaluation.export import find_source
from ragen.evaluation.export_chat import chat_line
from ragen.evaluation.export_datasets import CARD, DATASET_SCHEMA, WHAT, dataset_row, write_dataset
from ragen.records import Split
from tests.evaluation.test_export import BROKEN, LOST, WON, recorded

TRAINED = replace(LOST, key=replace(LOST.key, split=Split.TRAIN))


def front_matter(folder: Path) -> Any:
    """The block between the first two lines of three hyphens, as YAML."""
    head, block, _ = (folder / CARD).read_text(encoding="utf-8").split("---\n", 2)
    assert head == ""
    return OmegaConf.to_container(OmegaConf.create(block))


def test_the_card_lists_the_files_that_are_there_and_only_these(tmp_path: Path) -> None:
    path = recorded(tmp_path / "rollouts", WON, TRAINED, BROKEN)
    written = write_dataset(find_source(path, keep="all"), tmp_path / "data")
    (config,) = front_matter(written.path)["configs"]
    listed = {entry["split"]: sorted(written.path.glob(entry["path"])) for entry in config["data_files"]}
    assert sorted(listed) == ["train", "validation"]
    assert sorted(file for files in listed.values() for file in files) == sorted(written.path.glob("data/*"))
    seeds = {split: pq.read_table(files[0])["task_seed"].to_pylist() for split, files in listed.items()}
    assert seeds == {"train": [3], "validation": [1, 5]}
    assert (written.num_episodes, written.num_rows) == (3, 3)


def test_a_split_without_episodes_is_not_there(tmp_path: Path) -> None:
    written = write_dataset(find_source(recorded(tmp_path / "rollouts", WON), keep="all"), tmp_path / "data")
    assert [path.name for path in written.path.glob("data/*")] == ["validation-00000-of-00001.parquet"]


def test_the_card_counts_episodes_and_successes_and_explains_every_column(tmp_path: Path) -> None:
    path = recorded(tmp_path / "rollouts", WON, LOST, TRAINED)
    text = (write_dataset(find_source(path, keep="scored"), tmp_path / "data").path / CARD).read_text(encoding="utf-8")
    assert "| train | bandit | 1 | 0 |" in text
    assert "| validation | bandit | 2 | 1 |" in text
    assert "all but those that broken infrastructure ended" in text
    assert list(WHAT) == DATASET_SCHEMA.names
    assert all(f"| `{name}` | {what} |" in text for name, what in WHAT.items())


def test_a_row_is_the_chat_with_its_metadata_and_tokens() -> None:
    row = dataset_row(WON)
    line = chat_line(WON)
    assert row["messages"] == line["messages"]
    assert {name: row[name] for name in line["metadata"]} == line["metadata"]
    assert list(row) == DATASET_SCHEMA.names
    assert row["input_ids"][0].tolist() == WON.segments[0].ids.tolist()
    read = pa.Table.from_pylist([row], schema=DATASET_SCHEMA).to_pylist()[0]
    assert [message["reward"] for message in read["messages"]] == [None, -0.1, None, 0.25]


def test_no_column_is_a_map() -> None:
    """Which is why the recorder's own files are not loaded by that library."""
    assert not any(pa.types.is_map(field.type) for field in DATASET_SCHEMA)


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="the package datasets is no dependency")
def test_the_library_opens_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    import datasets

    path = recorded(tmp_path / "rollouts", WON, TRAINED)
    folder = write_dataset(find_source(path, keep="all"), tmp_path / "data").path
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in loaded.items()} == {"train": 1, "validation": 1}
    assert loaded["validation"][0]["messages"][1]["reward"] == -0.1
