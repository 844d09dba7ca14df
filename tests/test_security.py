"""What comes from outside stays data: no text is run, no pickle opened, no key written down, no path leads out of a run."""

from __future__ import annotations

import ast
import functools
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from ragen.config.load import load
from ragen.errors import ConfigError, ModelError
from ragen.models.aliases import PICKLES
from ragen.models.config import ModelConfig
from ragen.models.policy import load_policy
from ragen.training.tracker_backends import BACKENDS, RunInfo
from tests.support.models import tiny_llama
from tests.support.runs import corridor_config, run, small_config

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "ragen").rglob("*.py"))
CANARY = "canary-4f1c9b"

# -- nothing is run ----------------------------------------------------------------------------------------------------------

# What would run text, or what a file or a peer says, in this process; and where it may stand, with the reason.
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "pickle.loads",
    "pickle.load",
    "marshal.loads",
    "marshal.load",
    "shelve.open",
    "dill.loads",
    "torch.load",
    "joblib.load",
    "yaml.load",
    "yaml.unsafe_load",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "runpy.run_path",
}
ALLOWED = {
    # a copy of the environment that is being checked, made a line before by the same process
    ("ragen/environments/checker/lifecycle.py", "pickle.loads"),
}


def called(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Dotted names of what is called: `eval`, `pickle.loads`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if isinstance(node.func, ast.Name | ast.Attribute):
                yield name, node


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def suspects(module: ast.Module) -> list[str]:
    """Calls that run text or open pickles, and processes started through a shell."""
    found = []
    for name, call in called(module):
        shell = any(
            k.arg == "shell" and not (isinstance(k.value, ast.Constant) and k.value.value is False) for k in call.keywords
        )
        if name in FORBIDDEN_CALLS or shell:
            found.append(f"{name}(shell=...)" if shell else name)
    return found


def test_no_module_runs_text_or_opens_a_pickle() -> None:
    found = {(str(path.relative_to(ROOT)), each) for path in SOURCES for each in suspects(tree(path))}
    assert found == ALLOWED


def test_the_scan_would_find_them() -> None:
    source = (
        'import pickle, subprocess\neval("1")\npickle.loads(x)\nsubprocess.run("ls", shell=True)\nmodel.eval()\nre.compile("x")'
    )
    assert sorted(suspects(ast.parse(source))) == ["eval", "pickle.loads", "subprocess.run(shell=...)"]


def test_code_of_a_model_s_author_is_never_asked_for() -> None:
    """Whatever takes trust_remote_code is given False, and nothing else."""
    given = [
        ast.unparse(keyword.value)
        for path in SOURCES
        for _, call in called(tree(path))
        for keyword in call.keywords
        if keyword.arg == "trust_remote_code"
    ]
    assert given
    assert set(given) == {"False"}


def test_every_model_is_loaded_without_code_and_without_pickles() -> None:
    """The one other call converts a GGUF file, which is neither."""
    given = [
        {k.arg: ast.unparse(k.value) for k in call.keywords}
        for path in SOURCES
        if path.name != "convert.py"
        for name, call in called(tree(path))
        if name == "AutoModelForCausalLM.from_pretrained"
    ]
    assert [(each["trust_remote_code"], each["use_safetensors"]) for each in given] == [("False", "True")] * len(given) != []


def test_a_model_folder_with_code_of_its_own_is_refused_and_the_code_not_run(tmp_path: Path) -> None:
    folder, traces = Path(shutil.copytree(tiny_llama(), tmp_path / "model")), tmp_path / "traces"
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "of_its_author",
        "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(traces)!r}, 'w')")
    with pytest.raises(ModelError) as refused:
        load_policy(ModelConfig(name=str(folder)))
    assert "\n" not in str(refused.value)
    assert not traces.exists()


# -- clocks ------------------------------------------------------------------------------------------------------------------

# The time of day in a log, and a server that names a date in Retry-After; never how long something took.
TIME_OF_DAY = {"ragen/training/display.py", "ragen/engines/server_engine.py"}


