"""The episodes of an evaluation as they end, so that one that is stopped can go on: a file of JSON lines that only grows.

The first line says what is measured; a further one holds the attempts at one episode, or what one reply of a server was billed
as: so the replies of episodes that were stopped in the middle are counted too. A process that dies leaves at most a
half line at the end, which is passed over. Once the result is written, the journal is no longer needed.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Self

import numpy as np

from ragen.errors import StorageError
from ragen.files import storage
from ragen.records import UNKNOWN_ID, Counted, EpisodeKey, Segment, Trajectory

FORMAT = 2
Place = tuple[str, int, int]  # tag, group and member of an episode

_ARRAYS = {"ids": np.int32, "mask": np.bool_, "logprobs": np.float32}


def place_of(key: EpisodeKey) -> Place:
    """Which of the evaluation's episodes this is, whatever attempt at it."""
    return key.environment, key.group, key.member


class Journal:
    """One file, `<stem>.partial.jsonl`, or with a number if an earlier evaluation was stopped and is not gone on with."""

    def __init__(self, path: Path, attempts: Mapping[Place, tuple[Trajectory, ...]], paid: Sequence[Counted] = ()) -> None:
        self.path = path
        self.attempts = dict(attempts)
        self.paid = list(paid)

    @classmethod
    def begin(cls, folder: Path, stem: str, about: Mapping[str, Any]) -> Self:
        """A new one. An earlier one of the same name is left alone. Raises StorageError."""
        path = next(path for path in _paths(folder, stem) if not path.exists())
        with storage("write", path):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(_line(_header(about)), encoding="utf-8")
        return cls(path, {})

    @classmethod
    def resume(cls, folder: Path, stem: str, about: Mapping[str, Any]) -> Self | None:
        """The newest one that is about the same, None if there is none. Raises StorageError for a file that is no journal."""
        for path in reversed(_existing(folder, stem)):
            header, *lines = _whole_lines(path)
            if header == _header(about):
                paid = [Counted(**line["paid"]) for line in lines if isinstance(line, dict)]
                return cls(path, dict(_episodes([line for line in lines if isinstance(line, list)])), paid)
        return None

    @staticmethod
    def differences(folder: Path, stem: str, about: Mapping[str, Any]) -> str:
        """A clause about what the newest one is about instead; empty if there is none."""
        for path in reversed(_existing(folder, stem)):
            return f"; {path.name} differs in {', '.join(_differences(_whole_lines(path)[0], _header(about)))}"
        return ""

    @property
    def finished(self) -> dict[Place, tuple[Trajectory, ...]]:
        """The attempts at each episode that came to a scored end. The others are to be played again."""
        return {place: tried for place, tried in self.attempts.items() if not tried[-1].end_reason.is_infrastructure}

    def write(self, attempts: Sequence[Trajectory]) -> None:
        """Add the attempts at an episode. Raises StorageError."""
        place = place_of(attempts[-1].key)
        self.attempts[place] = (*self.attempts.get(place, ()), *attempts)
        self._append([_plain(trajectory) for trajectory in attempts])

    def pay(self, counted: Counted) -> None:
        """Add what one reply was billed as. Raises StorageError."""
        self.paid.append(counted)
        self._append({"paid": asdict(counted)})

    def close(self) -> None:
        """The result is written: the journal goes."""
        with storage("remove", self.path):
            self.path.unlink()

    def _append(self, value: Any) -> None:
        with storage("write", self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(_line(value))


def _paths(folder: Path, stem: str) -> Iterator[Path]:
    yield folder / f"{stem}.partial.jsonl"
    number = 2
    while True:
        yield folder / f"{stem}-{number}.partial.jsonl"
        number += 1


def _existing(folder: Path, stem: str) -> list[Path]:
    """By age: the newest last."""
    found = [*folder.glob(f"{stem}.partial.jsonl"), *folder.glob(f"{stem}-*.partial.jsonl")]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def _whole_lines(path: Path) -> list[Any]:
    """The lines up to the first that is not whole. The file is cut behind them, so that it can grow again."""
    with storage("read", path):
        content = path.read_bytes()
    whole, end = [], 0
    for line in content.splitlines(keepends=True):
        try:
            parsed = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            parsed = None
        if parsed is None:
            break
        whole.append(parsed)
        end += len(line)
    if not whole:
        raise StorageError(f"{path}: not a journal of an evaluation; remove it, or evaluate without --resume")
    if end < len(content):
        with storage("write", path), path.open("r+b") as file:
            file.truncate(end)
    return whole


def _episodes(lines: Sequence[Any]) -> Iterator[tuple[Place, tuple[Trajectory, ...]]]:
    """Each episode with all attempts at it: those of an earlier try stand in a line of their own."""
    tried: dict[Place, tuple[Trajectory, ...]] = {}
    for line in lines:
        attempts = tuple(typing.cast(Trajectory, _revived(Trajectory, each)) for each in line)
        place = place_of(attempts[-1].key)
        tried[place] = (*tried.get(place, ()), *attempts)
    yield from tried.items()


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
