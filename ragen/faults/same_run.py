"""Whether two run folders hold the same run: everything but seconds and memory, bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragen.evaluation.results import EVALUATIONS
from ragen.training.checkpoint import CHECKPOINTS, MANIFEST, STATE, find_fault
from ragen.training.superseded import ROLLOUTS
from ragen.training.trackers import read_metrics

TIMED_PREFIXES, TIMED_SUFFIXES = ("time/", "memory/"), ("/tokens_per_s", "/dropped_s")


def differences(a: Path, b: Path) -> list[str]:
    """What differs, one line each; empty if nothing does."""
    return [*_metrics(a, b), *_files(a, b), *_checkpoints(a, b), *_leftovers(b)]


def _metrics(a: Path, b: Path) -> Iterator[str]:
    one, other = read_metrics(a), read_metrics(b)
    steps, others = ([row["step"] for row in rows] for rows in (one, other))
    if steps != others:
        yield f"metrics of steps {steps} against {others}"
        return
    for first, second in zip(one, other, strict=True):
        keys = [key for key in first.keys() | second.keys() if not _is_timed(key) and first.get(key) != second.get(key)]
        if keys:
            yield f"step {first['step']}: {', '.join(sorted(keys)[:4])} of {len(keys)} metrics"


def _is_timed(key: str) -> bool:
    return key.startswith(TIMED_PREFIXES) or key.endswith(TIMED_SUFFIXES)


def _files(a: Path, b: Path) -> Iterator[str]:
    """Rollouts and evaluations: the columns byte for byte, the figures without their seconds."""
    for folder in (ROLLOUTS, EVALUATIONS):
        one, other = ({path.name: path for path in (root / folder).glob("[!.]*")} for root in (a, b))
        if one.keys() != other.keys():
            yield f"{folder}: {', '.join(sorted(one.keys() ^ other.keys())[:4])} on one side alone"
        for name in sorted(one.keys() & other.keys()):
            if _content(one[name]) != _content(other[name]):
                yield f"{folder}/{name}"


def _content(path: Path) -> Any:
    if path.suffix == ".json":
        return {**json.loads(path.read_text(encoding="utf-8")), "seconds": None}
    return hashlib.sha256(path.read_bytes()).digest()


def _checkpoints(a: Path, b: Path) -> Iterator[str]:
    one, other = ({path.name: path for path in (root / CHECKPOINTS).glob("step-*")} for root in (a, b))
    if one.keys() != other.keys():
        yield f"checkpoints: {sorted(one)} against {sorted(other)}"
    for name in sorted(one.keys() & other.keys()):
        if fault := find_fault(other[name]):
            yield f"{name}: {fault}"
            continue
        first, second = (json.loads((path / MANIFEST).read_text(encoding="utf-8"))["files"] for path in (one[name], other[name]))
        yield from (
            f"{name}/{file}"
            for file in sorted(first.keys() | second.keys())
            if file != STATE and first.get(file) != second.get(file)
        )
        states = (json.loads((path / STATE).read_text(encoding="utf-8")) for path in (one[name], other[name]))
        yield from _state(name, *({key: value for key, value in state.items() if key != "metrics"} for state in states))


def _state(name: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    yield from (f"{name}/{STATE}: {key}" for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key))


def _leftovers(folder: Path) -> Iterator[str]:
    yield from (f"left behind: {path.relative_to(folder)}" for path in sorted(folder.rglob(".*.tmp")))
