"""The episodes of an evaluation as they end, so that one that is stopped can go on: a file of JSON lines that only grows.

The first line says what is measured; a further one holds the attempts at one episode, or what one reply of a server was billed
as: so the replies of episodes that were stopped in the middle are counted too. A process that dies leaves at most a
half line at the end, which is cut off. Once the result is written, the journal is no longer needed.
"""

from __future__ import annotations

import json
import logging
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from io import FileIO
from pathlib import Path
from typing import Any, Self

import numpy as np

from ragen.errors import StorageError
from ragen.evaluation.locks import take
from ragen.files import storage
from ragen.records import UNKNOWN_ID, Counted, EpisodeKey, Segment, Trajectory

FORMAT = 2
Place = tuple[str, int, int]  # tag, group and member of an episode

logger = logging.getLogger(__name__)

_ARRAYS = {"ids": np.int32, "mask": np.bool_, "logprobs": np.float32}


def place_of(key: EpisodeKey) -> Place:
    """Which of the evaluation's episodes this is, whatever attempt at it."""
    return key.environment, key.group, key.member


class Journal:
    """One file, `<stem>.partial.jsonl`, or with a number if an earlier evaluation was stopped and is not gone on with.

    A new one is no file before `begin`. From there, or from `resume`, until it is released or removed, nobody else can write it.
    """

    def __init__(self, folder: Path, stem: str, about: Mapping[str, Any]) -> None:
        self.attempts: dict[Place, tuple[Trajectory, ...]] = {}
        self.paid: list[Counted] = []
        self._folder, self._stem, self._about = folder, stem, about
        self._made: list[Path] = []  # folders that were not there before it, the innermost first
        self._file: FileIO | None = None

    @classmethod
    def resume(cls, folder: Path, stem: str, about: Mapping[str, Any]) -> Self | None:
        """The newest one that is about the same, None if there is none; what is about something else is not touched.

        A kill leaves at most half a last line, which is cut. Damaged lines before it are passed over, with a warning.
        Raises StorageError if another process is writing it, or if there is none but a file that is no journal.
        """
        journal = cls(folder, stem, about)
        for path, header in _headers(folder, stem):
            if header == _header(about) and (file := _opened(path)) is not None:
                journal._file = file
                journal._read()
                return journal
        _refuse_what_is_none(folder, stem)
        return None

    @staticmethod
    def differences(folder: Path, stem: str, about: Mapping[str, Any]) -> str:
        """A clause about what the newest one is about instead; empty if there is none."""
        for path, header in _headers(folder, stem):
            if header is not None:
                return f"; {path.name} differs in {', '.join(_differences(header, _header(about)))}"
        return ""

    def begin(self) -> None:
        """Make the file, under a name that no other has, if it is not one that is gone on with. Raises StorageError."""
        if self._file is not None:
            return
        with storage("write", self._folder):
            self._made = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = next(file for path in _paths(self._folder, self._stem) if (file := _created(path)) is not None)
        self._append(_header(self._about))

    @property
    def path(self) -> Path:
        """Of the file, once there is one."""
        assert self._file is not None, "the journal has not begun"
        return Path(self._file.name)

    @property
    def finished(self) -> dict[Place, tuple[Trajectory, ...]]:
        """The attempts at each episode that came to a scored end. The others are to be played again."""
        return {place: tried for place, tried in self.attempts.items() if not tried[-1].end_reason.is_infrastructure}

    def write(self, attempts: Sequence[Trajectory]) -> None:
        """Add the attempts at an episode. Raises StorageError."""
        self._add(attempts)
        self._append([_plain(trajectory) for trajectory in attempts])

    def pay(self, counted: Counted) -> None:
        """Add what one reply was billed as. Raises StorageError."""
        self.paid.append(counted)
        self._append({"paid": asdict(counted)})

    def release(self) -> None:
        """Whoever comes next may go on with it."""
        if self._file is not None:
            self._file.close()

    def remove(self) -> None:
        """The result is written, or there is nothing to keep: the file goes, with the folders made for it that are empty."""
        if self._file is None:
            return
        with storage("remove", self.path):
            self.path.unlink()
        with suppress(OSError):  # a folder that is not empty
            for folder in self._made:
                folder.rmdir()

    def _add(self, attempts: Sequence[Trajectory]) -> None:
        place = place_of(attempts[-1].key)
        self.attempts[place] = (*self.attempts.get(place, ()), *attempts)

    def _append(self, value: Any) -> None:
        assert self._file is not None, "the journal has not begun"
        with storage("write", self.path):
            rest = memoryview(_line(value).encode())
            while rest:  # an unbuffered write may take less than all
                rest = rest[self._file.write(rest) :]

    def _read(self) -> None:
        """Take in what a file has behind its header, and cut half a last line, so that it can grow again."""
        assert self._file is not None
        with storage("read", self.path):
            _, *lines = self._file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            with storage("write", self.path):
                self._file.seek(-len(lines.pop()), os.SEEK_END)
                self._file.truncate()
        damaged = [line for line in lines if not self._take_in(line)]
        num_bills = sum(line.startswith(b"{") for line in damaged)
        if damaged:
            said = "%s: damaged lines are passed over: %d episodes will be played again, %d bills are not counted"
            logger.warning(said, self.path, len(damaged) - num_bills, num_bills)

    def _take_in(self, line: bytes) -> bool:
        """False for a line that was not written so."""
        try:
            value = json.loads(line)
            if isinstance(value, dict):
                self.paid.append(Counted(**value["paid"]))
            else:
                self._add([typing.cast(Trajectory, _revived(Trajectory, each)) for each in value])
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError):  # the records' own too
            return False
        return True


