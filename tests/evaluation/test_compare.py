"""Policies side by side: literal outcomes in, literal tables out."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from ragen.errors import ConfigError
from ragen.evaluation.arms import Arm, Source
from ragen.evaluation.compare import Cell, Comparison, compare
from ragen.evaluation.comparison_picture import draw_comparison, draw_curves
from ragen.evaluation.comparison_text import body, header, to_csv, to_json, to_markdown
from ragen.evaluation.results import EvaluationResult
from ragen.evaluation.statistics import wilson_interval
from tests.support.evaluations import evaluated, kept, solving


def arm(name: str, *results: EvaluationResult, folder: Path = Path("nowhere")) -> Arm:
    return Arm(name=name, sources=tuple(Source(result=result, file=folder / f"{i}.json") for i, result in enumerate(results)))


def cell(comparison: Comparison, figure: str, index: int, tag: str = "bandit") -> Cell:
    (table,) = (table for table in comparison.tables if table.tag == tag)
    (row,) = (row for row in table.rows if row.figure.key == figure)
    return row.cells[index]


WEAK = arm("weak", evaluated(solving(2, 40)))
STRONG = arm("strong", evaluated(solving(12, 40)))
BOTH = compare([WEAK, STRONG])


def test_a_single_run_stands_in_the_table_as_it_stands_in_its_file() -> None:
    """bug-log row 93."""
    for index, each in enumerate((WEAK, STRONG)):
        stored = each.results[0].environments["bandit"]
        assert cell(BOTH, "success", index).interval == stored.success
        assert cell(BOTH, "return", index).interval == stored.return_
        assert cell(BOTH, "sampled_tokens", index).interval == stored.sampled_tokens
    assert cell(BOTH, "success", 1).interval == wilson_interval(12, 40)


def test_the_difference_is_taken_seed_by_seed_and_corrected_for_all_tests() -> None:
    """Ten seeds won and none lost: 2 / 2^10 = 0.00195; success and return are two tests, both the same: twice that."""
    found = cell(BOTH, "success", 1)
    assert found.difference is not None
    assert (found.difference.interval.mean, found.difference.num_pairs) == (0.25, 40)
    assert found.difference.p_value == pytest.approx(2 / 2**10)
    assert BOTH.num_tests == 2
    assert found.corrected_p == pytest.approx(4 / 2**10)
    assert found.is_significant
    assert cell(BOTH, "success", 0).difference is None
    assert cell(BOTH, "turns", 1).difference is None


def test_more_environments_and_more_arms_make_the_correction_stricter() -> None:
    """Two arms against the first in two environments, two figures each: eight tests."""
    arms = [arm(str(n), evaluated(solving(n, 40), tags=("a", "b"))) for n in (2, 8, 9)]
    comparison = compare(arms)
    assert comparison.num_tests == 8
    found = cell(comparison, "success", 1, "a")
    assert found.difference is not None
    assert found.difference.p_value == pytest.approx(2 / 2**6)
    assert not found.is_significant  # 0.03 alone


def test_settings_that_differ_are_refused_by_name_or_named_in_a_note() -> None:
    cold = arm("cold", evaluated(solving(3, 8), temperature=0.0))
    warm = arm("warm", evaluated(solving(3, 8)))
    with pytest.raises(ConfigError, match=r"^settings differ: temperature is 0\.5 in warm, 0\.0 in cold; --force"):
        compare([warm, cold])
    assert compare([warm, cold], force=True).notes[-1] == "NOT MEASURED ALIKE: temperature is 0.5 in warm, 0.0 in cold."


def test_a_setting_that_one_result_lacks_differs_and_one_of_an_environment_that_only_one_played_does_not() -> None:
    more = arm("more", evaluated(solving(3, 8), tags=("bandit", "sokoban")))
    less = arm("less", evaluated(solving(3, 8)))
    assert [table.tag for table in compare([more, less]).tables] == ["bandit"]
    with pytest.raises(ConfigError, match=r"top_k is 5 in other, nothing in less|top_k is nothing in less, 5 in other"):
        compare([less, arm("other", evaluated(solving(3, 8), top_k=5))])


def test_without_a_common_environment_there_is_nothing_to_compare() -> None:
    a, b = arm("a", evaluated(solving(1, 4), tags=("x",))), arm("b", evaluated(solving(1, 4), tags=("y",)))
    with pytest.raises(ConfigError, match=r"no environment was played by all \(a: x; b: y\)"):
        compare([a, b])


def test_three_runs_of_one_recipe_have_a_mean_a_spread_and_its_sources() -> None:
    """bug-log row 98: one command, the mean of 10, 14 and 18 of 40, and what makes it uncertain."""
    runs = [evaluated(solving(n, 40)) for n in (10, 14, 18)]
    comparison = compare([arm("ours", *runs)])
    found = cell(comparison, "success", 0)
    assert found.interval is not None
    assert found.interval.mean == pytest.approx(14 / 40)
    assert found.over_runs == pytest.approx(0.1 / 3**0.5)  # s of 0.25, 0.35, 0.45
    assert comparison.num_tests == 0
    assert "ours: mean over 3 runs; its interval is for another run on other task seeds." in comparison.notes
    (sources,) = (note for note in comparison.notes if "standard error" in note)
    assert sources.startswith("ours, success in bandit: standard error 5.8 points from run to run, ")


def test_a_recipe_of_several_runs_is_compared_with_another_over_runs_and_seeds() -> None:
    ours = arm("ours", *(evaluated(solving(n, 40)) for n in (20, 22, 24)))
    theirs = arm("theirs", *(evaluated(solving(n, 40)) for n in (4, 6, 8)))
    tested = cell(compare([theirs, ours]), "success", 1).difference
    assert tested is not None
    assert tested.interval.mean == pytest.approx(16 / 40)
    assert tested.interval.low is not None
    assert tested.interval.low < 0.4 - 0.05  # wider than seed by seed, since the runs differ


def test_pass_at_k_is_compared_up_to_the_fewest_samples() -> None:
    """Seeds with 2 of 4, and with 1 of 2 samples solved: pass@2 = 1 - 1/6 and 1."""
    four = arm("four", evaluated({1: [True, True, False, False], 3: [True, True, False, False]}))
    two = arm("two", evaluated({1: [True, False], 3: [True, False]}))
    comparison = compare([four, two])
    keys = [row.figure.key for row in comparison.tables[0].rows if row.figure.key.startswith("pass")]
    assert keys == ["pass@2", "pass^2"]
    means = [found.mean for i in (0, 1) if (found := cell(comparison, "pass@2", i).interval) is not None]
    assert means == pytest.approx([5 / 6, 1.0])


def test_seed_by_seed_counts_successes_of_episodes() -> None:
    a, b = arm("a", evaluated({1: [True, False], 3: [False, False]})), arm("b", evaluated({1: [True, True]}))
    rows = compare([a, b]).tables[0].seeds
    assert [(row.seed, row.cells) for row in rows] == [(1, ((1, 2, 0.5), (2, 2, 1.0))), (3, ((0, 2, 0.0), None))]


def test_the_table_marks_what_is_significant() -> None:
    rows = {row[0]: row[1:] for row in body(BOTH.tables[0])}
    assert header(BOTH) == ["", "weak (baseline)", "strong"]
    assert rows["success"] == ["5.0% [1.4%, 16.5%]", "30.0% [18.1%, 45.4%]"]
    assert list(rows)[:3] == ["success", "  difference", "  p, corrected"]
    markdown = to_markdown(BOTH, per_seed=False)
    assert "| success | 5.0% [1.4%, 16.5%] | 30.0% [18.1%, 45.4%] |" in markdown
    assert "| p, corrected |  | 0.004 \\* |" in markdown
    assert "Holm's correction for the 2 tests made here (McNemar, exact)" in markdown


def test_csv_and_json_hold_the_same_numbers() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(BOTH, per_seed=False))))
    data = json.loads(to_json(BOTH, per_seed=True))
    assert len(lines) == len(data["figures"])
    (line,) = (each for each in lines if (each["figure"], each["arm"]) == ("success", "strong"))
    assert (line["mean"], line["difference_mean"], line["is_significant"], line["num_pairs"]) == ("0.3", "0.25", "True", "40")
    assert float(line["corrected_p"]) == data["figures"][1]["corrected_p"]
    assert len(data["seeds"]) == 80
    seeds = list(csv.DictReader(io.StringIO(to_csv(BOTH, per_seed=True))))
    assert seeds[1] == {
        "environment": "bandit",
        "seed": "1",
        "arm": "strong",
        "num_successes": "1",
        "num_episodes": "1",
        "return": "1.0",
    }


def test_the_pictures_are_drawn_and_curves_need_metrics(tmp_path: Path) -> None:
    rows = [{"step": step, "rollout/success": 0.1 * step, "eval/bandit/success": 0.2} for step in range(3)]
    runs = [kept(tmp_path / f"run{i}", evaluated(solving(i, 8)), rows=rows) for i in (1, 2)]
    arms = [
        arm("ours", evaluated(solving(1, 8)), folder=runs[0] / "eval"),
        arm("theirs", evaluated(solving(2, 8)), folder=runs[1] / "eval"),
    ]
    draw_comparison(compare(arms), tmp_path / "dots.png")
    draw_curves(arms, tmp_path / "curves.png")
    for name in ("dots.png", "curves.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"^--curves: .*0\.json belongs to no run with a metrics\.jsonl"):
        draw_curves([WEAK], tmp_path / "none.png")
