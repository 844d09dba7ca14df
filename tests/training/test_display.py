"""What a person sees during a run: whole lines without a terminal, bars with one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from ragen.training.display import Display

METRICS = {
    "rollout/success": 0.1171,
    "rollout/return": -0.0721,
    "rollout/format_validity": 0.1328,
    "update/entropy": 2.8104,
    "update/kl_start": 0.00012,
    "update/grad_norm": 0.14123,
    "rollout/tokens_per_s": 1512.3,
    "time/step_s": 38.42,
}


def piped(*, times: Iterator[float] | None = None) -> tuple[Display, io.StringIO]:
    """A display that writes where no terminal is, with a clock that shows `times`."""
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=False)
    return (Display(console) if times is None else Display(console, clock=lambda: next(times))), out


def test_a_step_is_one_line_of_eighty_characters_under_one_header() -> None:
    display, out = piped()
    display.step_line(1, 16, METRICS)
    display.step_line(2, 16, METRICS)
    header, first, second = out.getvalue().splitlines()
    assert header.split() == ["step", "success", "return", "format", "entropy", "KL", "grad", "tok/s", "seconds"]
    assert first.split() == ["1/16", "11.7%", "-0.072", "13.3%", "2.810", "0.0001", "0.14", "1,512", "38.4"]
    assert second.split()[0] == "2/16"
    assert max(len(line) for line in (header, first, second)) <= 80


def test_columns_stand_under_their_titles() -> None:
    display, out = piped()
    display.step_line(1, 200, METRICS)
    header, line = out.getvalue().splitlines()
    for title, cell in (("success", "11.7%"), ("entropy", "2.810"), ("seconds", "38.4")):
        assert header.index(title) + len(title) == line.index(cell) + len(cell)


@pytest.mark.parametrize(("norm", "shown"), [(0.000576, "0.00058"), (0.0000576, "5.8e-05"), (17000.0, "1.7e+04"), (1.0, "1")])
def test_a_gradient_norm_of_any_size_keeps_the_columns_straight(norm: float, shown: str) -> None:
    display, out = piped()
    display.step_line(1, 16, METRICS | {"update/grad_norm": norm})
    header, line = out.getvalue().splitlines()
    assert line.split()[6] == shown
    assert len(line) == len(header)


def test_a_metric_that_was_not_measured_shows_as_a_dash() -> None:
    display, out = piped()
    display.step_line(3, 16, {"rollout/success": 1.0})
    assert out.getvalue().splitlines()[1].split() == ["3/16", "100.0%", *["-"] * 7]


def test_a_skipped_update_is_said_on_its_line() -> None:
    display, out = piped()
    display.step_line(3, 16, METRICS | {"update/skipped": 1.0})
    assert out.getvalue().splitlines()[1].endswith("update skipped: not finite")


def test_brackets_in_a_message_are_not_markup() -> None:
    display, out = piped()
    display.message("folder [red]runs[/red]")
    assert out.getvalue() == "folder [red]runs[/red]\n"


def test_without_a_terminal_bars_leave_no_trace() -> None:
    display, out = piped()
    with display.rollout_progress(3) as update:
        for done in (1, 2, 3):
            update(done, 3, 10 * done)
    with display.update_progress(2) as update_samples:
        update_samples(2)
    assert out.getvalue() == ""


def test_without_a_terminal_a_long_rollout_says_that_it_is_alive() -> None:
    """Clock readings: two at the start, two per update (speed, last line), one more when a line is due."""
    display, out = piped(times=iter([0.0, 0.0, 10.0, 10.0, 40.0, 40.0, 40.0, 50.0, 50.0]))
    with display.rollout_progress(128) as update:
        update(16, 128, 500)
        update(64, 128, 2000)
        update(96, 128, 3000)
    assert out.getvalue() == "  rollout: 64 of 128 trajectories, 50 tok/s\n"


def test_a_download_says_once_what_it_does_when_there_is_no_terminal() -> None:
    display, out = piped()
    for done in range(11):
        display.download("downloading model==1.0", done * 10, 100)
    display.download("waiting for another process", 0, None)
    display.message("ready")
    assert out.getvalue().splitlines() == ["downloading model==1.0 ...", "waiting for another process ...", "ready"]


def test_no_control_codes_reach_a_pipe() -> None:
    display, out = piped()
    display.download("downloading", 1, 2)
    with display.rollout_progress(1) as update:
        update(1, 1, 1)
    display.step_line(1, 1, METRICS)
    display.show(Text("bold", style="bold red"))
    assert "\x1b" not in out.getvalue()
    assert "\r" not in out.getvalue()


def test_on_a_terminal_bars_are_drawn_and_taken_away() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=100, force_terminal=True))
    with display.rollout_progress(4) as update:
        update(4, 4, 100)
    assert "4/4" in out.getvalue()
    assert out.getvalue().rstrip("\n").endswith("\x1b[1A\x1b[2K")  # up one line and erase it


def test_the_log_gets_the_same_lines_with_their_time_and_no_colours(tmp_path: Path) -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=100, force_terminal=True))
    display.message("before the log")
    display.open_log(tmp_path / "log.txt")
    display.message("training", style="bold")
    display.step_line(1, 16, METRICS)
    display.close_log()
    display.message("after the log")
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line[21:].split()[0] for line in lines] == ["before", "training", "step", "1/16"]
    assert "\x1b" not in "".join(lines)


def test_a_resumed_run_adds_to_its_log(tmp_path: Path) -> None:
    for word in ("one", "two"):
        display, _ = piped()
        display.open_log(tmp_path / "log.txt")
        display.message(word)
        display.close_log()
    assert [line.split()[-1] for line in (tmp_path / "log.txt").read_text().splitlines()] == ["one", "two"]


def test_the_bar_of_an_update_stands_where_it_is_told_to() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=100, force_terminal=True))
    with display.update_progress(5) as update:
        update(2)
        update(5)
    assert "5/5" in out.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_an_error_inside_a_bar_passes_through(terminal: bool) -> None:
    display = Display(Console(file=io.StringIO(), force_terminal=terminal))
    with pytest.raises(ZeroDivisionError), display.update_progress(2):
        raise ZeroDivisionError
    display.message("the next line still prints")


def test_a_log_that_has_grown_is_put_aside_in_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    display = Display(Console(file=io.StringIO()), max_log_bytes=30)  # a line has 20 characters of time and two spaces
    display.open_log(tmp_path / "log.txt")
    for word in ("first line", "second line", "third line"):
        display.message(word)
    display.close_log()
    assert (tmp_path / "log.1.txt").read_text().endswith("second line\n")
    assert (tmp_path / "log.txt").read_text().endswith("third line\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.1.txt", "log.txt"]
