"""The learning curve of a run as one picture: six small panels over the steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ragen.files import file_written_aside

INK, FAINT, GRID = "#22303c", "#7b8794", "#e3e8ed"
HELD_OUT = "#d1495b"
SMOOTH_FROM = 40  # steps from which a moving average is drawn over the raw line


@dataclass(frozen=True, kw_only=True)
class _Panel:
    key: str
    title: str
    colour: str
    form: str = "{:.2f}"
    share: bool = False  # drawn on 0 to 100 %
    held_out: str = ""  # last part of the evaluation keys drawn as points


_PANELS = (
    _Panel(key="rollout/success", title="Success", colour="#1b7f5c", form="{:.0%}", share=True, held_out="success"),
    _Panel(key="rollout/return", title="Return", colour="#2f6fb3", form="{:+.2f}", held_out="return"),
    _Panel(
        key="rollout/format_validity",
        title="Format validity",
        colour="#6a4fa3",
        form="{:.0%}",
        share=True,
        held_out="format_validity",
    ),
    _Panel(key="update/entropy", title="Entropy (nats per token)", colour="#c77d1e"),
    _Panel(key="update/kl_start", title="KL to the start (nats per token)", colour="#3a8fa3", form="{:.3f}"),
    _Panel(key="update/grad_norm", title="Gradient norm", colour="#8a5a44"),
)


def draw_learning_curve(rows: Sequence[Mapping[str, float]], path: Path, *, title: str) -> None:
    """Draw `rows` (as `read_metrics` gives them, each with its `step`) into the PNG file `path`; a series that is absent says so.

    Raises StorageError when the disk refuses.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.02, hspace=0.04)
    figure = Figure(figsize=(11, 6), dpi=150, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)  # no window, and no state shared with a notebook's pyplot
    figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    axes = figure.subplots(2, 3, sharex=True)
    for ax, panel in zip(axes.flat, _PANELS, strict=True):
        _draw(ax, panel, rows)
    for ax in axes[-1]:
        ax.set_xlabel("step", color=FAINT, fontsize=9)
    with file_written_aside(path) as temporary:
        figure.savefig(temporary, format="png")


def _draw(ax: Axes, panel: _Panel, rows: Sequence[Mapping[str, float]]) -> None:
    _style(ax, panel)
    points = [(row["step"], row[panel.key]) for row in rows if panel.key in row]
    if not points:
        ax.set_yticks([])
        ax.text(0.5, 0.5, "not measured", transform=ax.transAxes, ha="center", va="center", color=FAINT, fontsize=9)
        return
    steps, values = zip(*points, strict=True)
    smooth = len(points) >= SMOOTH_FROM
    if smooth:
        ax.plot(steps, values, color=panel.colour, lw=1, alpha=0.3)
    shown = moving_average(values) if smooth else values
    marker = "" if smooth else "o"
    ax.plot(steps, shown, color=panel.colour, lw=2, marker=marker, ms=3.5, clip_on=False, label="training rollouts")
    ax.annotate(
        panel.form.format(shown[-1]),
        (steps[-1], shown[-1]),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        fontweight="bold",
        color=panel.colour,
    )
    if not panel.share and panel.key.startswith("update/"):
        ax.set_ylim(0, max(max(values) * 1.12, 1e-9))
    if panel.held_out:
        _draw_held_out(ax, panel, rows)


def _draw_held_out(ax: Axes, panel: _Panel, rows: Sequence[Mapping[str, float]]) -> None:
    """Evaluations of the run's own tags as open points, which share the look, since the picture is about the trend."""
    own = re.compile(rf"eval/[^/]+/{panel.held_out}")  # and not those of suites, which lie deeper
    keys = {key for row in rows for key in row if own.fullmatch(key)}
    points = [(row["step"], row[key]) for row in rows for key in sorted(keys) if key in row]
    if not points:
        return
    steps, values = zip(*points, strict=True)
    ax.plot(steps, values, "D", ms=6, mfc="white", mec=HELD_OUT, mew=1.6, clip_on=False, zorder=3, label="held-out seeds")
    if panel is _PANELS[0]:
        ax.legend(loc="lower right", frameon=False, fontsize=8.5, labelcolor=INK, handletextpad=0.4)


def _style(ax: Axes, panel: _Panel) -> None:
    ax.set_title(panel.title, loc="left", fontsize=10.5, color=INK, pad=8)
    ax.grid(axis="y", color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(GRID)
    ax.tick_params(length=0, labelsize=8.5, labelcolor=FAINT)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    ax.margins(x=0.12)
    if panel.share:
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))


def moving_average(values: Sequence[float]) -> list[float]:
    """Exponential, bias-corrected, over about ten steps."""
    averages, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = 0.9 * total + value, 0.9 * weight + 1.0
        averages.append(total / weight)
    return averages
