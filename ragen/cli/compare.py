"""`ragen compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ragen.cli.output import Flag, Json, console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ragen.evaluation.compare import Comparison

Format = Literal["table", "markdown", "csv", "json"]


def compare(
    *sources: str,
    step: int | None = None,
    kind: str | None = None,
    per_seed: Flag = False,
    format: Format = "table",
    out: Path | None = None,
    picture: Path | None = None,
    curves: Path | None = None,
    force: Flag = False,
    as_json: Json = False,
) -> None:
    """Set evaluations side by side: intervals, and differences to the first one on the same task seeds, tested.

    Parameters
    ----------
    sources
        run folders (their newest evaluation), JSON files of evaluations, or NAME=RUN,RUN,... with several training seeds of one
        recipe; a pattern such as 'runs/bandit-seed*' in quotes is several runs too
    step
        take the evaluation of this step instead of the newest
    kind
        take evaluations of this kind, such as a suite's setting; default: the newest, of whatever kind
    per_seed
        every task seed too: successes of episodes, mean return; with csv instead of the means
    format
        how it is printed
    out
        a file for it instead of the terminal
    picture
        a PNG file for dots with their intervals
    curves
        a PNG file for the learning curves of the runs
    force
        compare although it was not measured alike, and say so
    as_json
        the same as --format json
    """
    from ragen.errors import ConfigError
    from ragen.evaluation.arms import find_arms
    from ragen.evaluation.compare import compare as compare_arms

    if not sources:
        raise ConfigError("compare: name run folders or evaluations, the baseline first")
    if as_json:
        format = "json"
    comparison = compare_arms(find_arms(sources, step=step, kind=kind), force=force)
    if format == "table" and out is None:
        _show(comparison, per_seed)
    else:
        _write(_text(comparison, format, per_seed), out)
    if picture is not None:
        from ragen.evaluation.comparison_picture import draw_comparison

        draw_comparison(comparison, picture)
    if curves is not None:
        from ragen.evaluation.comparison_picture import draw_curves

        draw_curves(comparison.arms, curves)


def _text(comparison: Comparison, format: Format, per_seed: bool) -> str:
    from ragen.evaluation.comparison_text import to_csv, to_json, to_markdown

    match format:
        case "csv":
            return to_csv(comparison, per_seed=per_seed)
        case "json":
            return to_json(comparison, per_seed=per_seed)
        case "markdown":
            return to_markdown(comparison, per_seed=per_seed)
        case "table":
            from io import StringIO

            from rich.console import Console

            text = StringIO()
            _show(comparison, per_seed, Console(file=text, width=160))
            return text.getvalue()


def _write(text: str, out: Path | None) -> None:
    from ragen.files import write_text

    if out is None:
        print(text, end="")
    else:
        write_text(out, text)


def _show(comparison: Comparison, per_seed: bool, target: Console | None = None) -> None:
    from ragen.evaluation.comparison_text import body, header, seed_body, seed_header

    shown = target or console()
    for table in comparison.tables:
        shown.print(_grid(table.tag, header(comparison), list(body(table))))
        if per_seed:
            shown.print(_grid(f"{table.tag}, seed by seed", seed_header(comparison), list(seed_body(table))))
    for note in comparison.notes:
        shown.print(note, highlight=False, markup=False)


def _grid(title: str, titles: list[str], rows: list[list[str]]) -> Table:
    from rich.box import ROUNDED
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=Text(title, style="bold"), title_justify="left", box=ROUNDED)
    for number, each in enumerate(titles):
        grid.add_column(Text(each), justify="right" if number else "left", overflow="fold")
    for row in rows:
        # Text, never markup: "[a, b]" is no style. Where a cell is too narrow it breaks before the interval, not inside.
        cells = [cell.replace(", ", ",\N{NO-BREAK SPACE}") for cell in row]
        grid.add_row(*(Text(cell, style="bold" if cell.endswith(" *") else "") for cell in cells))
    return grid
