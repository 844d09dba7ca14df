"""A comparison as pictures: dots with their intervals, and learning curves of several runs with the band between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ragen.errors import ConfigError
from ragen.evaluation.arms import Arm
from ragen.evaluation.compare import Comparison, Row
from ragen.evaluation.figures import SHARE
from ragen.files import file_written_aside
from ragen.training.learning_curve import FAINT, GRID, INK, SMOOTH_FROM, moving_average
from ragen.training.trackers import read_metrics

COLOURS = ("#2f6fb3", "#c77d1e", "#1b7f5c", "#d1495b", "#6a4fa3", "#3a8fa3", "#8a5a44", "#7b8794")
DRAWN = ("success", "return")  # and the largest pass@k
PANELS = (
    ("rollout/success", "success", "Success", True),
    ("rollout/return", "return", "Return", False),
    ("rollout/format_validity", "format_validity", "Format validity", True),
    ("update/entropy", "", "Entropy (nats per token)", False),
)


def draw_comparison(comparison: Comparison, path: Path) -> None:
    """Success, return and the largest pass@k of every arm, one line of panels an environment, into the PNG file `path`.

    A hollow dot was tested and does not differ from the baseline significantly. Raises StorageError when the disk refuses.
    """
    rows = [
        [row for row in table.rows if row.figure.key in (*DRAWN, _largest(table.rows, "pass@"))] for table in comparison.tables
    ]
    wide, tall = max(map(len, rows)), len(rows)
    drawing = _blank(3.6 * wide + 1.4, (0.42 * len(comparison.arms) + 1.0) * tall + 0.4)
    axes = np.atleast_2d(drawing.subplots(tall, wide, squeeze=False))
    for line, table, figures in zip(axes, comparison.tables, rows, strict=True):
        for ax in line[len(figures) :]:
            ax.set_visible(False)
        for number, (ax, row) in enumerate(zip(line, figures, strict=False)):
            _draw_dots(ax, row, [arm.name for arm in comparison.arms], named=number == 0)
            ax.set_title(f"{table.tag}: {row.figure.title}", loc="left", fontsize=10.5, color=INK, pad=8)
    _caption(drawing, "95 % intervals; success and return are tested: a hollow dot does not differ significantly from the first")
    _save(drawing, path)


def draw_curves(arms: Sequence[Arm], path: Path) -> None:
    """Learning curves of every arm's runs into the PNG file `path`: their mean, and the band from the lowest to the highest run.

    Diamonds are held-out evaluations, mean over runs and environments. Raises ConfigError if the metrics.jsonl of a run is not
    there, StorageError when the disk refuses.
    """
    runs = {arm.name: [_rows_of(arm, index) for index in range(arm.num_runs)] for arm in arms}
    drawing = _blank(10.0, 6.4)
    axes = drawing.subplots(2, 2, sharex=True)
    for ax, (key, held_out, title, is_share) in zip(axes.flat, PANELS, strict=True):
        _style(ax, grid="y")
        ax.set_title(title, loc="left", fontsize=10.5, color=INK, pad=8)
        drawn = [_draw_band(ax, rows, key, held_out, *look) for rows, look in zip(runs.values(), _looks(runs), strict=True)]
        if not any(drawn):
            ax.text(0.5, 0.5, "not measured", transform=ax.transAxes, ha="center", va="center", color=FAINT, fontsize=9)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        if is_share:
            ax.set_ylim(-0.02, 1.02)
            ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    for ax in axes[-1]:
        ax.set_xlabel("step", color=FAINT, fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="best")
    _caption(drawing, "line: mean over runs, smoothed where long; band: lowest to highest run; diamonds: held-out seeds")
    _save(drawing, path)


def _looks(runs: Mapping[str, Sequence[object]]) -> list[tuple[str, str]]:
    return [
        (name if len(rows) == 1 else f"{name} ({len(rows)} runs)", COLOURS[number % len(COLOURS)])
        for number, (name, rows) in enumerate(runs.items())
    ]


def _largest(rows: Sequence[Row], prefix: str) -> str:
    return next((row.figure.key for row in reversed(rows) if row.figure.key.startswith(prefix)), "")


def _draw_dots(ax: Axes, row: Row, names: Sequence[str], *, named: bool) -> None:
    _style(ax, grid="x")
    for number, cell in enumerate(row.cells):
        if cell.interval is None:
            continue
        colour = COLOURS[number % len(COLOURS)]
        mean, low, high = cell.interval.mean, cell.interval.low, cell.interval.high
        if low is not None and high is not None:
            ax.plot([low, high], [number, number], color=colour, lw=2.2, solid_capstyle="round", clip_on=False)
        fill = "white" if cell.difference is not None and not cell.is_significant else colour
        ax.plot(mean, number, "o", ms=7.5, mfc=fill, mec=colour, mew=1.8, clip_on=False, zorder=3)
        ax.annotate(
            row.figure.form.format(mean),
            (mean, number),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            color=INK,
        )
    ax.set_yticks(range(len(names)), names if named else [""] * len(names))
    ax.tick_params(axis="y", labelsize=9.5, labelcolor=INK)
    ax.set_ylim(len(names) - 0.4, -0.8)  # the first one on top, room above it for its number
    if row.figure.limits == SHARE:
        ax.set_xlim(-0.02, 1.02)
        ax.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    else:
        ax.margins(x=0.12)


def _draw_band(ax: Axes, runs: Sequence[Sequence[Mapping[str, float]]], key: str, held_out: str, label: str, colour: str) -> bool:
    """Draw one arm; False if no run has the series. A step counts only where every run has it."""
    steps, values_RT = _aligned([[(row["step"], row[key]) for row in rows if key in row] for rows in runs])
    if len(steps):
        if len(steps) >= SMOOTH_FROM:
            values_RT = np.array([moving_average(list(values)) for values in values_RT])
        if len(values_RT) > 1:
            ax.fill_between(steps, values_RT.min(0), values_RT.max(0), color=colour, alpha=0.16, lw=0)
        ax.plot(steps, values_RT.mean(0), color=colour, lw=2, label=label, clip_on=False)
    measured, means_RT = _aligned([_held_out(rows, held_out) for rows in runs]) if held_out else (np.empty(0), np.empty((0, 0)))
    if len(measured):
        ax.plot(measured, means_RT.mean(0), "D", ms=5.5, mfc="white", mec=colour, mew=1.6, clip_on=False, zorder=3)
    return bool(len(steps) or len(measured))


def _held_out(rows: Sequence[Mapping[str, float]], name: str) -> list[tuple[float, float]]:
    """(step, mean over the run's own environments); a suite's keys have more parts."""
    points = []
    for row in rows:
        values = [value for key, value in row.items() if key.startswith("eval/") and key.split("/")[2:] == [name]]
        if values:
            points.append((row["step"], sum(values) / len(values)))
    return points


def _aligned(series: Sequence[Sequence[tuple[float, float]]]) -> tuple[np.ndarray, np.ndarray]:
    """(steps [T] that every run has, values [R, T])."""
    runs = [dict(points) for points in series]
    steps = sorted(set.intersection(*(set(run) for run in runs)))
    return np.array(steps), np.array([[run[step] for step in steps] for run in runs])


def _rows_of(arm: Arm, index: int) -> list[dict[str, float]]:
    folder = arm.sources[index].run_folder
    rows = read_metrics(folder) if folder is not None else []
    if not rows:
        raise ConfigError(f"--curves: {arm.sources[index].file} belongs to no run with a metrics.jsonl; name run folders")
    return rows


def _blank(width: float, height: float) -> Drawing:
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.03, hspace=0.05)
    drawing = Drawing(figsize=(width, height), dpi=150, facecolor="white", layout=layout)
    FigureCanvasAgg(drawing)  # no window, and no state shared with a notebook's pyplot
    return drawing


def _caption(drawing: Drawing, text: str) -> None:
    drawing.supxlabel(text, x=0.01, ha="left", fontsize=8.5, color=FAINT)


def _style(ax: Axes, *, grid: Literal["x", "y"]) -> None:
    ax.grid(axis=grid, color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(GRID)
    ax.tick_params(length=0, labelsize=8.5, labelcolor=FAINT)


def _save(drawing: Drawing, path: Path) -> None:
    with file_written_aside(path) as temporary, mpl.rc_context({"axes.unicode_minus": False}):
        drawing.savefig(temporary, format="png")
