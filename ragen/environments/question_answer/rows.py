"""Reading question-answer files and dividing their rows into training and validation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from ragen.environments.answers.numbers import read_number
from ragen.errors import ConfigError, near_match

_SUFFIXES = (".json", ".jsonl", ".parquet")


@dataclass(frozen=True, kw_only=True)
class Format:
    """Where a row keeps its question and its answer; with a marker, the answer is what follows the marker's last occurrence."""

    question_field: str = "question"
    answer_field: str = "answer"
    answer_marker: str | None = None
    numeric: bool = False  # whether every answer must be one number


@dataclass(frozen=True, kw_only=True)
class Row:
    """One question. `number` counts from 1: the row of the file, the line of a JSONL file."""

    number: int
    question: str
    answer: str


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The two parts. No question is in both, unless there is no validation part: then both are the whole file."""

    train: tuple[Row, ...]
    validation: tuple[Row, ...]


def load(path: Path, validation_path: Path | None, *, form: Format, validation_frac: float) -> Rows:
    """Read once per process (again if a file changes) and divide. Raises ConfigError, one line that names file and row."""
    validation_stamp = None if validation_path is None else _stamp(validation_path, "validation_path")
    return _load_once(path, _stamp(path, "path"), validation_path, validation_stamp, form, validation_frac)


@lru_cache(maxsize=16)  # the stamps are there to tell a changed file from the one that was read
def _load_once(
    path: Path,
    stamp: tuple[int, int],
    validation_path: Path | None,
    validation_stamp: tuple[int, int] | None,
    form: Format,
    validation_frac: float,
) -> Rows:
    rows = read(path, form)
    if validation_path is None:
        parts = divide(rows, validation_frac)
        for name, part in (("training", parts.train), ("validation", parts.validation)):
            if not part:
                raise ConfigError(f"validation_frac={validation_frac}: leaves no {name} row of the {len(rows)} in '{path}'")
        return parts
    held_out = read(validation_path, form)
    known = {_words(row.question): row.number for row in rows}
    for row in held_out:
        if number := known.get(_words(row.question)):
            raise ConfigError(f"validation_path='{validation_path}': row {row.number} asks what row {number} of '{path}' asks")
    return Rows(train=rows, validation=held_out)


def read(path: Path, form: Format) -> tuple[Row, ...]:
    """The rows of a JSONL, JSON (a list of objects) or Parquet file. Raises ConfigError, one line naming file, row and field."""
    rows = tuple(_row(number, record, form, path) for number, record in _records(path, form))
    if not rows:
        raise ConfigError(f"path='{path}': holds no rows")
    return rows


def divide(rows: tuple[Row, ...], validation_frac: float) -> Rows:
    """Each question goes to one part by a hash of its words, so it stays there when rows are added, removed or repeated.

    `validation_frac` (0 to 1) is the expected share of questions held out; at 0 both parts are all rows.
    """
    if validation_frac == 0.0:
        return Rows(train=rows, validation=rows)
    held_out = [_position(row.question) < validation_frac for row in rows]
    return Rows(
        train=tuple(row for row, held in zip(rows, held_out, strict=True) if not held),
        validation=tuple(row for row, held in zip(rows, held_out, strict=True) if held),
    )


def _words(question: str) -> str:
    return " ".join(question.casefold().split())


def _position(question: str) -> float:
    """Where a question falls within 0..1, from a hash that is the same on every machine."""
    digest = hashlib.sha256(_words(question).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _stamp(path: Path, option: str) -> tuple[int, int]:
    """What changes when the file does. Raises ConfigError if there is no such file or its kind is unknown."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"{option}='{path}': must end in one of {', '.join(_SUFFIXES)}")
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{option}='{path}': cannot be read: {error.strerror}") from None
    return status.st_mtime_ns, status.st_size


def _records(path: Path, form: Format) -> Iterator[tuple[int, Any]]:
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            yield from _parquet_records(path, form)
        elif suffix == ".jsonl":
            with path.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield number, _json(line, path, number)
        else:
            records = _json(path.read_text(encoding="utf-8"), path, None)
            if not isinstance(records, list):
                raise ConfigError(f"path='{path}': must be a list of objects, not {type(records).__name__}")
            yield from enumerate(records, 1)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise ConfigError(f"path='{path}': cannot be read: {' '.join(str(error).split())[:200]}") from None


def _parquet_records(path: Path, form: Format) -> Iterator[tuple[int, Any]]:
    names = pyarrow.parquet.read_schema(path).names
    wanted = [field for field in dict.fromkeys((form.question_field, form.answer_field)) if field in names]
    records = pyarrow.parquet.read_table(path, columns=wanted).to_pylist()
    absent = dict.fromkeys(name for name in names if name not in wanted)  # for the near match of a misspelt field
    yield from ((number, record if len(wanted) == 2 else absent | record) for number, record in enumerate(records, 1))


def _json(text: str, path: Path, number: int | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = "" if number is None else f"row {number}: "
        raise ConfigError(f"path='{path}': {where}is not JSON: {error}") from None


def _row(number: int, record: Any, form: Format, path: Path) -> Row:
    where = f"path='{path}': row {number}"
    if not isinstance(record, dict):
        raise ConfigError(f"{where}: must be an object with fields, not {type(record).__name__}")
    question, answer = (_text(record, field, where) for field in (form.question_field, form.answer_field))
    if form.answer_marker is not None:
        _, found, answer = answer.rpartition(form.answer_marker)
        answer = answer.strip()
        if not found or not answer:
            raise ConfigError(f"{where}: field {form.answer_field!r} has nothing after the marker {form.answer_marker!r}")
    if form.numeric and read_number(answer) is None:
        raise ConfigError(f"{where}: field {form.answer_field!r} is not one number: {answer[:50]!r}")
    return Row(number=number, question=question, answer=answer)


def _text(record: dict[str, Any], field: str, where: str) -> str:
    if field not in record:
        names = [str(name) for name in record]
        raise ConfigError(f"{where}: has no field {field!r}{near_match(field, names)} (fields: {', '.join(names)[:200]})")
    value = record[field]
    text = str(value).strip() if type(value) in (str, int, float) else ""
    if not text or text in ("nan", "inf", "-inf"):
        raise ConfigError(f"{where}: field {field!r} must be a text or a number, not {str(value)[:50]!r}")
    return text
