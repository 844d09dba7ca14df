"""Ratios and shares by hand, and the form of the JSON that others read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragen.benchmark.picture import draw
from ragen.benchmark.report import HEADER, Ratio, Report, Result, Share, lines, table_rows
from ragen.benchmark.sizes import FULL, QUICK
from ragen.benchmark.suite import Options
from tests.support.benchmarks import MACHINE, timing
from tests.support.command import call

GROUPS = Result(
    name="groups",
    what="4 prompts x 16",
    timings=(timing("ragen", 1.0, 2.0, 3.0), timing("transformers", 9.0, 11.0), timing("vllm", 5.0)),
)
REPORT = Report(
    benchmark="rollout",
    machine=MACHINE,
    model="tiny",
    dtype="float32",
    threads=2,
    results=(GROUPS,),
    shares=(Share(what="decode", measured=3e9, ceiling=4e9, unit="FLOP/s"),),
    more_ratios=(Ratio(peer="published_env", what="sokoban_steps", value=12.5),),
    skipped={"trl": "trl: no environment"},
    ceilings={"flops_per_s": 4e9},
)


def test_a_ratio_is_the_peer_s_median_over_ours() -> None:
    assert REPORT.ratios == {
        "transformers": {"groups": 5.0},  # 10 s / 2 s
        "vllm": {"groups": 2.5},
        "trl": {},  # not measured: it is there, and empty
        "published_env": {"sokoban_steps": 12.5},
    }


def test_the_json_holds_machine_raw_figures_ratios_and_what_was_skipped() -> None:
    data = json.loads(json.dumps(REPORT.to_json()))
    assert data["machine"]["cpu"] == "a processor"
    assert data["machine"]["ceilings"] == {"flops_per_s": 4e9}
    assert data["ratios"] == REPORT.ratios
    assert data["skipped"] == {"trl": "trl: no environment"}
    assert data["efficiency"]["decode"] == {"share": 0.75, "measured": 3e9, "ceiling": 4e9, "unit": "FLOP/s"}
    (workload,) = data["workloads"]
    own = workload["sides"][0]
    assert (own["side"], own["seconds"], own["median_s"], own["tokens_per_s"]) == ("ragen", [1.0, 2.0, 3.0], 2.0, 50.0)
    assert own["peak_bytes"] == 2**30


def test_the_table_says_how_much_faster_we_are_than_each_peer() -> None:
    rows = table_rows(REPORT)
    assert {len(row) for row in rows} == {len(HEADER)}
    assert [row[-1] for row in rows] == ["", "5.00 x as fast", "2.50 x as fast"]
    assert rows[0][2:6] == ("2.00", "100%", "50", "1.00 GiB")


def test_the_lines_behind_the_table_hold_shares_and_reasons() -> None:
    said = lines(REPORT)
    assert "decode: 3 G of 4 G FLOP/s, 75%" in said
    assert "sokoban_steps: 12.50 x published_env" in said
    assert "skipped: trl: no environment" in said


def test_without_our_own_side_nothing_can_be_compared() -> None:
    assert Result(name="x", what="x", timings=(timing("vllm", 1.0),)).ratios() == []


@pytest.mark.parametrize("shares", [True, False])
def test_the_picture_is_a_png_file(shares: bool, tmp_path: Path) -> None:
    report = REPORT if shares else Report(**{**vars(REPORT), "shares": ()})
    draw(report, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["rollout", "step", "update"])
def test_each_command_prints_its_report_as_json_or_as_a_table_and_draws_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Options] = []

    def bench(options: Options, say: object) -> Report:
        asked.append(options)
        return REPORT

    monkeypatch.setattr(f"ragen.benchmark.suite.bench_{name}", bench)
    picture = tmp_path / "bench.png"
    code, out, _ = call(capsys, "bench", name, "--json", "--picture", str(picture))
    assert (code, json.loads(out), picture.exists()) == (0, REPORT.to_json(), True)
    words = ("--model", "tiny", "--threads", "3", "--rounds", "4", "--repeats", "5", "--peer", "trl=here", "--quick")
    code, out, _ = call(capsys, "bench", name, *words)
    assert code == 0
    assert "2.50 x as fast" in out
    assert "skipped: trl: no environment" in out
    first, second = asked
    assert (first.model, first.rounds, first.repeats, first.sizes) == ("smollm2-135m", 2, 3, FULL)
    assert second == Options(model="tiny", threads=3, rounds=4, repeats=5, peers={"trl": "here"}, sizes=QUICK)
