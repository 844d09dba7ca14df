"""`ragen bench env`: its exit code says whether everything could be played."""

from __future__ import annotations

import json
from functools import partial

import pytest

from ragen.environments.benchmark import measure
from tests.support.command import call

DEADLY = "tests.support.deadly"


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen.environments.benchmark.measure", partial(measure, seconds=0.01, repeats=1))


@pytest.mark.parametrize("name", ["LeavesEarly", "RaisesWhenMade"])
def test_an_environment_that_cannot_be_played_is_listed_and_exit_code_1(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "bench", "env", "bandit", f"{DEADLY}:{name}")
    assert code == 1
    assert "the state manager adds" in out
    code, out, _ = call(capsys, "bench", "env", "bandit", f"{DEADLY}:{name}", "--json")
    assert code == 1
    bandit, broken, *_ = json.loads(out)["environments"]
    assert bandit["speed"] is not None
    assert (broken["speed"], bool(broken["problem"])) == (None, True)


@pytest.mark.parametrize(("environment", "code"), [("RaisesWhenMade", 0), ("LeavesEarly", 1)])
def test_of_all_tags_those_that_need_something_of_yours_do_not_count(
    environment: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ragen.config.environments.tags", lambda: {"yours": "a tag"})
    monkeypatch.setattr("ragen.config.environments.named", lambda tag: (tag, {"name": f"{DEADLY}:{environment}"}))
    assert call(capsys, "bench", "env")[0] == code


def test_what_an_environment_prints_does_not_spoil_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "bench", "env", f"{DEADLY}:Talks", "--json")
    assert code == 0
    assert json.loads(out)["environments"][0]["problem"] == ""
