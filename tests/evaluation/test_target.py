"""One command evaluates a run, one of its checkpoints, or a model by name (bug-log row 80)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from ragen.engines.server_config import ServerConfig
from ragen.errors import ConfigError, ModelError, StorageError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.results import EvaluationResult, read_results, write_result
from ragen.evaluation.target import Target, check_effect, evaluate_target, find_target, run_folder_of
from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.rollout.config import RolloutConfig, SamplingConfig
from ragen.rollout.state_manager import EnvironmentConfig
from ragen.training.checkpoint import save_checkpoint
from tests.support import corridor as _registered  # noqa: F401 - registers the environment
from tests.support.models import tiny_llama

OUT = Path("runs")
WALK = {"walk": EnvironmentConfig(name="corridor", max_turns=1)}


def model() -> ModelConfig:
    return ModelConfig(name=str(tiny_llama()), lora_rank=2)


def save(run: Path, step: int, policy: Policy) -> Path:
    return save_checkpoint(run / "checkpoints", step, write_model=policy.save, optimizer={}, state={}, keep=9)


def measured(target: Target) -> EvaluationResult:
    rollout = RolloutConfig(max_invalid_turns=1, sampling=SamplingConfig(max_new_tokens=4))
    return evaluate_target(target, WALK, EvaluationConfig(num_episodes=3), rollout)


def replies(result: EvaluationResult) -> list[list[int]]:
    return [trajectory.segments[0].ids[trajectory.segments[0].mask].tolist() for trajectory in result.trajectories]


def test_a_model_by_name_is_measured_untrained_and_its_results_lie_under_its_name() -> None:
    target = find_target("HuggingFaceTB/SmolLM2-135M-Instruct", ModelConfig(lora_rank=2), output_dir=OUT)
    assert target.model == ModelConfig(name="HuggingFaceTB/SmolLM2-135M-Instruct", lora_rank=2)
    assert (target.checkpoint, target.step) == (None, 0)
    assert target.results == OUT / "HuggingFaceTB-SmolLM2-135M-Instruct" / "eval"


def test_a_run_is_measured_at_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    """bug-log row 73: a checkpoint that was being written when the process died is passed over."""
    policy = load_policy(model())
    run = tmp_path / "bandit"
    save(run, 5, policy)
    newest = save(run, 10, policy)
    (save(run, 15, policy) / "manifest.json").unlink()
    target = find_target(str(run), model(), output_dir=OUT)
    assert (target.checkpoint, target.step, target.results) == (newest, 10, run / "eval")
    assert run_folder_of(str(run)) == run


def test_one_checkpoint_can_be_named(tmp_path: Path) -> None:
    policy = load_policy(model())
    run = tmp_path / "bandit"
    older = save(run, 5, policy)
    save(run, 10, policy)
    target = find_target(str(older), model(), output_dir=OUT)
    assert (target.checkpoint, target.step, target.results) == (older, 5, run / "eval")
    assert run_folder_of(str(older)) == run


def test_a_run_without_a_whole_checkpoint_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "bandit" / "checkpoints").mkdir(parents=True)
    with pytest.raises(StorageError, match="bandit: no whole checkpoint"):
        find_target(str(tmp_path / "bandit"), model(), output_dir=OUT)


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    folder = save(tmp_path / "bandit", 5, load_policy(model()))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(StorageError, match=r"step-000005.*adapter_model\.safetensors"):
        find_target(str(folder), model(), output_dir=OUT)


def test_a_model_that_does_not_exist_is_refused_before_anything_is_played() -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        measured(find_target("no-such-model", ModelConfig(), output_dir=OUT))


def test_what_is_measured_of_a_run_is_its_trained_weights(tmp_path: Path) -> None:
    """bug-log row 93: the episodes of the saved policy, not of the model it started from."""
    policy = load_policy(model())
    run = tmp_path / "bandit"
    save(run, 1, policy)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    save(run, 2, policy)
    untrained = measured(find_target(str(tiny_llama()), model(), output_dir=OUT))
    first = measured(find_target(str(run / "checkpoints" / "step-000001"), model(), output_dir=OUT))
    trained = measured(find_target(str(run), model(), output_dir=OUT))
    assert replies(first) == replies(untrained)
    assert replies(trained) != replies(untrained)
    assert replies(measured(find_target(str(run), model(), output_dir=OUT))) == replies(trained)
    assert (untrained.step, first.step, trained.step) == (0, 1, 2)


def test_a_measured_run_keeps_the_result_in_its_own_folder(tmp_path: Path) -> None:
    run = tmp_path / "bandit"
    save(run, 1, load_policy(model()))
    target = find_target(str(run), model(), output_dir=OUT)
    result = measured(target)
    assert write_result(target.results, result) == run / "eval" / "step-000001-eval.json"
    assert read_results(run / "eval") == [result]
    assert (result.num_episodes, result.kind) == (3, "eval")


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs, by names alone, in the folder that commands are typed in."""
    monkeypatch.chdir(tmp_path)
    for name in ("runs/s/checkpoints/step-000010", "runs/s/checkpoints/step-000005", "runs/s/eval", "runs/t/checkpoints"):
        Path(name).mkdir(parents=True)
    Path("runs/s/config.yaml").touch()


