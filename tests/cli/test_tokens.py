"""`ragen tokens`: which environment, which model, who replies; and that its page in the documents is what it prints."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import tests.support.episodes  # noqa: F401  (registers "corridor" and "ticket")
from ragen import cli, tokens
from ragen.tokens import Author
from tests.support.models import tiny_llama
from tests.support.pages import ROOT, blocks

Run = Callable[..., tuple[int, str, str]]
PAGE = ROOT / "docs" / "tokens.md"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process: (exit code, stdout, stderr)."""

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(list(words))
        out, err = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, out, err

    return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """What would have been played; nothing is."""
    seen: list[SimpleNamespace] = []

    def trace(config: Any, tag: str, **options: Any) -> SimpleNamespace:
        seen.append(SimpleNamespace(config=config, tag=tag, **options))
        return SimpleNamespace(to_json=dict)

    monkeypatch.setattr(tokens, "trace_episode", trace)
    return seen


def test_a_recipe_plays_its_first_environment_with_its_own_model_and_settings(run: Run, calls: list[SimpleNamespace]) -> None:
    assert run("tokens", "bandit_tiny", "rollout.context.think=false", "--json")[0] == 0
    (call,) = calls
    assert (call.tag, call.config.model.name) == ("bandit", "tiny")
    assert call.config.rollout.context.think is False
    assert (call.author, call.seed, call.num_turns, call.replies) == (None, 0, None, ())


@pytest.mark.parametrize(
    ("words", "author", "replies"),
    [
        (["--sampled"], Author.MODEL, ()),
        (["--oracle"], Author.ORACLE, ()),
        (["--scripted", "a b", "--scripted", "c"], Author.SCRIPT, ["a b", "c"]),
    ],
)
def test_a_flag_says_who_replies(
    run: Run, calls: list[SimpleNamespace], words: list[str], author: Author, replies: list[str] | tuple[()]
) -> None:
    assert run("tokens", "bandit_tiny", "--json", "--seed", "5", "--turns", "2", *words)[0] == 0
    (call,) = calls
    assert (call.author, call.replies, call.seed, call.num_turns) == (author, replies, 5, 2)


def test_an_environment_of_the_recipe_keeps_the_recipe_s_settings(run: Run, calls: list[SimpleNamespace]) -> None:
    assert run("tokens", "bandit_tiny", "environments.bandit.options.names=test", "--env", "bandit", "--json")[0] == 0
    assert calls[0].config.environments["bandit"].options["names"] == "test"


@pytest.mark.parametrize("name", ["sokoban_simple", "ticket", "tests.support.episodes:Ticket"])
def test_any_other_environment_may_be_named(run: Run, calls: list[SimpleNamespace], name: str) -> None:
    assert run("tokens", "bandit_tiny", "--env", name, "--json")[0] == 0
    (environment,) = calls[0].config.environments.values()
    assert environment.name == {"sokoban_simple": "sokoban"}.get(name, name)
    assert calls[0].config.environments[calls[0].tag] is environment


def test_the_model_may_be_another(run: Run, calls: list[SimpleNamespace]) -> None:
    assert run("tokens", "bandit_tiny", "--model", str(tiny_llama()), "--json")[0] == 0
    assert calls[0].config.model.name == str(tiny_llama())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--oracle", "--sampled"], "--sampled and --oracle: give one of them"),
        (["--oracle", "--scripted", "x"], "--oracle and --scripted: give one of them"),
        (["--seed", "-1"], "--seed=-1: must be at least 0"),
        (["--turns", "0"], "--turns=0: must be at least 1"),
        (["--env", "sokobann"], "there is no environment 'sokobann'"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, calls: list[SimpleNamespace], words: list[str], message: str) -> None:
    code, out, err = run("tokens", "bandit_tiny", *words)
    assert (code, out, calls) == (2, "", [])
    assert err.startswith(f"error: {message}")


def test_the_whole_way_without_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("tokens", "bandit_tiny", "--env", "corridor", "--model", str(tiny_llama()), "--turns", "1")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "turn 1, sampled: " in out
    assert "chat template of " in out


def test_json_is_all_that_is_printed(run: Run) -> None:
    code, out, _ = run("tokens", "bandit_tiny", "--model", str(tiny_llama()), "--json")
    assert code == 0
    assert json.loads(out)["author"] == "oracle"


@pytest.mark.real_model
@pytest.mark.timeout(600)
def test_the_run_in_the_documents_is_what_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pasted, _ = blocks(PAGE, "text")
    (line,) = re.findall(r"`ragen (tokens .*)`, in a window of 80 columns", PAGE.read_text(encoding="utf-8"))
    code, out, _ = run(*shlex.split(line))
    assert code == 0
    assert out == pasted
