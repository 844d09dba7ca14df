"""The figures of a benchmark as one picture: a panel of bars per workload, and one for the shares of the machine's ceilings."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ragen.benchmark.report import Report, Result
from ragen.benchmark.sides import OWN
from ragen.files import file_written_aside

INK, FAINT, OURS, OTHERS = "#22303c", "#7b8794", "#1b7f5c", "#b8c2cc"
ROW_INCHES, PANEL_INCHES = 0.42, 1.0  # per bar; title and margins of a panel


def draw(report: Report, path: Path) -> None:
    """Write the PNG file `path`. Raises StorageError when the disk refuses."""
    heights = [len(result.timings) for result in report.results] + ([len(report.shares)] if report.shares else [])
    inches = [PANEL_INCHES + ROW_INCHES * bars for bars in heights]
    layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
    figure = Figure(figsize=(9, sum(inches) + 0.6), dpi=150, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    machine = report.machine
    figure.suptitle(
        f"ragen bench {report.benchmark}: {report.model}, {report.dtype}, {report.threads} threads of {machine.cpu}",
        x=0.012,
        ha="left",
        fontsize=11,
        fontweight="bold",
        color=INK,
    )
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=inches)[:, 0]
    for ax, result in zip(axes, report.results, strict=False):
        _draw_result(ax, result)
    if report.shares:
        _draw_shares(axes[-1], report)
    with file_written_aside(path) as aside:
        figure.savefig(aside, format="png")


def _draw_result(ax: Axes, result: Result) -> None:
    """Seconds per side, the fastest and slowest repeat as a whisker."""
    ratios = {ratio.peer: ratio.value for ratio in result.ratios()}
    longest = max(max(timing.seconds) for timing in result.timings)
    for row, timing in enumerate(result.timings):
        middle = timing.median_s
        whisker = [[middle - min(timing.seconds)], [max(timing.seconds) - middle]]
        colour = OURS if timing.side == OWN else OTHERS
        ax.barh(row, middle, height=0.62, color=colour, xerr=whisker, error_kw={"ecolor": FAINT, "elinewidth": 1})
        note = f"{middle:.3g} s, {timing.tokens_per_s:,.0f} tokens/s"
        if timing.side in ratios:
            note += f", {ratios[timing.side]:.1f} x as long as ours"
        ax.text(max(timing.seconds) + 0.012 * longest, row, note, va="center", fontsize=8, color=INK)
    ax.set_yticks(range(len(result.timings)), [timing.package for timing in result.timings])
    _finish(ax, f"{result.what} (seconds)", longest * 1.5)


def _draw_shares(ax: Axes, report: Report) -> None:
    for row, share in enumerate(report.shares):
        ax.barh(row, share.value, height=0.62, color=OURS)
        ax.text(share.value + 0.012, row, f"{share.value:.0%}", va="center", fontsize=8, color=INK)
    ax.axvline(1, color=FAINT, linewidth=1)
    ax.set_yticks(range(len(report.shares)), [share.what.replace(", of ", "\nof ") for share in report.shares])
    _finish(ax, "share of what the machine can do at best", max(1.15, *(1.15 * share.value for share in report.shares)))


def _finish(ax: Axes, title: str, limit: float) -> None:
    ax.set_title(title, loc="left", fontsize=9, color=INK)
    ax.set_xlim(0, limit)
    ax.invert_yaxis()
    ax.tick_params(labelsize=8, colors=INK, length=0)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.spines["left"].set_color(FAINT)
