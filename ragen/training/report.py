"""What a person reads when a run is over: the table before / after, example episodes, what to type next."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ragen.records import Trajectory, Turn, Verdict

OBSERVATION_CHARS = 240  # the end of an observation is what the reply answers to
REPLY_CHARS = 480


class MeasuredMean(Protocol):
    """A mean with the ends of its interval (evaluation/statistics.py)."""

    @property
    def mean(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


class MeasuredTag(Protocol):
    """What an evaluation measured in one environment tag (evaluation/results.py)."""

    @property
    def num_episodes(self) -> int: ...
    @property
    def success(self) -> MeasuredMean: ...
    @property
    def return_(self) -> MeasuredMean: ...
    @property
    def format_validity(self) -> MeasuredMean: ...
    @property
    def sampled_tokens(self) -> MeasuredMean: ...
    @property
    def reward_parts(self) -> Mapping[str, float]: ...


class Measured(Protocol):
    """One evaluation, as far as the report reads it. `evaluation` is built upon `training`, so its class cannot be named here."""

    @property
    def step(self) -> int: ...
    @property
    def environments(self) -> Mapping[str, MeasuredTag]: ...
    @property
    def trajectories(self) -> Sequence[Trajectory]: ...


def before_after_table(before: Measured | None, after: Measured) -> Table:
    """Held-out results per environment tag, with 95 % intervals; without `before`, the column is left out."""
    columns = [measured for measured in (before, after) if measured is not None]
    episodes = " + ".join(f"{tag.num_episodes} episodes of {name}" for name, tag in after.environments.items())
    table = Table(
        title=f"Held-out seeds, {episodes}",
        title_style="bold",
        box=ROUNDED,
        caption=Text("[low, high]: 95 % interval"),
        caption_justify="left",
    )
    table.add_column("")
    for title, measured in zip(("before", "after")[-len(columns) :], columns, strict=True):
        table.add_column(f"{title} (step {measured.step})", justify="right")
    for name in after.environments:
        # A tag of which no episode could be scored before, or after, is missing there.
        cells = [_figures(tags[name]) if name in (tags := measured.environments) else {} for measured in columns]
        for figure in cells[-1]:
            label = figure if len(after.environments) == 1 else f"{name}: {figure}"
            table.add_row(label, *(cell.get(figure, "-") for cell in cells), style="bold" if figure == "success" else "")
        table.add_section()
    return table


def _figures(tag: MeasuredTag) -> dict[str, str]:
    return {
        "success": _with_interval(tag.success, "{:.1%}"),
        "return": _with_interval(tag.return_, "{:+.3f}"),
        "format validity": _with_interval(tag.format_validity, "{:.1%}"),
        "sampled tokens": _with_interval(tag.sampled_tokens, "{:.1f}"),
        **{f"reward {name}": f"{mean:+.3f}" for name, mean in tag.reward_parts.items()},
    }


def _with_interval(interval: MeasuredMean, form: str) -> str:
    mean = form.format(interval.mean)
    if interval.low is None or interval.high is None:
        return mean
    return f"{mean}  [{form.format(interval.low)}, {form.format(interval.high)}]"


def example_panels(before: Measured | None, after: Measured, *, count: int = 2) -> Group:
    """`count` held-out episodes before and the same ones after, each as a panel: what was read, thought, answered, paid."""
    panels: list[RenderableType] = []
    seeds: list[tuple[str, int]] = []
    for title, measured in (("before", before), ("after", after)):
        if measured is None:
            continue
        chosen = _choose(measured.trajectories, seeds, count)
        seeds = seeds or [_seed(trajectory) for trajectory in chosen]
        panels.extend(_panel(trajectory, f"{title} (step {measured.step})") for trajectory in chosen)
    return Group(*panels)


def _choose(trajectories: Sequence[Trajectory], seeds: Sequence[tuple[str, int]], count: int) -> list[Trajectory]:
    """The episodes of `seeds` where there are any, else the first `count`: never picked by how well they went."""
    wanted = [trajectory for trajectory in trajectories if _seed(trajectory) in seeds] if seeds else []
    return (wanted or list(trajectories))[:count]


def _seed(trajectory: Trajectory) -> tuple[str, int]:
    return trajectory.key.environment, trajectory.key.task_seed


def _panel(trajectory: Trajectory, title: str) -> Panel:
    colour = "green" if trajectory.success else "red"
    outcome = f"{trajectory.end_reason} · return {trajectory.return_:+.2f} · {trajectory.num_sampled} tokens"
    lines = Table.grid(padding=(0, 2))
    lines.add_column(justify="right", style="cyan", no_wrap=True)
    lines.add_column()
    for number, turn in enumerate(trajectory.turns, start=1):
        for label, text, style in _turn_lines(number, turn):
            # As Text, never as markup: square brackets in a reply must not become styles.
            lines.add_row(label, Text(text, style=style))
    if not trajectory.turns:
        lines.add_row("no reply", Text(readable(trajectory.error or trajectory.end_reason)))
    return Panel(
        lines,
        title=Text(f"{title} · {trajectory.key.environment} · seed {trajectory.key.task_seed}"),
        title_align="left",
        subtitle=Text(outcome, style=colour),
        subtitle_align="left",
        border_style=colour,
    )


def _turn_lines(number: int, turn: Turn) -> Iterator[tuple[str, str, str]]:
    """(label, text, style) of what was read, written and paid in one turn."""
    yield f"turn {number} reads", _end(turn.observation, OBSERVATION_CHARS), "dim"
    if turn.reply.verdict is Verdict.VALID:
        yield "thinks", _beginning(turn.reply.thought, REPLY_CHARS) or "(nothing)", "italic"
        yield "answers", " || ".join(readable(action) for action in turn.reply.actions), "bold"
    else:
        yield "writes", _beginning(turn.reply.text, REPLY_CHARS) or "(nothing)", "yellow"
    penalty = f" · format penalty {turn.format_penalty:+.2f}" if turn.format_penalty else ""
    yield "gets", f"reward {turn.reward:+.2f}{penalty} · {turn.reply.verdict}", ""


def _beginning(text: str, limit: int) -> str:
    clean = readable(text).strip()
    return clean if len(clean) <= limit else clean[:limit].rsplit(maxsplit=1)[0] + " ..."


def _end(text: str, limit: int) -> str:
    clean = readable(text).strip()
    return clean if len(clean) <= limit else "... " + clean[-limit:].split(maxsplit=1)[-1]


def readable(text: str) -> str:
    """Text from a model, safe for a terminal: control characters (which could move the cursor or recolour it) become U+FFFD."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\ufffd" for c in text)


def next_commands(run_folder: Path, *, tag: str) -> Text:
    """What to type next; `tag` is one of the run's environments. All of it starts from the run's own settings."""
    ragen, name = _command(), run_folder.name
    commands = {
        f"eval {run_folder} --env {tag}": "measure the newest checkpoint again, on held-out seeds",
        f"train {run_folder} --resume trainer.steps=50": "go on where this run stopped",
        f"train {run_folder} seed=1 name={name}-seed1": "was it luck? the same with another seed",
        f"train {run_folder} algorithm=brpo name={name}-brpo": "the same task with another algorithm",
        "envs": "what else there is to learn",
    }
    lines = Text("\nWhat next\n", style="bold")
    for command, why in commands.items():
        lines.append(f"  {ragen} {command}\n", style="not bold cyan").append(f"      {why}\n", style="not bold dim")
    lines.rstrip()
    return lines


def _command() -> str:
    """How this person can call us: `ragen` if the shell finds it, else the script beside the interpreter."""
    if shutil.which("ragen"):
        return "ragen"
    script = Path(sys.executable).with_name("ragen")
    return os.path.relpath(script) if script.exists() else f"{os.path.relpath(sys.executable)} -m ragen"
