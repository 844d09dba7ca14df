"""A comparison as text: Markdown, CSV, JSON, and the cells that the table on a terminal is made of."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ragen.evaluation.compare import Cell, Comparison, Row, SeedRow, TagTable
from ragen.evaluation.statistics import Interval

LARGEST_K = (1, 2, 4, 8, 16, 32, 64)  # of pass@k in tables that people read; files hold every k
ABSENT = "-"


def header(comparison: Comparison) -> list[str]:
    """The titles of the columns: the first one has none."""
    first, *others = [arm.name if arm.num_runs == 1 else f"{arm.name} ({arm.num_runs} runs)" for arm in comparison.arms]
    return ["", f"{first} (baseline)" if others else first, *others]


def body(table: TagTable) -> Iterator[list[str]]:
    """One line a figure, and under it the differences to the baseline and their p-values where they are tested."""
    passes = [row.figure.key for row in table.rows if row.figure.key.startswith("pass")]
    shown = {f"pass{sign}{k}" for sign in "@^" for k in LARGEST_K} | {key for key in passes if key[5:] == passes[-1][5:]}
    for row in table.rows:
        if all(cell.interval is None for cell in row.cells) or (row.figure.key in passes and row.figure.key not in shown):
            continue
        yield [row.figure.title, *(written(cell.interval, row.figure.form) for cell in row.cells)]
        if any(cell.difference for cell in row.cells):
            yield ["  difference", *(_difference(cell, row.figure.form) for cell in row.cells)]
            yield ["  p, corrected", *(_p_value(cell) for cell in row.cells)]


def seed_header(comparison: Comparison) -> list[str]:
    return ["task seed", *(f"{arm.name}" for arm in comparison.arms)]


def seed_body(table: TagTable) -> Iterator[list[str]]:
    """Successes of episodes and mean return, seed by seed."""
    for row in table.seeds:
        yield [str(row.seed), *(f"{c[0]}/{c[1]} {c[2]:+.3f}" if c else ABSENT for c in row.cells)]


def written(interval: Interval | None, form: str) -> str:
    """A mean with its interval, such as "93.0% [89.0%, 95.5%]"."""
    if interval is None:
        return ABSENT
    mean = form.format(interval.mean)
    if interval.low is None or interval.high is None:
        return mean
    return f"{mean} [{form.format(interval.low)}, {form.format(interval.high)}]"


def _difference(cell: Cell, form: str) -> str:
    return "" if cell.difference is None else written(cell.difference.interval, form if "+" in form else form.replace(":", ":+"))


def _p_value(cell: Cell) -> str:
    if cell.corrected_p is None:
        return ""
    p = "< 0.001" if cell.corrected_p < 0.001 else f"{cell.corrected_p:.3f}"
    return f"{p} *" if cell.is_significant else p


def to_markdown(comparison: Comparison, *, per_seed: bool) -> str:
    """One section an environment, notes at the end."""
    parts = []
    for table in comparison.tables:
        parts.append(f"### {table.tag}\n\n" + _grid(header(comparison), list(body(table))))
        if per_seed:
            parts.append(_grid(seed_header(comparison), list(seed_body(table))))
    return "\n\n".join([*parts, *comparison.notes]) + "\n"


def _grid(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.strip().replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"

    return "\n".join([line(titles), "|---" * len(titles) + "|", *map(line, rows)])


def to_csv(comparison: Comparison, *, per_seed: bool) -> str:
    """One line for each environment, figure and arm; `per_seed` instead one for each environment, task seed and arm."""
    out = io.StringIO()
    records = list(_seed_records(comparison) if per_seed else _records(comparison))
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def to_json(comparison: Comparison, *, per_seed: bool) -> str:
    """The lines of both CSV tables, arms with where their evaluations lie, and the notes."""
    data: dict[str, Any] = {
        "arms": [
            {
                "name": arm.name,
                "runs": [
                    {"file": str(source.file), "model": source.result.model, "step": source.result.step} for source in arm.sources
                ],
            }
            for arm in comparison.arms
        ],
        "figures": list(_records(comparison)),
        "num_tests": comparison.num_tests,
        "notes": list(comparison.notes),
    }
    if per_seed:
        data["seeds"] = list(_seed_records(comparison))
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for table in comparison.tables:
        for row in table.rows:
            for arm, cell in zip(comparison.arms, row.cells, strict=True):
                yield {
                    "environment": table.tag,
                    "figure": row.figure.key,
                    "arm": arm.name,
                    "num_runs": arm.num_runs,
                    **_interval_record(cell.interval, ""),
                    **_difference_record(row, cell),
                    "over_runs": cell.over_runs,
                    "over_seeds": cell.over_seeds,
                }


def _difference_record(row: Row, cell: Cell) -> dict[str, Any]:
    tested = cell.difference
    return {
        **_interval_record(tested.interval if tested else None, "difference_"),
        "p_value": tested.p_value if tested else None,
        "corrected_p": cell.corrected_p,
        "is_significant": cell.is_significant if tested else None,
        "test": tested.test.value if tested else None,
        "num_pairs": tested.num_pairs if tested else None,
    }


def _interval_record(interval: Interval | None, prefix: str) -> dict[str, float | None]:
    values = dataclasses.asdict(interval) if interval else dict.fromkeys(("mean", "low", "high"))
    return {prefix + key: value for key, value in values.items()}


def _seed_records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for table in comparison.tables:
        for row in table.seeds:
            yield from _seed_lines(comparison, table.tag, row)


def _seed_lines(comparison: Comparison, tag: str, row: SeedRow) -> Iterator[dict[str, Any]]:
    for arm, cell in zip(comparison.arms, row.cells, strict=True):
        won, played, mean = cell or (0, 0, None)
        yield {
            "environment": tag,
            "seed": row.seed,
            "arm": arm.name,
            "num_successes": won,
            "num_episodes": played,
            "return": mean,
        }
