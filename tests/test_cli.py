"""The command line: what a person types reaches the right part, and what goes wrong is one line and an exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ragen
from ragen import cli
from ragen.config.environments import tags
from ragen.config.schema import Config
from ragen.environments.benchmark import FrozenLakePlayer, Peer, measure
from ragen.environments.checker.run import CHECKS
from ragen.errors import ModelError
from ragen.rollout.recorder import read_rollout

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
    assert commands >= {"train", "eval", "play", "models", "envs", "bench"}


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
        "trainer.steps=16",
        "rollout.context.action_separator=||",
    ):
        assert expected in lines
    assert any("trajectories that share an initial state" in line for line in lines)
    presets = "arpo|brpo|dapo|dr_grpo|gigpo|grpo|grpo_mean|gspo|ppo|reinforce_pp|rloo|starpo|starpo_grpo|starpo_s"
    assert f"algorithm={presets}" in "".join(lines)  # which a narrow terminal breaks


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
        (("envs", "check", "bandti"), "did you mean 'bandit'?"),
        (("envs", "check", "bandit", "--option", "revresed=true"), "did you mean 'reversed'?"),
        (("envs", "check", "bandit", "--seeds", "0"), "seeds=0: must be at least 1"),
        (("envs", "check"), "NAME"),
        (("bench", "env", "bandti"), "did you mean 'bandit'?"),
        (("play", "bandti"), "did you mean 'bandit'?"),
        (("play", "bandit", "--keys", "--oracle"), "--keys and --oracle: give one of them"),
        (("play", "bandit", "--seed=-1"), "--seed=-1: must be at least 0"),
        (("play", "bandit", "rollout.context.thnk=false"), "did you mean 'rollout.context.think'?"),
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


@pytest.mark.parametrize(("module", "package", "extra"), [("peft.tuners", "peft", "train"), ("readchar", "readchar", "play")])
def test_a_missing_package_of_an_extra_is_one_line_with_the_install_command(
    module: str, package: str, extra: str, run: Run, training: FakeTraining
) -> None:
    training.error = ModuleNotFoundError(f"No module named '{module}'", name=module)
    assert run("train", "bandit") == (1, "", f"error: this needs the package {package}: pip install 'ragen-rl[{extra}]'\n")


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


def test_envs_lists_the_tags_with_their_first_comment(run: Run) -> None:
    out = " ".join(run("envs")[1].split())
    for tag, comment in tags().items():
        assert f"{tag} {comment}" in out


def test_envs_with_a_tag_shows_its_settings(run: Run) -> None:
    code, out, _ = run("envs", "bandit")
    assert code == 0
    assert "max_turns=1, max_actions=1, max_actions_per_turn=1" in out
    shown = json.loads(run("envs", "bandit", "--json")[1])
    assert shown["tag"] == "bandit"
    assert shown["settings"]["max_turns"] == 1


def test_envs_takes_a_class_of_one_s_own(run: Run) -> None:
    code, out, _ = run("envs", "tests.support.corridor:Corridor")
    assert code == 0
    assert "P _ _ _ G" in out
    assert "tag" not in json.loads(run("envs", "tests.support.corridor:Corridor", "--json")[1])


def test_a_class_in_the_working_folder_is_found(tmp_path: Path) -> None:
    """The installed command does not have the folder on its path by itself, unlike `python -m`."""
    (tmp_path / "my_doors.py").write_text("from tests.support.corridor import Corridor as Doors\n", encoding="utf-8")
    code = "import sys; sys.path.remove(''); from ragen.cli import main; main(['envs', 'my_doors:Doors', '--json'])"
    surroundings = {**os.environ, "PYTHONPATH": str(Path(ragen.__file__).parent.parent)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=surroundings, check=False
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["name"] == "my_doors:Doors"


def test_a_check_is_a_line_a_promise_and_exit_code_0_if_all_are_kept(run: Run) -> None:
    code, out, _ = run("envs", "check", "bandit", "--seeds", "5", "-o", "names=test")
    assert code == 0
    *lines, _, last = out.splitlines()
    assert [line[:19].strip() for line in lines] == list(CHECKS)
    assert {line.split(" s  ")[0][19:].split()[0] for line in lines} <= {"passed", "warned", "skipped"}
    assert last.startswith("bandit: ")


def test_a_broken_promise_is_exit_code_1(run: Run) -> None:
    name = "tests.support.faulty:Unseeded"
    code, out, err = run("envs", "check", name, "--seeds", "2")
    assert (code, err) == (1, "")
    assert "determinism        failed" in out
    code, out, _ = run("envs", "check", name, "--seeds", "2", "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["name"], report["num_seeds"]) == (1, False, name, 2)
    assert [each["check"] for each in report["findings"] if each["outcome"] == "failed"] == ["determinism"]


def test_play_reads_piped_answers_and_says_how_it_ended(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Right || Right\nRight || Right\n"))
    path = tmp_path / "walk.parquet"
    code, out, err = run("play", "tests.support.corridor:Corridor", "--seed", "7", "-o", "start=0", "--save", str(path))
    assert (code, err) == (0, "")
    assert "P _ _ _ G" in out
    assert f"saved as {path}" in out
    assert "end: solved, success: yes, return: 0.7" in out
    assert "--seed 7 begins like this again" in out
    (recorded,) = read_rollout(path)
    assert recorded.trajectory.key.task_seed == 7


def test_play_shows_the_oracle_and_changes_settings(run: Run) -> None:
    code, out, _ = run("play", "bandit", "--oracle", "--seed", "3", "rollout.context.think=false")
    assert code == 0
    assert "success: yes" in out
    assert "<think>" not in out


def test_play_begins_elsewhere_each_time_unless_told(run: Run) -> None:
    outs = [run("play", "bandit", "--random")[1] for _ in range(2)]
    seeds = [out.split("--seed ")[1].split()[0] for out in outs]
    assert seeds[0] != seeds[1]  # one chance in a million that they are equal


def test_an_environment_that_breaks_while_played_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Right\n"))
    code, _, err = run("play", "tests.support.corridor:Corridor", "--option", "raise_at_step=1")
    assert code == 1
    assert err.startswith("error: environment 'Corridor'")
    assert err.count("\n") == 1


def test_the_benchmark_of_environments_prints_figures(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ragen.environments.benchmark.PEERS", (Peer(name="lake", game="bandit", package="numpy", make=FrozenLakePlayer),)
    )
    monkeypatch.setattr("ragen.environments.benchmark.measure", partial(measure, seconds=0.01, repeats=1))
    code, out, _ = run("bench", "env", "bandit", "tests.support.corridor:Corridor", "--json")
    assert code == 0
    figures = json.loads(out)
    ours, corridor, lake = figures["environments"]
    assert [row["name"] for row in (ours, corridor, lake)] == ["bandit", "tests.support.corridor:Corridor", "lake"]
    assert min(row["speed"]["steps_per_s"] for row in (ours, corridor, lake)) > 0
    assert figures["manager"]["num_live"] == 1000
    code, out, _ = run("bench", "env", "bandit")
    assert code == 0
    assert "lake: " in " ".join(out.split())
    assert "the state manager adds" in out


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
    assert json.loads((tmp_path / "runs/tiny/eval/step-000000-greedy.json").read_text()) == result
    code, out, _ = run("eval", "tiny", *few)
    assert code == 0
    assert "success" in out
    assert "runs/tiny/eval/step-000000-eval.json" in out


def test_eval_without_an_environment_is_refused_before_a_model_is_looked_for(run: Run) -> None:
    code, out, err = run("eval", "no/such/model")
    assert (code, out) == (2, "")
    assert err.startswith("error: --env is missing: no/such/model is no run folder and no checkpoint; ")
    assert err.count("\n") == 1