def test_no_wait_depends_on_the_time_of_day() -> None:
    """A clock that jumps makes nothing late and nothing early: every duration is taken from a clock that only goes forward."""
    clocks = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now", "time.localtime"}
    found = {str(path.relative_to(ROOT)) for path in SOURCES for name, _ in called(tree(path)) if name in clocks}
    assert found == TIME_OF_DAY


# -- pickles -----------------------------------------------------------------------------------------------------------------


class Trap:
    """A pickle that leaves a trace when it is opened."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (str(self.trace), 0o700)


def trap(path: Path) -> Path:
    """A pickle at `path`; returns what will be there once somebody has opened it."""
    trace = path.with_name("opened")
    path.write_bytes(pickle.dumps(Trap(trace)))
    return trace


def test_the_trap_does_snap(tmp_path: Path) -> None:
    trace = trap(tmp_path / "pytorch_model.bin")
    pickle.loads((tmp_path / "pytorch_model.bin").read_bytes())
    assert trace.exists()


def test_a_model_that_is_a_pickle_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_llama(), tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")))
    trace = trap(folder / "pytorch_model.bin")
    with pytest.raises(
        ModelError, match=r"its weights are a pickle \(pytorch_model\.bin\).*never loaded; save them as model\.safe"
    ):
        load_policy(ModelConfig(name=str(folder)))
    assert not trace.exists()


def test_a_pickle_beside_the_weights_is_not_opened(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_llama(), tmp_path / "model"))
    traces = [trap(folder / f"pytorch_model{pattern[1:]}") for pattern in PICKLES]
    load_policy(ModelConfig(name=str(folder)))
    assert not any(trace.exists() for trace in traces)


def test_a_checkpoint_that_is_a_pickle_is_refused_in_one_line(tmp_path: Path) -> None:
    """Adapters, for which peft would fall back on adapter_model.bin; and full weights."""
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_llama()), LoraConfig(target_modules=["q_proj"]))
    adapted.save_pretrained(tmp_path / "lora")
    (tmp_path / "lora" / "adapter_model.safetensors").unlink()
    full = Path(shutil.copytree(tiny_llama(), tmp_path / "full", ignore=shutil.ignore_patterns("*.safetensors")))
    for folder, name, tuning in ((tmp_path / "lora", "adapter_model.bin", "lora"), (full, "pytorch_model.bin", "full")):
        trace = trap(folder / name)
        with pytest.raises(ModelError, match=rf"its weights are a pickle \({name}\)"):
            load_policy(ModelConfig(name=str(tiny_llama()), tuning=tuning), checkpoint=folder)
        assert not trace.exists()


@pytest.mark.parametrize("part", ["weights.bin", "../model.safetensors", "/etc/model.safetensors"])
def test_an_index_leads_to_safetensors_beside_it_alone(tmp_path: Path, part: str) -> None:
    folder = Path(shutil.copytree(tiny_llama(), tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": part}}))
    with pytest.raises(ModelError, match="every part must be a safetensors file beside it"):
        load_policy(ModelConfig(name=str(folder)))


def test_what_a_run_saves_holds_no_pickle(tmp_path: Path) -> None:
    folder = run(small_config(tmp_path, "algorithm=ppo", "trainer.steps=1"))[0].folder
    saved = [path for path in (folder / "checkpoints").rglob("*") if path.is_file()]
    assert saved
    assert {path.suffix for path in saved} <= {".safetensors", ".json", ".jinja", ".yaml"}


# -- paths -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../x", "..", ".", "/tmp/x", "a/b", "a\\b", "", "-x", "x\n", "~", "x\0y"])
def test_the_name_of_a_run_is_no_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^name=.*: names the run folder, so letters, digits"):
        load("bandit_tiny", [f"name={json.dumps(name)}", f"output_dir={tmp_path}"])


def test_a_run_writes_into_its_folder_alone(tmp_path: Path) -> None:
    """With tags, suites and trackers whose names would lead elsewhere if they were taken for paths."""
    config = small_config(
        tmp_path / "runs", "tracking.backends=[tensorboard]", "trainer.steps=1", "tracking.project=../../elsewhere"
    )
    run(config)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["run"]


# -- keys and passwords ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "override",
    [
        f"+environments.bandit.options.url=ws://user:{CANARY}@127.0.0.1:8000",
        f"+environments.bandit.options.api_key={CANARY}",
        f"tracking.project=mine-{CANARY}",
        "tracking.project=${oc.env:HF_TOKEN}",
    ],
)
def test_a_setting_that_holds_a_secret_is_refused_without_showing_it(override: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    with pytest.raises(ConfigError) as refused:
        load("bandit_tiny", [override])
    key = override.lstrip("+").partition("=")[0]
    assert str(refused.value).startswith(f"{key}: holds a key or password")
    assert CANARY not in str(refused.value)


class Recorder:
    """A tracker that keeps what it is told."""

    told: list[object] = []  # noqa: RUF012 - made anew by the test

    def __init__(self, project: str) -> None:
        self.told.append(project)

    def start(self, run: RunInfo) -> None:
        self.told.append(run)

    def log(self, metrics: object, step: int) -> None:
        self.told.append(metrics)

    def show(self, *what: object) -> None:
        self.told.append(what)

    def finish(self) -> None: ...


def test_no_key_reaches_files_screen_or_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canaries in every variable of a service, and an environment that fails with one of them in its message."""
    from tests.support.corridor import Broken, Corridor

    for name in ("WANDB_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MLFLOW_TRACKING_PASSWORD", "SERVER_TOKEN"):
        monkeypatch.setenv(name, f"{CANARY}-{name.lower()}")
    monkeypatch.setitem(BACKENDS, "wandb", Recorder)
    monkeypatch.setattr(Recorder, "told", [])
    honest, calls = Corridor._begin, []

    def begin(self: Corridor) -> str:
        calls.append(None)
        if len(calls) % 6 == 0:
            raise Broken(f"401 Unauthorized: {os.environ['SERVER_TOKEN']} at http://me:{CANARY}@server/ws")
        return honest(self)

    monkeypatch.setattr(Corridor, "_begin", begin)
    config = corridor_config(tmp_path, "tracking.backends=[wandb,tensorboard]", "rollout.max_failed_frac=1.0")
    summary, seen = run(config)
    folder = summary.folder
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    texts = [str(row) for row in _rollout_texts(folder)]
    assert any("401 Unauthorized: *** at http://me:***@server/ws" in text for text in texts)
    assert "401 Unauthorized: ***" in (folder / "log.txt").read_text()
    for text in (*texts, written.decode(errors="replace"), seen, str(Recorder.told)):
        assert CANARY not in text


def _rollout_texts(folder: Path) -> Iterator[object]:
    """Parquet is compressed, so bytes alone would hide a key."""
    import pyarrow.parquet as pq

    for path in folder.rglob("*.parquet"):
        yield from pq.read_table(path).to_pylist()


# -- servers -----------------------------------------------------------------------------------------------------------------


def test_nothing_listens_to_the_whole_network() -> None:
    """No address of all interfaces stands anywhere in the package."""
    for path in SOURCES:
        constants = {
            node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert constants.isdisjoint({"0.0.0.0", "::", "[::]"}), path


def test_tensors_are_equal_to_what_was_saved(tmp_path: Path) -> None:
    """Refusing pickles costs nothing: what `save` writes is what `load_policy` reads."""
    policy = load_policy(ModelConfig(name=str(tiny_llama()), tuning="full"))
    policy.save(tmp_path / "saved")
    again = load_policy(ModelConfig(name=str(tiny_llama()), tuning="full"), checkpoint=tmp_path / "saved")
    assert all(torch.equal(a, again.trainable()[name]) for name, a in policy.trainable().items())
