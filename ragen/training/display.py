"""What a person sees while a run goes on: one line a step; bars on a terminal, now and then a line in a pipe or a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ragen.files import storage
from ragen.redaction import redact

PLAIN_INTERVAL_S = 30.0  # without a terminal, a long wait says that it is alive this often
LOG_WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class _Column:
    title: str
    key: str
    form: str
    width: int


_COLUMNS = (
    _Column(title="success", key="rollout/success", form=".1%", width=7),
    _Column(title="return", key="rollout/return", form="+.3f", width=7),
    _Column(title="format", key="rollout/format_validity", form=".1%", width=7),
    _Column(title="entropy", key="update/entropy", form=".3f", width=7),
    _Column(title="KL", key="update/kl_start", form=".4f", width=7),
    _Column(title="grad", key="update/grad_norm", form=".2g", width=7),
    _Column(title="tok/s", key="rollout/tokens_per_s", form=",.0f", width=7),
    _Column(title="seconds", key="time/step_s", form=".1f", width=7),
)


class Display:
    """Everything a run says goes through here, to the console and, once `open_log` was called, to the run's `log.txt`."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_log_bytes: int = 100 * 2**20,
    ) -> None:
        """A log that has grown to `max_log_bytes` is put aside as `log.1.txt`, in the place of an earlier one."""
        self._max_log_bytes = max_log_bytes
        self._console = console or Console()
        self._clock = clock
        self._log: TextIO | None = None
        self._unlogged: list[RenderableType] = []  # said before there was a log; goes to its top
        self._download: _Download | None = None
        self._header_shown = False
        self.on_life: Callable[[], None] = _nobody  # called at every sign of life: a line, a bar that moves

    # -- lines ---------------------------------------------------------------------------------------------------------------

    def message(self, text: str, *, style: str = "") -> None:
        """One line (or a few) of plain words; keys and passwords are blotted out."""
        self._say(Text(redact(text), style=style))

    def show(self, renderable: RenderableType) -> None:
        """A table, panels, ..."""
        self._say(renderable)

    def step_line(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """The line of a step, under a header that is shown once; a metric that is absent shows as "-"."""
        width = 2 * len(str(total)) + 1
        if not self._header_shown:
            self._header_shown = True
            titles = [f"{'step':>{width}}", *(f"{column.title:>{column.width}}" for column in _COLUMNS)]
            self._say(Text("  ".join(titles), style="bold"))
        cells = [f"{f'{step}/{total}':>{width}}", *(_cell(column, metrics) for column in _COLUMNS)]
        line = Text("  ".join(cells))
        if metrics.get("update/skipped"):
            line.append("  update skipped: not finite", style="bold red")
        self._say(line)

    def open_log(self, path: Path) -> None:
        """From now on, write every line to `path` as well, with the time of day. Raises StorageError."""
        self.close_log()
        with storage("write", path):
            self._log = path.open("a", encoding="utf-8")
        for renderable in self._unlogged:
            self.log(renderable)
        self._unlogged.clear()

    def close_log(self) -> None:
        """Stop writing to the log; harmless without one."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _say(self, renderable: RenderableType) -> None:
        self.on_life()
        self.end_download()
        self._console.print(renderable, highlight=False, soft_wrap=isinstance(renderable, Text))
        self.log(renderable)

    def log(self, renderable: RenderableType) -> None:
        """Write to the log alone; kept for later while none is open."""
        if self._log is None:
            self._unlogged.append(renderable)
            return
        with storage("write", Path(self._log.name)):
            if self._log.tell() >= self._max_log_bytes:
                self._log = _begun_anew(self._log)
            if isinstance(renderable, Text):
                self._log.write(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {redact(renderable.plain)}\n")
            else:
                Console(file=self._log, width=LOG_WIDTH, color_system=None, force_terminal=False).print(renderable)
            self._log.flush()

    # -- bars ----------------------------------------------------------------------------------------------------------------

    def download(self, phase: str, done: int, total: int | None) -> None:
        """Progress of fetching a model, in bytes; total is None where it is not known. The next line or bar ends this one."""
        self.on_life()
        if self._download is None or self._download.phase != phase:
            self.end_download()
            self._download = _Download(self._console, phase)
        self._download.update(done, total)
        if total is not None and done >= total:
            self.end_download()

    def end_download(self) -> None:
        """Take the download's bar away, if there is one."""
        if self._download is not None:
            download, self._download = self._download, None
            download.bar.stop()

    @contextmanager
    def rollout_progress(self, total: int, title: str = "rollout") -> Iterator[Callable[[int, int, int], None]]:
        """Yield a callback for (trajectories done, in all, tokens sampled so far): the Progress of rollout/collect.py."""
        speed = TextColumn("{task.fields[speed]}", style="cyan")
        started = self._clock()
        with self._bar(title, total, "trajectories", speed) as advance:

            def update(done: int, total: int, tokens: int) -> None:
                elapsed = self._clock() - started
                advance(done, f"{tokens / elapsed:,.0f} tok/s" if elapsed > 0 else "")

            yield update

    @contextmanager
    def update_progress(self, total: int, title: str = "update") -> Iterator[Callable[[int], None]]:
        """Yield a callback for the number of samples trained on so far."""
        with self._bar(title, total, "samples") as advance:
            yield lambda done: advance(done, "")

    @contextmanager
    def _bar(self, title: str, total: int, unit: str, *columns: ProgressColumn) -> Iterator[Callable[[int, str], None]]:
        """A bar that vanishes when done: the step's line says the rest. Without a terminal, a line now and then."""
        self.end_download()
        said = self._clock()
        with Progress(
            TextColumn("{task.description:<8}", style="bold"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn(unit, style="dim"),
            *columns,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
            refresh_per_second=4,
        ) as progress:
            task = progress.add_task(title, total=total, speed="")

            def advance(done: int, speed: str) -> None:
                nonlocal said
                self.on_life()
                progress.update(task, completed=done, speed=speed)
                if progress.disable and done < total and self._clock() - said >= PLAIN_INTERVAL_S:
                    said = self._clock()
                    self._console.print(f"  {title}: {done} of {total} {unit}{speed and f', {speed}'}", highlight=False)

            yield advance


class _Download:
    """The bar of one phase of a download."""

    def __init__(self, console: Console, phase: str) -> None:
        self.phase = phase
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            refresh_per_second=4,
        )
        console.print(f"{phase} ...", highlight=False, markup=False)
        self.bar.start()
        self._task = self.bar.add_task(phase, total=None)

    def update(self, done: int, total: int | None) -> None:
        self.bar.update(self._task, completed=done, total=total)


def _nobody() -> None:
    """Nobody listens."""


def _begun_anew(log: TextIO) -> TextIO:
    path = Path(log.name)
    log.close()
    os.replace(path, path.with_name(f"{path.stem}.1{path.suffix}"))
    return path.open("a", encoding="utf-8")


def _cell(column: _Column, metrics: Mapping[str, float]) -> str:
    text = format(metrics[column.key], column.form) if column.key in metrics else "-"
    return f"{text:>{column.width}}"
