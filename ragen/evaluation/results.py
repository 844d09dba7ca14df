"""What an evaluation measured, and the file it becomes: one JSON file per evaluation in the run folder's `eval/`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ragen.errors import StorageError
from ragen.evaluation.locks import alone_writing
from ragen.evaluation.statistics import Interval
from ragen.files import storage, write_text
from ragen.records import Group, Trajectory
from ragen.rollout.recorder import read_rollout, write_rollout

EVALUATIONS = "eval"  # the folder of a run in which they lie
VALIDATION = "validation"  # the evaluations that training itself makes


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """The scored episodes of one tag as columns, in the order played: what every mean is made of and every comparison needs."""

    seeds: tuple[int, ...]  # task seeds; the samples of one seed stand under the same one
    successes: tuple[bool, ...]
    returns: tuple[float, ...]  # format penalties included
    turns: tuple[int, ...]  # replies
    valid_turns: tuple[int, ...]  # replies that could be read and held only known actions
    actions: tuple[int, ...]  # executed ones
    sampled_tokens: tuple[int, ...]
    prompt_tokens: tuple[int, ...]  # of the prompts of all turns, each counted whole, as a server bills them; 0 if not known

    def __post_init__(self) -> None:
        lengths = {column.name: len(getattr(self, column.name)) for column in fields(self)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"episodes: columns of unequal length: {lengths}")

    def __len__(self) -> int:
        return len(self.seeds)


@dataclass(frozen=True, kw_only=True)
class TagResult:
    """One environment tag. Only scored episodes count; those lost to broken infrastructure appear in `failures` alone.

    Every interval is clustered by task seed (docs/statistics.md).
    """

    num_episodes: int  # scored ones
    success: Interval  # share of episodes that the environment calls a success
    return_: Interval  # mean return, format penalties included
    pass_at: tuple[Interval, ...]  # pass@k for k = 1, 2, ... up to the samples of a seed: any of k succeeds
    pass_all: tuple[Interval, ...]  # pass^k: all of k succeed
    format_validity: Interval  # share of all replies that could be read and executed
    num_turns: Interval  # mean per episode, as the next three
    num_actions: Interval
    sampled_tokens: Interval
    prompt_tokens: Interval | None  # None if they are not known of every episode
    end_reasons: Mapping[str, int]
    failures: Mapping[str, int]  # infrastructure end reasons
    episodes: Episodes
    reward_parts: Mapping[str, float] = field(default_factory=dict)  # mean of each reward of one's own, over what it judged

    @property
    def samples_per_seed(self) -> int:
        """The largest k of pass@k."""
        return len(self.pass_at)


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """One evaluation of one policy over every configured environment."""

    model: str
    step: int  # training steps behind the policy; 0 is the untrained model
    kind: str = VALIDATION  # what asked for it; part of the file's name
    success: Interval  # over the scored episodes of all tags together, clustered by tag and task seed
    seconds: float
    settings: Mapping[str, Any]  # whatever would have to be the same for a fair comparison
    environments: Mapping[str, TagResult]
    usage: Mapping[str, Any] = field(default_factory=dict)  # of a server (evaluation/usage.py): requests, tokens, cost
    groups: tuple[Group, ...] = field(default=(), repr=False, compare=False)  # the episodes, while they are in memory
    episodes_file: Path | None = field(default=None, repr=False, compare=False)  # where they are if it was read from its file

    @property
    def num_episodes(self) -> int:
        """Scored episodes of all tags."""
        return sum(tag.num_episodes for tag in self.environments.values())

    @property
    def num_failed(self) -> int:
        """Episodes of all tags lost to broken infrastructure."""
        return sum(sum(tag.failures.values()) for tag in self.environments.values())

    @property
    def seeds(self) -> tuple[int, ...]:
        """Task seeds of the scored episodes, tag after tag."""
        return tuple(seed for tag in self.environments.values() for seed in tag.episodes.seeds)

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """The scored episodes, tag after tag, from memory or from `episodes_file`; empty if they are in neither."""
        if self.groups or self.episodes_file is None:
            return tuple(trajectory for group in self.groups for trajectory in group.trajectories)
        recorded = (row.trajectory for row in read_rollout(self.episodes_file))
        return tuple(trajectory for trajectory in recorded if not trajectory.end_reason.is_infrastructure)

    def metrics(self) -> dict[str, float]:
        """What the trackers log: `eval/<tag>/success` and its sisters (docs/metrics.md)."""
        named: dict[str, float] = {}
        for tag, result in self.environments.items():
            named[f"eval/{tag}/success"] = result.success.mean
            named[f"eval/{tag}/return"] = result.return_.mean
            named[f"eval/{tag}/format_validity"] = result.format_validity.mean
            named[f"eval/{tag}/turns"] = result.num_turns.mean
            named[f"eval/{tag}/actions"] = result.num_actions.mean
            named[f"eval/{tag}/sampled_tokens"] = result.sampled_tokens.mean
            if result.samples_per_seed > 1:  # with one sample both are the success rate
                named |= {f"eval/{tag}/pass_at_{k}": each.mean for k, each in enumerate(result.pass_at, start=1)}
                named |= {f"eval/{tag}/pass_all_{k}": each.mean for k, each in enumerate(result.pass_all, start=1)}
            named |= {f"eval/{tag}/part/{name}": mean for name, mean in result.reward_parts.items()}
        return named


def write_result(folder: Path, result: EvaluationResult) -> Path:
    """Write `step-000016.json` (`step-000016-KIND.json` if training did not ask for it) into `folder` and return its path.

    The episodes go beside it, under the same name with `.parquet` (rollout/recorder.py), and are there before the JSON file is.
    An evaluation already there is never overwritten: the same measurement again keeps the file, a different one gets a number
    (`step-000016-2.json`). Others that write at the same moment wait. Raises StorageError when the disk refuses.
    """
    stem = f"step-{result.step:06d}" + ("" if result.kind == VALIDATION else f"-{result.kind}")
    with alone_writing(folder):  # a free name stays free until it is written
        number = 1
        while True:
            path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            if not path.exists():
                if result.groups:
                    write_rollout(_episodes_file(path), result.groups)
                write_text(path, json.dumps(to_json(result), indent=2, allow_nan=False) + "\n")
                return path
            if dataclasses.replace(read_result(path), seconds=result.seconds) == result:
                return path
            number += 1


def read_result(path: Path) -> EvaluationResult:
    """Read one file of `write_result`. Raises StorageError if it is not one."""
    with storage("read", path):
        text = path.read_text(encoding="utf-8")
    try:
        result = from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path}: not an evaluation result ({type(error).__name__}: {error})") from error
    episodes = _episodes_file(path)
    return dataclasses.replace(result, episodes_file=episodes) if episodes.exists() else result


def read_results(folder: Path) -> list[EvaluationResult]:
    """Every evaluation in `folder` (the run folder's `eval/`), by step, training's own first; empty if the folder is missing."""
    paths = sorted(folder.glob("step-*.json"), key=lambda path: (len(path.name), path.name))
    return sorted((read_result(path) for path in paths), key=lambda result: (result.step, result.kind != VALIDATION))


def to_json(result: EvaluationResult) -> dict[str, Any]:
    """The result as plain JSON values, what a person looks for first on top. Episodes stay out."""
    return {
        "success": dataclasses.asdict(result.success),
        "num_episodes": result.num_episodes,
        "num_failed": result.num_failed,
        "model": result.model,
        "step": result.step,
        "kind": result.kind,
        "seconds": result.seconds,
        "environments": {tag: _tag_to_json(measured) for tag, measured in result.environments.items()},
        "usage": dict(result.usage),
        "settings": dict(result.settings),
        "seeds": list(result.seeds),
    }


def from_json(data: Mapping[str, Any]) -> EvaluationResult:
    """The inverse of `to_json`; raises KeyError, TypeError or ValueError for anything else."""
    return EvaluationResult(
        model=str(data["model"]),
        step=int(data["step"]),
        kind=str(data["kind"]),
        success=Interval(**data["success"]),
        seconds=float(data["seconds"]),
        settings=data["settings"],
        usage=data.get("usage", {}),
        environments={tag: _tag_from_json(measured) for tag, measured in data["environments"].items()},
    )


def _episodes_file(path: Path) -> Path:
    return path.with_suffix(".parquet")


def _tag_to_json(tag: TagResult) -> dict[str, Any]:
    # `return` is a keyword of Python alone: readers in any language find the plain word.
    return {"return" if key == "return_" else key: value for key, value in dataclasses.asdict(tag).items()}


def _tag_from_json(data: Mapping[str, Any]) -> TagResult:
    values = {"return_" if key == "return" else key: value for key, value in data.items()}
    for key in ("success", "return_", "format_validity", "num_turns", "num_actions", "sampled_tokens"):
        values[key] = Interval(**values[key])
    for key in ("pass_at", "pass_all"):
        values[key] = tuple(Interval(**each) for each in values[key])
    prompt = values["prompt_tokens"]
    values["prompt_tokens"] = None if prompt is None else Interval(**prompt)
    values["episodes"] = Episodes(**{key: tuple(column) for key, column in values["episodes"].items()})
    return TagResult(**values)