def _paths(folder: Path, stem: str) -> Iterator[Path]:
    yield folder / f"{stem}.partial.jsonl"
    number = 2
    while True:
        yield folder / f"{stem}-{number}.partial.jsonl"
        number += 1


def _headers(folder: Path, stem: str) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Each file of that name, the newest first, and what it is about; None for one that is no journal.

    One that was cut within its first line, by a kill in the moment it was made, holds nothing and is left out.
    """
    found = [*folder.glob(f"{stem}.partial.jsonl"), *folder.glob(f"{stem}-*.partial.jsonl")]
    for path in sorted(found, key=_age):
        line = _first_line(path)
        if line.endswith(b"\n"):
            try:
                header = json.loads(line)
            except ValueError:
                header = None
            yield path, header if isinstance(header, dict) else None


def _first_line(path: Path) -> bytes:
    try:
        with storage("read", path), path.open("rb") as file:
            return file.readline()
    except StorageError:
        if path.exists():
            raise
        return b""  # that evaluation has come to its end in this moment


def _age(path: Path) -> int:
    try:
        return -path.stat().st_mtime_ns
    except FileNotFoundError:  # the same
        return 0


def _refuse_what_is_none(folder: Path, stem: str) -> None:
    for path, header in _headers(folder, stem):
        if header is None:
            raise StorageError(f"{path}: not a journal of an evaluation; remove it, or evaluate without --resume")


def _created(path: Path) -> FileIO | None:
    """A new file, which this process alone writes; None if the name is taken."""
    try:
        file = path.open("xb", buffering=0)
    except FileExistsError:
        return None
    take(file.fileno())  # nobody else has it: what has no header is not gone on with
    return file


def _opened(path: Path) -> FileIO | None:
    """A file to go on with; None if that evaluation has come to its end meanwhile. Raises StorageError if it is being written."""
    with storage("read", path):
        try:
            file = path.open("r+b", buffering=0)
        except FileNotFoundError:
            return None
        is_taken = not take(file.fileno())
        if not is_taken and os.fstat(file.fileno()).st_nlink:
            return file
    file.close()
    if is_taken:
        raise StorageError(f"{path}: another process is writing this evaluation; wait for it, or evaluate without --resume")
    return None


def _header(about: Mapping[str, Any]) -> dict[str, Any]:
    """As it is read back from JSON."""
    return typing.cast(dict[str, Any], json.loads(_line({"format": FORMAT, **about})))


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) + "\n"


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The keys, two levels deep, in which two headers differ."""
    names = []
    for key in sorted({*found, *wanted}):
        mine, theirs = found.get(key), wanted.get(key)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            names += [f"{key}.{each}" for each in sorted({*mine, *theirs}) if mine.get(each) != theirs.get(each)]
        elif mine != theirs:
            names.append(key)
    return names


def _plain(trajectory: Trajectory) -> dict[str, Any]:
    """As JSON. Of ids that nobody knows, and whose log-probs are 0, only the numbers of tokens are written."""
    plain = asdict(trajectory)
    for segment, written in zip(trajectory.segments, plain["segments"], strict=True):
        if len(segment.ids) and (segment.ids == UNKNOWN_ID).all() and not segment.logprobs.any():
            for key in _ARRAYS:
                del written[key]
            written["counted"] = [len(segment.ids) - segment.num_sampled, segment.num_sampled]
        else:
            written |= {key: getattr(segment, key).tolist() for key in _ARRAYS}
    return plain


def _revived(kind: Any, value: Any) -> Any:
    """What `_plain` wrote, as the record that it was. Records are dataclasses of each other, tuples, mappings, enums, numbers."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Segment:
        return _segment(value)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in fields(kind) if field.name in value]
        make = typing.cast(Callable[..., Any], kind)
        return make(**{name: _revived(hints[name], value[name]) for name in names})
    if origin is tuple:
        return tuple(_revived(arguments[0], each) for each in value)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _revived(arguments[0], value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return value


def _segment(value: Mapping[str, Any]) -> Segment:
    prompt = _revived(typing.get_type_hints(Segment)["prompt"], value["prompt"])
    if "counted" in value:
        num_read, num_sampled = value["counted"]
        length = num_read + num_sampled
        mask = np.arange(length) >= num_read
        ids, logprobs = np.full(length, UNKNOWN_ID, np.int32), np.zeros(length, np.float32)
        return Segment(ids=ids, mask=mask, logprobs=logprobs, prompt=prompt)
    arrays: dict[str, Any] = {key: np.array(value[key], dtype=dtype) for key, dtype in _ARRAYS.items()}
    return Segment(**arrays, prompt=prompt)
