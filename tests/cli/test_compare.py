"""`ragen compare`: what is typed reaches the comparison, in every format, to the terminal or to a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ragen import cli
from tests.support.evaluations import evaluated, kept, solving

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process: (exit code, stdout, stderr)."""

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(["compare", *words])
        out, err = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, out, err

    return call


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    return [str(kept(tmp_path / f"run-seed{i}", evaluated(solving(n, 40)))) for i, n in enumerate((2, 14, 16))]


def test_two_runs_become_a_table_with_notes(run: Run, runs: list[str]) -> None:
    code, out, _ = run(*runs[:2])
    assert code == 0
    assert "run-seed0 (baseline)" in " ".join(out.split())
    assert "35.0%" in out
    assert "< 0.001 *" in out
    assert "Holm's correction" in out


def test_several_seeds_of_one_recipe_are_one_command(run: Run, runs: list[str], tmp_path: Path) -> None:
    """bug-log row 98."""
    code, out, _ = run(f"{tmp_path}/run-seed*")
    assert code == 0
    assert "mean over 3 runs" in out


@pytest.mark.parametrize("format", ["table", "markdown", "csv", "json"])
def test_every_format_goes_to_a_file(run: Run, runs: list[str], tmp_path: Path, format: str) -> None:
    path = tmp_path / "out.txt"
    assert run(*runs, "--format", format, "--per-seed", "--out", str(path)) == (0, "", "")
    text = path.read_text()
    assert "run-seed2" in text
    assert ("seed" in json.loads(text)["seeds"][0]) if format == "json" else ("task seed" in text or "seed,arm" in text)


def test_json_is_a_format_and_a_flag_as_of_other_commands(run: Run, runs: list[str]) -> None:
    assert run(*runs, "--json") == run(*runs, "--format", "json")
    assert json.loads(run(*runs, "--json")[1])


def test_pictures_are_written_beside_the_table(run: Run, runs: list[str], tmp_path: Path) -> None:
    assert run(*runs[:2], "--picture", str(tmp_path / "p.png"))[0] == 0
    assert (tmp_path / "p.png").exists()


def test_nothing_to_compare_and_different_settings_are_refused_in_a_line(run: Run, runs: list[str], tmp_path: Path) -> None:
    assert run() == (2, "", "error: compare: name run folders or evaluations, the baseline first\n")
    other = kept(tmp_path / "other", evaluated(solving(2, 40), temperature=1.0))
    code, _, err = run(runs[0], str(other))
    assert code == 2
    assert err == (
        "error: settings differ: temperature is 0.5 in run-seed0, 1.0 in other; --force compares all the same and says so\n"
    )
    code, out, _ = run(runs[0], str(other), "--force")
    assert code == 0
    assert "NOT MEASURED ALIKE" in out