SAVED = r"runs/s/checkpoints holds step-000005, step-000010$"


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("runs/s/checkpoints/step-000099", f"no such checkpoint; {SAVED}"),
        ("runs/s/step-000010", f"no such checkpoint; {SAVED}"),
        ("runs/s/checkpoint/step-000010", f"no such checkpoint; {SAVED}"),
        ("runs/t/checkpoints/step-000001", "no such checkpoint; runs/t/checkpoints holds none$"),
        ("runs/s/checkpoints", "holds checkpoints, name one or the run's folder; there are step-000005, step-000010$"),
        ("runs/s/config.yaml", "is a file; name a run's folder, a checkpoint or a model$"),
        ("runs/nope", "no such run folder, checkpoint or model; runs holds s, t$"),
        ("./nope", r"no such run folder, checkpoint or model; \. holds runs$"),
    ],
)
def test_a_path_where_nothing_is_is_not_taken_for_a_model(typed: str, said: str) -> None:
    with pytest.raises(StorageError, match=f"^{re.escape(typed)}: {said}"):
        run_folder_of(typed)


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("typed", ["org/name", "smollm2-135m", "openai:org/deep/model", "scripted:runs/nope", "random"])
def test_what_may_be_something_else_than_a_path_is_looked_up_as_that(typed: str) -> None:
    assert run_folder_of(typed) is None


@pytest.mark.usefixtures("saved")
def test_many_names_are_not_all_told() -> None:
    for number in range(9):
        Path(f"runs/a{number}").mkdir()
    with pytest.raises(StorageError, match=r"runs holds a0, a1, a2, a3, a4, a5, a6, a7, \.\.\.$"):
        run_folder_of("runs/nope")


def test_where_results_go_cannot_be_said_for_a_run_and_a_name_never() -> None:
    """Both were taken and had no effect. What stands in the run's own settings is no word of the command line."""
    run = Target(model=ModelConfig(), checkpoint=Path("runs/s/checkpoints/step-000005"), step=5, results=Path("runs/s/eval"))
    check_effect(run, RolloutConfig(), ServerConfig())
    with pytest.raises(ConfigError, match=r"^output_dir=x: has no effect, results of a run lie in it, in runs/s/eval"):
        check_effect(run, RolloutConfig(), ServerConfig(), ["model.dtype=float32", "output_dir=x"])
    chance = find_target("random", ModelConfig(), output_dir=Path("x"))
    check_effect(chance, RolloutConfig(), ServerConfig(), ["output_dir=x"])
    with pytest.raises(ConfigError, match=r"^name=y: has no effect, results lie in the folder x/random/eval"):
        check_effect(chance, RolloutConfig(), ServerConfig(), ["output_dir=x", "name=y"])
