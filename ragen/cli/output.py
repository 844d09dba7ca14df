"""What every command prints with: tables, JSON, and the kinds of options that all commands share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.console import Console

Flag = Annotated[bool, Parameter(negative="")]
Repeated = Annotated[list[str] | None, Parameter(negative="")]
Options = Annotated[list[str] | None, Parameter(name=("--option", "-o"), negative="")]
Json = Annotated[bool, Parameter(name="--json", negative="")]


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def print_text(text: str) -> None:
    """Text as it is: no markup, no colours, no line ends of our own."""
    console().print(text, highlight=False, markup=False, soft_wrap=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in header:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text, not markup: "[a,b]" is no style
    console().print(table)


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
