"""What `ragen compare` sets side by side: arms, each one policy or several runs of one recipe, found by what a person typed."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen.errors import ConfigError, StorageError
from ragen.evaluation.results import EVALUATIONS, VALIDATION, EvaluationResult, read_result

OWN_KINDS = (VALIDATION, "eval", "greedy")  # of a run's own environments; suites call their results by their own names
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One evaluation, and where it lies."""

    result: EvaluationResult
    file: Path

    @property
    def run_folder(self) -> Path | None:
        """The run that it belongs to; None for a file that lies elsewhere."""
        return self.file.parent.parent if self.file.parent.name == EVALUATIONS else None


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One policy, or several runs (training seeds) of one recipe."""

    name: str
    sources: tuple[Source, ...]

    @property
    def results(self) -> tuple[EvaluationResult, ...]:
        return tuple(source.result for source in self.sources)

    @property
    def num_runs(self) -> int:
        return len(self.sources)


def find_arms(arguments: Sequence[str], *, step: int | None = None, kind: str | None = None) -> list[Arm]:
    """An arm for each argument: a run folder, an evaluation's JSON file, a pattern of them, or NAME=ONE,ANOTHER,...

    Of a run folder the evaluation of the highest step is taken, or of `step`; of several, the one written last, where those of
    suites count only if `kind` asks for them or if there are no others. Raises ConfigError for an argument that names nothing or
    names one twice, StorageError for a folder without such an evaluation or a file that is none.
    """
    arms = [_arm(argument, step, kind) for argument in arguments]
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):  # runs of one name in different folders
        arms = [Arm(name=argument, sources=arm.sources) for argument, arm in zip(arguments, arms, strict=True)]
    files = [source.file.resolve() for arm in arms for source in arm.sources]
    for number, file in enumerate(files):
        if file in files[:number]:
            raise ConfigError(f"{file}: is named twice; every evaluation may stand in one place only")
    return arms


def _arm(argument: str, step: int | None, kind: str | None) -> Arm:
    name, equals, rest = argument.partition("=")
    if not equals or Path(argument).exists():
        name, rest = "", argument
    paths = [path for part in rest.split(",") for path in _expand(part)]
    if not name:
        name = paths[0].stem if len(paths) == 1 and paths[0].is_file() else Path(rest).name
        if len(paths) == 1 and paths[0].is_file() and paths[0].parent.name == EVALUATIONS:
            name = f"{paths[0].parent.parent.name}/{paths[0].stem}"
    return Arm(name=name, sources=tuple(_source(path, step, kind) for path in paths))


def _expand(part: str) -> list[Path]:
    if part and Path(part).exists():
        return [Path(part)]
    found = sorted(glob.glob(part)) if _PATTERN.search(part) else []
    if not found:
        raise ConfigError(f"{part or 'an empty name'}: must be a run folder, an evaluation's JSON file, or a pattern of them")
    return [Path(each) for each in found]


def _source(path: Path, step: int | None, kind: str | None) -> Source:
    if path.is_file():
        result = read_result(path)
        if (step is not None and result.step != step) or (kind is not None and result.kind != kind):
            raise ConfigError(f"{path}: is of step {result.step}, kind {result.kind}; leave out --step and --kind for a file")
        return Source(result=result, file=path)
    files = sorted(
        (path / EVALUATIONS).glob("step-*.json"), key=lambda file: (file.stat().st_mtime_ns, len(file.name), file.name)
    )
    found = [Source(result=read_result(file), file=file) for file in files]
    fitting = [each for each in found if step in (None, each.result.step) and kind in (None, each.result.kind)]
    if kind is None:
        fitting = [each for each in fitting if each.result.kind in OWN_KINDS] or fitting
    if not fitting:
        there = ", ".join(sorted({f"step {each.result.step} ({each.result.kind})" for each in found})) or "none"
        asked = "".join([f" of step {step}" if step is not None else "", f" of kind {kind}" if kind is not None else ""])
        raise StorageError(f"{path}: no evaluation{asked}; there are: {there}")
    highest = max(each.result.step for each in fitting)
    return [each for each in fitting if each.result.step == highest][-1]
