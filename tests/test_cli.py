"""The command line: what a person types reaches the right part, and what goes wrong is one line and an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ragen
from ragen import cli
from ragen.config.schema import Config
from ragen.errors import ModelError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process: (exit code, stdout, stderr)."""

    def call(*tokens: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(list(tokens))
        out, err = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, out, err

    return call


class FakeTraining:
    """Stands where ragen.run is imported from; records the call, raises on demand."""

    def __init__(self) -> None:
        self.calls: list[SimpleNamespace] = []
        self.error: BaseException | None = None

    def train(self, config: Config, *, resume: bool, console: Any) -> SimpleNamespace:
        self.calls.append(SimpleNamespace(config=config, resume=resume, console=console))
        if self.error:
            raise self.error
        return SimpleNamespace(to_json=lambda: {"folder": "runs/bandit", "steps": config.trainer.steps})


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    fake = FakeTraining()
    monkeypatch.setitem(sys.modules, "ragen.run", fake)
    return fake


def test_no_command_shows_what_there_is(run: Run) -> None:
    code, out, _ = run()
    assert code == 0
    commands = {line.split()[1] for line in out.splitlines() if line.startswith("│")}
    assert commands >= {"train", "eval", "models", "envs"}


def test_the_version_is_the_package_s(run: Run) -> None:
    assert run("--version")[:2] == (0, f"{ragen.__version__}\n")


def test_the_command_runs_as_a_module() -> None:
    result = subprocess.run([sys.executable, "-m", "ragen", "--version"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, f"{ragen.__version__}\n")


def test_train_hands_over_the_loaded_recipe(run: Run, training: FakeTraining) -> None:
    assert run("train", "bandit", "trainer.steps=5", "seed=3")[0] == 0
    (call,) = training.calls
    assert (call.config.trainer.steps, call.config.seed) == (5, 3)
    assert call.resume is False
    assert not call.console.stderr


def test_flags_and_overrides_may_stand_in_any_order(run: Run, training: FakeTraining) -> None:
    run("train", "--resume", "bandit", "trainer.steps=5")
    run("train", "bandit", "trainer.steps=5", "--resume")
    run("train", "bandit", "--resume", "trainer.steps=5")
    assert [(call.resume, call.config.trainer.steps) for call in training.calls] == [(True, 5)] * 3


def test_overrides_pass_the_command_line_untouched(run: Run, training: FakeTraining) -> None:
    """Signs, plus, tilde, brackets and quotes mean something to the configuration and nothing to the command line."""
    run(
        "train",
        "bandit",
        "rollout.format_penalty=-0.5",
        "+env@environments.second=bandit",
        "~environments.bandit",
        "++trainer.steps=4",
        "tracking.backends=[wandb,tensorboard]",
        "tracking.project='-x y'",
    )
    config = training.calls[0].config
    assert config.rollout.format_penalty == -0.5
    assert list(config.environments) == ["second"]
    assert config.trainer.steps == 4
    assert config.tracking.backends == ["wandb", "tensorboard"]
    assert config.tracking.project == "-x y"


def test_train_can_print_its_summary_as_json_and_nothing_else(run: Run, training: FakeTraining) -> None:
    code, out, _ = run("train", "bandit", "trainer.steps=2", "--json")
    assert code == 0
    assert json.loads(out) == {"folder": "runs/bandit", "steps": 2}
    assert training.calls[0].console.stderr


def test_help_of_train_lists_recipes_groups_and_every_key(run: Run) -> None:
    code, out, _ = run("train", "--help")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    for expected in (
        "bandit",
        "bandit_tiny",
        "algorithm=arpo|brpo|grpo|grpo_mean",
        "trainer.steps=16",
        "rollout.context.action_separator=||",
    ):
        assert expected in lines
    assert any("trajectories that share an initial state" in line for line in lines)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (("train", "bandti"), "there is no recipe 'bandti'"),
        (("train", "bandit", "trainer.stepz=3"), "did you mean 'trainer.steps'?"),
        (("train", "bandit", "rollout.group_size=1"), "rollout.group_size=1: must be at least 2"),
        (("train",), "RECIPE"),
        (("train", "bandit", "--resum"), "--resume"),
        (("trian", "bandit"), '"train"'),
        (("envs", "bandti"), "did you mean 'bandit'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_before_anything_starts(
    tokens: tuple[str, ...], expected: str, run: Run, training: FakeTraining
) -> None:
    code, out, err = run(*tokens)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert expected in err
    assert training.calls == []


def test_an_error_of_the_run_is_one_line_and_its_own_exit_code(run: Run, training: FakeTraining) -> None:
    training.error = ModelError("no weights:\n  nothing\n  there")
    assert run("train", "bandit") == (1, "", "error: no weights: nothing there\n")


def test_ctrl_c_is_one_line_and_exit_code_130(run: Run, training: FakeTraining) -> None:
    training.error = KeyboardInterrupt()
    assert run("train", "bandit") == (130, "", "error: interrupted; --resume goes on from the last checkpoint\n")


def test_a_missing_package_of_an_extra_is_one_line_with_the_install_command(run: Run, training: FakeTraining) -> None:
    training.error = ModuleNotFoundError("No module named 'peft'", name="peft.tuners")
    assert run("train", "bandit") == (1, "", "error: this needs the package peft: pip install 'ragen-rl[train]'\n")


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("No module named 'ragen.nope'", name="ragen.nope"), ZeroDivisionError("bug")]
)
def test_a_bug_keeps_its_traceback(error: Exception, training: FakeTraining) -> None:
    training.error = error
    with pytest.raises(type(error)):
        cli.main(["train", "bandit"])


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`ragen train --help | head` must not end in a traceback."""
    process = subprocess.Popen([sys.executable, "-m", "ragen", "envs", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert (process.returncode, err) == (1, b"")


def test_envs_lists_what_there_is(run: Run) -> None:
    code, out, _ = run("envs")
    assert code == 0
    assert "bandit" in out
    (entry,) = [entry for entry in json.loads(run("envs", "--json")[1]) if entry["name"] == "bandit"]
    assert {option["name"] for option in entry["options"]} >= {"names", "reversed"}


def test_envs_with_a_name_shows_its_options_and_an_episode(run: Run) -> None:
    code, out, _ = run("envs", "bandit")
    assert code == 0
    assert "reversed" in out
    assert "(reward" in out
    assert json.loads(run("envs", "bandit", "--json")[1])["name"] == "bandit"


def test_models_are_listed_without_a_download(run: Run) -> None:
    code, out, _ = run("models", "list")
    assert code == 0
    assert "smollm2-135m" in out
    entries = {entry["alias"]: entry for entry in json.loads(run("models", "list", "--json")[1])}
    assert entries["smollm2-135m"]["cached"] is False
    assert entries["smollm2-135m"]["path"] is None


def test_pulling_a_model_prints_its_folder_on_stdout_alone(run: Run) -> None:
    code, out, _ = run("models", "pull", "tiny")
    assert code == 0
    folder = Path(out.strip())
    assert (folder / "config.json").is_file()
    assert json.loads(run("models", "pull", "tiny", "--json")[1]) == {"model": "tiny", "path": str(folder)}
    assert {entry["alias"]: entry["path"] for entry in json.loads(run("models", "list", "--json")[1])}["tiny"] == str(folder)


def test_pulling_what_is_not_there_is_one_line(run: Run, tmp_path: Path) -> None:
    code, out, err = run("models", "pull", str(tmp_path / "nothing"))
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("error: model ")


def test_a_model_is_evaluated_and_the_result_is_kept(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("--env", "bandit", "--episodes", "4", "rollout.sampling.max_new_tokens=4")
    code, out, err = run("eval", "tiny", *few, "--option", "names=test", "--temperature", "0", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["model"], result["step"], result["num_episodes"], len(result["seeds"])) == ("tiny", 0, 4, 4)
    assert set(result["success"]) == {"mean", "low", "high"}
    assert result["settings"]["temperature"] == 0
    assert result["settings"]["environments"]["bandit"]["options"] == {"names": "test"}
    assert json.loads((tmp_path / "runs/tiny/eval/step-000000-eval.json").read_text()) == result
    code, out, _ = run("eval", "tiny", *few)
    assert code == 0
    assert "success" in out
    assert "runs/tiny/eval/step-000000-eval-2.json" in out


def test_eval_without_an_environment_is_refused_before_a_model_is_looked_for(run: Run) -> None:
    code, out, err = run("eval", "no/such/model")
    assert (code, out) == (2, "")
    assert err.startswith("error: --env is missing: no/such/model is no run folder and no checkpoint; ")
    assert err.count("\n") == 1
