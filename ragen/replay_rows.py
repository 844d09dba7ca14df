"""What was recorded beside what came out again, one row each, and by how much they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from ragen.records import EpisodeKey, Group, Trajectory
from ragen.rollout.recorder import Recorded

ABSENT = "-"


@dataclass(frozen=True, kw_only=True)
class Row:
    """`difference` says in a few words by how much the two differ; empty if they are equal bit for bit."""

    what: str
    recorded: str
    replayed: str
    difference: str = ""

    @property
    def is_equal(self) -> bool:
        return not self.difference


def equal_or(what: str, recorded: str, replayed: str, is_equal: bool, difference: str = "differs") -> Row:
    return Row(what=what, recorded=recorded, replayed=replayed, difference="" if is_equal else difference)


def compare_numbers(recorded: Mapping[str, float], replayed: Mapping[str, float]) -> list[Row]:
    """One row per metric that either has, those of the update first."""
    keys = sorted(recorded.keys() | replayed.keys(), key=lambda key: (not key.startswith(("update/", "critic/")), key))
    return [_number_row(key, recorded.get(key), replayed.get(key)) for key in keys]


def _number_row(key: str, then: float | None, now: float | None) -> Row:
    if then is None or now is None:
        return Row(what=key, recorded=_digits(then), replayed=_digits(now), difference="only one has it")
    return equal_or(key, _digits(then), _digits(now), then == now, f"by {abs(now - then):.2g}")


def _digits(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.9g}"


def compare_advantages(recorded: Sequence[Recorded], replayed: Sequence[Recorded]) -> Row:
    """Which segments were trained on, and the advantage of each of their tokens."""
    then, now = (
        {(row.trajectory.key, at): array for row in rows for at, array in enumerate(row.advantages) if array is not None}
        for rows in (recorded, replayed)
    )
    return _array_row("advantages", then, now, "trained segments")


def compare_played(recorded: Sequence[Group], replayed: Sequence[Group]) -> list[Row]:
    """Ids, log-probs, rewards and all the rest of every trajectory that was played to an end.

    What the infrastructure broke is left out: a timeout need not come again, and what was played in its place is another episode.
    """
    then, now = _by_key(recorded), _by_key(replayed)
    names = ("ids", "logprobs")
    arrays = [_array_row(f"rollout: {name}", _arrays(then, name), _arrays(now, name), "segments") for name in names]
    rows = [_set_row(then, now), *arrays]
    rows.append(_array_row("rollout: rewards", _rewards(then), _rewards(now), "trajectories"))
    rows.append(_array_row("rollout: returns", _returns(then), _returns(now), "trajectories"))
    other = [key for key in then.keys() & now.keys() if _texts(then[key]) != _texts(now[key])]
    counts = f"{len(then)} trajectories", f"{len(now)} trajectories"
    rows.append(equal_or("rollout: texts and ends", *counts, not other, f"{len(other)} differ{_first(other)}"))
    return rows


def _set_row(then: Mapping[EpisodeKey, Any], now: Mapping[EpisodeKey, Any]) -> Row:
    odd = sorted(then.keys() ^ now.keys(), key=lambda key: (key.group, key.member, key.attempt))
    counts = f"{len(then)} trajectories", f"{len(now)} trajectories"
    return equal_or("rollout: episodes", *counts, not odd, f"{len(odd)} stand on one side alone{_first(odd)}")


def _by_key(groups: Iterable[Group]) -> dict[EpisodeKey, Trajectory]:
    return {t.key: t for group in groups for t in (*group.trajectories, *group.abstained)}


def _arrays(trajectories: Mapping[EpisodeKey, Trajectory], name: str) -> dict[tuple[EpisodeKey, int], NDArray[Any]]:
    return {(key, at): getattr(s, name) for key, t in trajectories.items() for at, s in enumerate(t.segments)}


def _rewards(trajectories: Mapping[EpisodeKey, Trajectory]) -> dict[EpisodeKey, NDArray[np.float64]]:
    return {key: np.array([turn.reward for turn in t.turns], dtype=np.float64) for key, t in trajectories.items()}


def _returns(trajectories: Mapping[EpisodeKey, Trajectory]) -> dict[EpisodeKey, NDArray[np.float64]]:
    return {key: np.array([t.return_], dtype=np.float64) for key, t in trajectories.items()}


def _texts(trajectory: Trajectory) -> Any:
    """Whatever is not compared by the other rows."""
    turns = tuple(replace(turn, reward=0.0, format_penalty=0.0, parts={}, digest="") for turn in trajectory.turns)
    summaries = tuple(replace(summary, digest="") for summary in trajectory.summaries)
    return turns, summaries, trajectory.final_observation, trajectory.end_reason, trajectory.success, trajectory.truncated


def _array_row(what: str, then: Mapping[Any, NDArray[Any]], now: Mapping[Any, NDArray[Any]], unit: str) -> Row:
    """Arrays by key: those on one side alone, those that differ, and by how much at most."""
    alone = then.keys() ^ now.keys()
    shared = [key for key in then if key in now]
    unequal = [key for key in shared if then[key].shape != now[key].shape or then[key].tobytes() != now[key].tobytes()]
    comparable = [key for key in unequal if then[key].shape == now[key].shape]
    words = []
    if alone:
        words.append(f"{len(alone)} on one side alone")
    if unequal:
        by = max((np.abs(then[key].astype(np.float64) - now[key].astype(np.float64)).max() for key in comparable), default=0.0)
        first = unequal[0][0] if isinstance(unequal[0], tuple) else unequal[0]
        at_most = f", by at most {by:.2g}" if comparable else ""
        words.append(f"{len(unequal)} differ{at_most}{_first([first])}")
    return Row(what=what, recorded=f"{len(then)} {unit}", replayed=f"{len(now)} {unit}", difference="; ".join(words))


def _first(keys: Sequence[EpisodeKey]) -> str:
    """Which trajectory to look at first."""
    if not keys:
        return ""
    key = min(keys, key=lambda each: (each.group, each.member, each.attempt))
    return f", the first: {key.environment} group {key.group} member {key.member}"


def compare_tensors(recorded: Path, replayed: Path) -> list[Row]:
    """One row per safetensors file of two checkpoints: weights, critic, optimiser state."""
    names = sorted({path.relative_to(root).as_posix() for root in (recorded, replayed) for path in root.rglob("*.safetensors")})
    return [_file_row(name, recorded / name, replayed / name) for name in names]


def _file_row(name: str, then: Path, now: Path) -> Row:
    if not (then.is_file() and now.is_file()):
        shown = [path.name if path.is_file() else ABSENT for path in (then, now)]
        return Row(what=name, recorded=shown[0], replayed=shown[1], difference="only one has it")
    with safe_open(then, framework="pt") as a, safe_open(now, framework="pt") as b:
        counts = f"{len(a.keys())} tensors", f"{len(b.keys())} tensors"
        differences = {key: _tensor_gap(a, b, key) for key in sorted({*a.keys(), *b.keys()})}
    unequal = {key: gap for key, gap in differences.items() if gap is not None}
    if not unequal:
        return Row(what=name, recorded=counts[0], replayed=counts[1])
    worst = max(unequal, key=unequal.__getitem__)
    return Row(
        what=name,
        recorded=counts[0],
        replayed=counts[1],
        difference=f"{len(unequal)} differ, by at most {unequal[worst]:.2g} ({worst})",
    )


def _tensor_gap(a: Any, b: Any, key: str) -> float | None:
    """The largest difference of a tensor; None if it is the same bit for bit, infinity if it cannot be compared."""
    if key not in a.keys() or key not in b.keys():  # noqa: SIM118 - an open file, not a mapping
        return float("inf")
    then, now = a.get_tensor(key), b.get_tensor(key)
    if then.shape != now.shape or then.dtype != now.dtype:
        return float("inf")
    if torch.equal(then.reshape(-1).view(torch.uint8), now.reshape(-1).view(torch.uint8)):
        return None
    return float((then.double() - now.double()).abs().max())
