"""`ragen eval` on the command line, for policies that load no weights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import call
from tests.support.pages import ROOT
from tests.support.servers import chat, error, in_turn, serving

WITHOUT_TORCH = """
import sys

for name in ("torch", "transformers", "tokenizers", "peft", "safetensors", "huggingface_hub", "jinja2", "gguf", "matplotlib"):
    sys.modules[name] = None  # importing it is an ImportError

from ragen.cli import main

main(sys.argv[1:])
"""
Run = Callable[..., tuple[int, str, str]]
TWO = ("--env", "bandit", "--episodes", "2")
ANSWER = "<think>go</think><answer>nonsense</answer>"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return lambda *tokens: call(capsys, *tokens)


def test_a_server_is_evaluated_and_its_tokens_are_counted(run: Run, tmp_path: Path) -> None:
    prices = ("server.price_per_million_prompt_tokens=10", "server.price_per_million_sampled_tokens=100")
    with serving(in_turn([chat(ANSWER)])) as server:
        code, out, err = run("eval", "openai:m", *TWO, "--base-url", server.base_url, "--json", *prices)
    assert code == 0, err
    result = json.loads(out)
    assert (result["model"], result["num_episodes"]) == ("openai:m", 2)
    # Two episodes of one reply: 2 x 50 prompt tokens at 10 and 2 x 7 sampled at 100 a million.
    expected = {"num_requests": 2, "num_prompt_tokens": 100, "num_sampled_tokens": 14, "cost": pytest.approx(0.0024)}
    assert result["usage"] == expected
    assert json.loads((tmp_path / "runs/openai-m/eval/step-000000-eval.json").read_text()) == result


def test_a_bound_on_the_cost_that_is_reached_has_an_exit_code_of_its_own(run: Run) -> None:
    """It is estimated to cost far less; but the server counts 1000 tokens for a reply, so that a second one is too much."""
    words = ("server.price_per_million_prompt_tokens=10", "server.price_per_million_sampled_tokens=100", "server.max_cost=0.1")
    with serving(in_turn([chat(ANSWER, usage=(50, 1000))])) as server:
        code, _, err = run("eval", "openai:m", *TWO, "--base-url", server.base_url, "server.concurrency=1", *words)
    assert code == 5
    assert "error: server.max_cost=0.1: 0.1005 is spent and the next reply may cost" in err
    assert "1 finished episodes are kept" in err
    assert len(server.requests) == 1


def test_greedy_and_sampled_evaluations_have_files_of_their_own(run: Run, tmp_path: Path) -> None:
    with serving(in_turn([chat(ANSWER)])) as server:
        for more in ((), ("--temperature", "0")):
            assert run("eval", "openai:m", *TWO, "--base-url", server.base_url, *more)[0] == 0
    names = {path.name for path in (tmp_path / "runs/openai-m/eval").glob("*.json")}
    assert names == {"step-000000-eval.json", "step-000000-greedy.json"}


def test_a_dry_run_asks_nobody_and_needs_no_key(run: Run, tmp_path: Path) -> None:
    code, out, err = run("eval", "openai:m", *TWO, "--dry-run")
    assert code == 0, err
    assert "Nobody was asked" in out
    assert "set server.price_per_million_prompt_tokens" in out
    assert list(tmp_path.iterdir()) == []
    code, out, _ = run("eval", "anthropic:m", *TWO, "--dry-run", "--json")
    assert (code, json.loads(out)["short"]["num_requests"]) == (0, 2)  # a pull is one request


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (("openai:m", *TWO), "OPENAI_API_KEY: not set in the environment"),
        (("oracle", *TWO, "--temperature", "1"), "--temperature=1.0: has no effect, oracle does not sample"),
        (("oracle", *TWO, "--dry-run"), "--dry-run: oracle costs nothing"),
        (("oracle", *TWO, "--base-url", "http://h/v1"), "server.base_url: has no effect, oracle is no server"),
        (("openai:m", *TWO, "server.timeout_s=0"), "server.timeout_s=0.0: must be above 0"),
        (("oracle",), "--env is missing: oracle is no run folder and no checkpoint"),
    ],
)
def test_a_mistake_is_one_line_before_anybody_is_asked(run: Run, tokens: tuple[str, ...], said: str) -> None:
    code, out, err = run("eval", *tokens)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1


def test_a_refused_key_is_one_line(run: Run) -> None:
    with serving(in_turn([error(401, "wrong key")])) as server:
        code, _, err = run("eval", "openai:m", *TWO, "--base-url", server.base_url)
    assert (code, err.splitlines()[-1]) == (1, "error: HTTP 401: wrong key")


@pytest.mark.parametrize("command", ["train", "tokens"])
def test_what_needs_token_ids_refuses_a_policy_that_has_none(run: Run, command: str) -> None:
    code, _, err = run(command, "bandit_tiny", "model.name=openai:m")
    assert code == 2
    assert err == "error: model.name=openai:m: has no token ids to train on or to look at; it is for ragen eval alone\n"
    code, _, err = run(command, "bandit_tiny", "server.concurrency=3")
    assert code == 2
    assert err.startswith("error: server.concurrency: has no effect here; only ragen eval")


def test_a_policy_without_weights_is_evaluated_where_torch_is_not_installed(tmp_path: Path) -> None:
    with serving(in_turn([chat(ANSWER)])) as server:
        words = ("eval", "openai:m", *TWO, "--base-url", server.base_url, "--json")
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_episodes"] == 2
