"""Two or more policies side by side: what each measured, and by how much each differs from the first, the baseline.

Only what was measured alike is compared: the settings stored with every result must agree. docs/statistics.md says how to read
what comes out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.errors import ConfigError
from ragen.evaluation.arms import Arm
from ragen.evaluation.figures import Figure, figures_of
from ragen.evaluation.paired import Difference, difference, holm
from ragen.evaluation.results import TagResult
from ragen.evaluation.runs import difference_of_runs, mean_over_runs
from ragen.evaluation.statistics import Interval

LEVEL = 0.05  # a corrected p-value below it gets a marker


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure of one arm in one environment."""

    interval: Interval | None  # None if this arm has no such figure
    difference: Difference | None = None  # to the baseline, where it is tested
    corrected_p: float | None = None
    over_runs: float | None = None  # standard errors of a mean over several runs: from training, and from the task seeds
    over_seeds: float | None = None

    @property
    def is_significant(self) -> bool:
        return self.corrected_p is not None and self.corrected_p < LEVEL


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of every arm, in their order."""

    figure: Figure
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class SeedRow:
    """What became of one task seed: for each arm (successes, episodes, mean return), None where it was not scored."""

    seed: int
    cells: tuple[tuple[int, int, float] | None, ...]


@dataclass(frozen=True, kw_only=True)
class TagTable:
    """One environment."""

    tag: str
    rows: tuple[Row, ...]
    seeds: tuple[SeedRow, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Tables, and what a reader must know about them."""

    arms: tuple[Arm, ...]
    tables: tuple[TagTable, ...]
    num_tests: int  # over all tables: what the p-values are corrected for
    notes: tuple[str, ...]


def compare(arms: Sequence[Arm], *, force: bool = False) -> Comparison:
    """Compare every arm with the first one, environment by environment, as docs/statistics.md lays down.

    Raises ConfigError if the settings of the results differ, naming what does, unless `force`: then a note names it. Also if no
    environment is common to all, or if several runs share no two task seeds.
    """
    differing = differing_settings(arms)
    if differing and not force:
        raise ConfigError(f"settings differ: {'; '.join(differing)}; --force compares all the same and says so")
    tags = [tag for tag in arms[0].results[0].environments if all(_has(arm, tag) for arm in arms)]
    if not tags:
        played = "; ".join(f"{arm.name}: {', '.join(arm.results[0].environments)}" for arm in arms)
        raise ConfigError(f"no environment was played by all ({played}); evaluate them on the same ones")
    tables = _corrected([_table(arms, tag) for tag in tags])
    num_tests = sum(cell.difference is not None for cell in _cells(tables))
    return Comparison(
        arms=tuple(arms),
        tables=tuple(tables),
        num_tests=num_tests,
        notes=tuple(_notes(arms, tables, num_tests, differing)),
    )


def differing_settings(arms: Sequence[Arm]) -> list[str]:
    """One entry for every setting on which two results disagree: the key, and each value with who has it.

    An environment that only some have played is no difference: it is left out of the tables.
    """
    sources = [(arm.name, result) for arm in arms for result in arm.results]
    flat = [(name, dict(_flatten(result.settings))) for name, result in sources]
    played = [set(result.environments) for _, result in sources]
    common = set.intersection(*played)
    entries = []
    for key in dict.fromkeys(key for _, settings in flat for key in settings):
        if key[0] == "environments" and len(key) > 1 and key[1] not in common:
            continue
        values: dict[str, list[str]] = {}
        for name, settings in flat:
            holders = values.setdefault(repr(settings[key]) if key in settings else "nothing", [])
            if name not in holders:
                holders.append(name)
        if len(values) > 1:
            entries.append(f"{'.'.join(key)} is " + ", ".join(f"{v} in {' and '.join(names)}" for v, names in values.items()))
    return entries


def _flatten(settings: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, (*prefix, key))
        else:
            yield (*prefix, key), list(value) if isinstance(value, tuple) else value


def _has(arm: Arm, tag: str) -> bool:
    return all(tag in result.environments for result in arm.results)


def _table(arms: Sequence[Arm], tag: str) -> TagTable:
    tags = [[result.environments[tag] for result in arm.results] for arm in arms]
    rows = [
        Row(figure=figure, cells=tuple(_cell(figure, tags[0], runs, is_baseline=runs is tags[0]) for runs in tags))
        for figure in figures_of(tags)
    ]
    return TagTable(tag=tag, rows=tuple(rows), seeds=tuple(_seed_rows(tags)))


def _cell(figure: Figure, baseline: Sequence[TagResult], runs: Sequence[TagResult], *, is_baseline: bool) -> Cell:
    tested = None if is_baseline or not figure.is_tested else _difference(figure, baseline, runs)
    if len(runs) == 1:  # as it stands in the evaluation's file, to the last digit
        return Cell(interval=figure.interval(runs[0]), difference=tested)
    cells_RS = figure.cells(runs)
    if cells_RS is None:
        return Cell(interval=None)
    over = mean_over_runs(cells_RS, limits=figure.limits)
    return Cell(interval=over.interval, difference=tested, over_runs=over.over_runs, over_seeds=over.over_seeds)


