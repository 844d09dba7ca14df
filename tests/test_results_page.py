"""The tables of docs/results.md are those of its numbers, and the program that makes them does it from any policy."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from ragen.config.environments import by_tag
from ragen.config.suites import load_suite
from ragen.errors import ConfigError
from ragen.rollout.environment_config import EnvironmentConfig

ROOT = Path(__file__).parents[1]


def load_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_table", ROOT / "benchmarks" / "results_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROGRAM = load_program()
SMALL = """
environments: {bandit: bandit_paper, game: game_2048_small}
settings: {sampled: {mode: sampled, num_episodes: 3}}
"""


def test_the_page_holds_the_tables_of_the_numbers_beside_it() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    columns = json.loads((ROOT / "docs" / "results.json").read_text(encoding="utf-8"))
    assert PROGRAM.with_tables(page, columns) == page
    assert {"random", "oracle"} <= set(columns)
    tags = set(load_suite("shipped").environments)
    assert set(columns["random"]["environments"]) == tags
    assert set(columns["oracle"]["environments"]) < tags


def test_a_cell_is_a_mean_with_its_interval_and_no_number_where_nobody_can_play() -> None:
    columns = {
        "random": {"environments": {"a": {"success": [0.25, 0.1, 0.5]}, "b": {"success": [1.0, None, None]}}},
        "oracle": {"environments": {"a": {"success": [1.0, 0.96, 1.0]}}},
    }
    assert PROGRAM.table(["a", "b"], columns, "success", "{:.0%}").splitlines() == [
        "| environment | random | oracle |",
        "|---|---|---|",
        "| `a` | 25% [10%, 50%] | 100% [96%, 100%] |",
        "| `b` | 100% | no oracle |",
    ]


def test_who_has_an_oracle_is_asked_of_the_environment() -> None:
    sections = by_tag(["hanoi", "game_2048_small"])
    assert [PROGRAM.has_oracle(EnvironmentConfig(**values)) for values in sections.values()] == [True, False]


def test_a_title_stands_before_the_target() -> None:
    assert PROGRAM.named("random") == ("random", "random")
    assert PROGRAM.named("trained on bandit=runs/bandit") == ("trained on bandit", "runs/bandit")


def test_a_column_is_measured_written_and_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = tmp_path / "small.yaml"
    suite.write_text(SMALL, encoding="utf-8")
    page, data = tmp_path / "results.md", tmp_path / "results.json"
    page.write_text(f"before\n{PROGRAM.BEGIN}\nold\n{PROGRAM.END}\nafter\n", encoding="utf-8")
    data.write_text(json.dumps({"mine": {"environments": {}}}), encoding="utf-8")
    for name, value in (("SUITE", str(suite)), ("PAGE", page), ("DATA", data)):
        monkeypatch.setattr(PROGRAM, name, value)
    monkeypatch.chdir(tmp_path)
    PROGRAM.main(["the oracle=oracle", "rollout.max_invalid_turns=2"])
    columns = json.loads(data.read_text(encoding="utf-8"))
    assert list(columns) == ["mine", "the oracle"]
    assert list(columns["the oracle"]["environments"]) == ["bandit"]
    assert columns["the oracle"]["environments"]["bandit"]["num_episodes"] == 3
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| `game` | no oracle | no oracle |" in text
    again = text
    PROGRAM.main(["--page-only"])
    assert page.read_text(encoding="utf-8") == again


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="--resum: must be"):
        PROGRAM.main(["random", "--resum"])
