"""`ragen suites` and `ragen eval --suite` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import call

SUITE = """
environments: {bandit: bandit_paper, test: bandit_test}
settings: {greedy: {mode: greedy, num_episodes: 3}, sampled: {mode: sampled, num_episodes: 2}}
"""


def test_the_list_names_every_suite_with_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "suites", "--json")
    assert code == 0
    assert list(json.loads(out)) == ["paper", "paper_2", "quick", "shipped"]
    code, out, _ = call(capsys, "suites")
    assert (code, "paper_2" in out) == (0, True)


def test_one_of_them_is_shown_with_environments_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "suites", "paper_2")
    assert code == 0
    shown = [line.split() for line in out.splitlines()]
    assert ["greedy", "greedy", "512", "1", "0.0", "1536"] in shown
    code, out, _ = call(capsys, "suites", "paper_2", "--json")
    assert json.loads(out)["environments"]["sokoban"]["max_actions_per_turn"] == 2


def test_a_policy_is_measured_on_a_suite_of_one_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The oracle plays alike in both modes, but not from as many seeds: two results, one after the other."""
    (tmp_path / "pair.yaml").write_text(SUITE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(capsys, "eval", "oracle", "--suite", "pair.yaml", "--json")
    assert code == 0
    written = sorted(path.name for path in (tmp_path / "runs" / "oracle" / "eval").glob("*.json"))
    assert written == ["step-000000-pair-greedy.json", "step-000000-pair-sampled.json"]
    assert [json.loads(part)["num_episodes"] for part in _documents(out)] == [6, 4]


def _documents(text: str) -> list[str]:
    """JSON values printed one behind the other."""
    decoder, parts = json.JSONDecoder(), []
    while text := text.lstrip():
        _, end = decoder.raw_decode(text)
        parts.append(text[:end])
        text = text[end:]
    return parts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suite", "quik"], "there is no suite 'quik'; did you mean 'quick'"),
        (["--suite", "quick", "--env", "bandit"], "--suite: says which environments are played"),
        (["--suite", "quick", "evaluation.top_k=3"], "has no effect with --suite"),
    ],
)
def test_what_a_suite_leaves_no_room_for_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "eval", "random", *words)
    assert code == 2
    assert said in err