def _difference(figure: Figure, baseline: Sequence[TagResult], runs: Sequence[TagResult]) -> Difference:
    a, b = [figure.values(tag) for tag in baseline], [figure.values(tag) for tag in runs]
    limits = figure.limits_of([*a, *b])
    if len(baseline) == len(runs) == 1:
        return difference(a[0], baseline[0].episodes.seeds, b[0], runs[0].episodes.seeds, limits=limits)
    shared = figure.shared_seeds([*baseline, *runs])
    if len(shared) < 2:
        raise ConfigError("the runs share no two task seeds: several runs can be compared on the same seeds only")
    return difference_of_runs(figure.table(baseline, shared), figure.table(runs, shared), span=limits[1] - limits[0])


def _seed_rows(tags: Sequence[Sequence[TagResult]]) -> Iterator[SeedRow]:
    played: list[dict[int, list[tuple[bool, float]]]] = []
    for runs in tags:
        by_seed: dict[int, list[tuple[bool, float]]] = {}
        for tag in runs:
            for seed, won, value in zip(tag.episodes.seeds, tag.episodes.successes, tag.episodes.returns, strict=True):
                by_seed.setdefault(seed, []).append((won, value))
        played.append(by_seed)
    for seed in dict.fromkeys(seed for by_seed in played for seed in by_seed):
        yield SeedRow(
            seed=seed,
            cells=tuple(
                (sum(won for won, _ in some), len(some), sum(value for _, value in some) / len(some))
                if (some := by_seed.get(seed))
                else None
                for by_seed in played
            ),
        )


def _cells(tables: Sequence[TagTable]) -> Iterator[Cell]:
    return (cell for table in tables for row in table.rows for cell in row.cells)


def _corrected(tables: Sequence[TagTable]) -> list[TagTable]:
    """The same tables with every p-value corrected for all that are in them."""
    corrected = iter(holm([cell.difference.p_value for cell in _cells(tables) if cell.difference is not None]))

    def with_correction(cell: Cell) -> Cell:
        return cell if cell.difference is None else dataclasses.replace(cell, corrected_p=next(corrected))

    return [
        dataclasses.replace(
            table,
            rows=tuple(dataclasses.replace(row, cells=tuple(map(with_correction, row.cells))) for row in table.rows),
        )
        for table in tables
    ]


def _notes(arms: Sequence[Arm], tables: Sequence[TagTable], num_tests: int, differing: Sequence[str]) -> Iterator[str]:
    yield "[low, high]: 95 % interval, clustered by task seed."
    tested = [cell.difference for cell in _cells(tables) if cell.difference is not None]
    if tested:
        pairs = sorted({each.num_pairs for each in tested})
        how = "; ".join(dict.fromkeys(each.test.value for each in tested))
        on = f"on {' to '.join(str(n) for n in dict.fromkeys((pairs[0], pairs[-1])))} shared task seeds" if pairs[-1] else ""
        yield (
            f"Differences are to {arms[0].name}{' ' + on if on else ''}; the interval is of the one difference alone. "
            f"*: p < 0.05 after Holm's correction for the {num_tests} tests made here ({how})."
        )
        if 0 in pairs:
            yield "Where no task seeds are shared, the policies are compared as two unrelated sets of seeds."
    several = [arm for arm in arms if arm.num_runs > 1]
    for arm in several:
        yield f"{arm.name}: mean over {arm.num_runs} runs; its interval is for another run on other task seeds."
    for table in tables:
        (row,) = (row for row in table.rows if row.figure.key == "success")
        for arm, cell in zip(arms, row.cells, strict=True):
            if cell.over_runs is not None and cell.over_seeds is not None:
                yield (
                    f"{arm.name}, success in {table.tag}: standard error {100 * cell.over_runs:.1f} points from run to run, "
                    f"{100 * cell.over_seeds:.1f} from the choice of task seeds."
                )
    if len(several) < len(arms):
        one = ", ".join(arm.name for arm in arms if arm.num_runs == 1)
        yield f"One run each ({one}): nothing here says how another training seed would have done."
    for arm in arms:
        steps, lost = {result.step for result in arm.results}, sum(result.num_failed for result in arm.results)
        if len(steps) > 1:
            yield f"{arm.name}: its runs were evaluated after different steps ({', '.join(map(str, sorted(steps)))})."
        if lost:
            yield f"{arm.name}: {lost} episodes were lost to broken infrastructure and are not scored."
    if differing:
        yield f"NOT MEASURED ALIKE: {'; '.join(differing)}."
