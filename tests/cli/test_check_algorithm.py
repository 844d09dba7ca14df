"""`ragen check-algorithm`, through the program's own entrance."""

from __future__ import annotations

import json

import pytest

from ragen.cli.main import main

PLUGINS = "tests.support.plugins"


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(["check-algorithm", *words])
    return int(exit_.value.code or 0)


def test_one_of_ours_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gae", "-o", "lam=0.95", "-o", "discount_per=token", "-o", "whiten=false") == 0
    out = capsys.readouterr().out
    assert "observation tokens  passed" in out
    assert out.endswith("0 broken\n")


def test_one_s_own_that_breaks_an_invariant_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{PLUGINS}:zscore_of_everything", "--promise", "centred") == 1
    out = capsys.readouterr().out
    assert "few tokens          failed  advantage by tests.support.plugins:zscore_of_everything of" in out
    assert "centred             failed  rewards that are all" in out
    assert out.endswith(" 2 broken\n")


def test_the_report_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{PLUGINS}:not_a_number", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["kind"], report["name"]) == (False, "estimator", f"{PLUGINS}:not_a_number")
    assert report["findings"][0]["check"] == "answers"
    assert report["findings"][0]["outcome"] == "failed"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [("loss", "reinforce", 0), ("loss", "gains", 1), ("kl", "squared_ratio", 0), ("filter", "widest", 0), ("filter", "first", 1)],
)
def test_losses_kl_terms_and_filters_of_one_s_own(kind: str, name: str, code: int) -> None:
    assert run(f"{PLUGINS}:{name}", "--kind", kind) == code


def test_a_filter_may_be_held_to_what_filters_by_spread_promise(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{PLUGINS}:widest", "--kind", "filter", "--promise", "by_spread") == 0
    assert "wider first" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grpp"], "error: algorithm.advantage.estimator='grpp': must be one of gae, "),
        (["grpo", "-o", "metod=mean"], "error: --option metod=mean: must be KEY=VALUE with KEY one of method, "),
        (["gae", "-o", "gamma=high"], "error: --option gamma=high: must be a number"),
        (["gae", "-o", "whiten=maybe"], "error: --option whiten=maybe: must be true or false"),
        (["gae", "-o", "gamma=0.9"], "error: algorithm.advantage.gamma=0.9: say per what"),
        ([f"{PLUGINS}:half_grp"], "has no function 'half_grp'; did you mean 'half_grpo'?"),
        (["nothing:there", "--kind", "loss"], "error: loss 'nothing:there': cannot be imported"),
        ([f"{PLUGINS}:reinforce", "--kind", "loss", "-o", "gamma=1"], "error: --option: has no effect with --kind loss"),
        ([f"{PLUGINS}:reinforce", "--kind", "loss", "--promise", "linear"], "error: --promise: has no effect with --kind loss"),
        ([f"{PLUGINS}:widest", "--kind", "filter", "--promise", "linear"], "error: promise 'linear': must be by_spread"),
    ],
)
def test_what_cannot_be_checked_ends_with_2_and_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
