"""Validation in training: when it is played, on what, what it leaves, and that it never meets a seed of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.config.suites import load_suite
from ragen.engines.config import EngineConfig
from ragen.errors import TrainingError
from ragen.evaluation.apart import Question
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.measurements import measurements
from ragen.evaluation.results import VALIDATION, EvaluationResult, read_results
from ragen.evaluation.validation import Validation
from ragen.records import EpisodeKey, Split, Trajectory
from ragen.rollout.state_manager import EnvironmentConfig, EnvStateManager, episode_seeds
from ragen.training.rollout_phase import RolloutPhase
from ragen.training.trackers import Trackers
from ragen.training.update import Learner
from tests.support.runs import assert_same_run, interrupt, metrics_of, on_call, rollouts_of, run, small_config

SUITE = """
environments: {bandit: bandit_paper, test: bandit_test}
settings: {greedy: {mode: greedy, num_episodes: 2}, sampled: {mode: sampled, num_episodes: 1, samples_per_seed: 3}}
"""


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "pair.yaml"
    path.write_text(SUITE, encoding="utf-8")
    return str(path)


def test_the_own_tags_come_first_and_every_setting_has_a_result_of_its_own(suite: str) -> None:
    own = {"walk": EnvironmentConfig(name="bandit")}
    planned = measurements(own, EvaluationConfig(num_episodes=4, samples_per_seed=2), [load_suite(suite)])
    assert [(each.kind, list(each.environments), each.num_episodes) for each in planned] == [
        (VALIDATION, ["walk"], 8),
        ("pair-greedy", ["bandit", "test"], 4),
        ("pair-sampled", ["bandit", "test"], 6),
    ]


def test_a_run_is_measured_at_the_start_every_n_steps_and_at_the_end_on_its_tags_and_suites(tmp_path: Path, suite: str) -> None:
    """3 steps, every 2: after 0, 2 and 3. Three results each."""
    shown: list[tuple[str, int, list[int]]] = []
    seen = _spy(shown)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trackers, "show", seen)
        config = small_config(
            tmp_path, "trainer.steps=3", "evaluation.every=2", f"evaluation.suites=[{suite}]", "evaluation.show_episodes=1"
        )
        summary, said = run(config)
    results = read_results(summary.folder / "eval")
    kinds = [VALIDATION, "pair-greedy", "pair-sampled"]
    assert [(result.step, result.kind) for result in results] == [(step, kind) for step in (0, 2, 3) for kind in kinds]
    assert [result.num_episodes for result in results[:3]] == [5, 4, 6]
    rows = {row["step"]: row for row in metrics_of(summary.folder)}
    assert [step for step, row in rows.items() if "eval/bandit/success" in row] == [0, 2, 3]
    assert [step for step, row in rows.items() if "eval/pair/sampled/test/success" in row] == [0, 2, 3]
    assert {name for name, _, _ in shown} == set(kinds)
    assert [len(seeds) for _, _, seeds in shown[:3]] == [1, 2, 2]  # one of each environment
    assert shown[0][2] == shown[3][2] == shown[6][2]  # the same episode every time
    assert "held-out success after 2 steps (pair, greedy)" in said
    assert summary.after.kind == VALIDATION
    assert_apart(summary.folder, results)


def _spy(shown: list[tuple[str, int, list[int]]]) -> Callable[..., None]:
    def show(self: Trackers, name: str, episodes: list[Trajectory], step: int) -> None:
        shown.append((name, step, [episode.key.task_seed for episode in episodes]))

    return show


def assert_apart(folder: Path, results: list[EvaluationResult]) -> None:
    """bug-log row 91, over everything that the run has recorded: task and dynamics seeds, own tags and suites."""
    trained = [row.trajectory.key for rows in rollouts_of(folder).values() for row in rows]
    held_out = [trajectory.key for result in results for trajectory in result.trajectories]
    assert ({key.split for key in trained}, {key.split for key in held_out}) == ({Split.TRAIN}, {Split.VALIDATION})
    assert len(held_out) == 3 * (5 + 4 + 6)
    assert seeds_of(trained).isdisjoint(seeds_of(held_out))


def seeds_of(keys: list[EpisodeKey]) -> set[int]:
    return {seed for key in keys for seed in (key.task_seed, key.dynamics_seed)}


@settings(max_examples=50)
@given(*[st.integers(0, 2**32)] * 2, *[st.integers(0, 2**20)] * 3, st.integers(0, 9))
def test_a_held_out_seed_is_odd_and_one_of_training_even_whatever_they_are_drawn_for(
    run_seed: int, other: int, step: int, group: int, member: int, attempt: int
) -> None:
    """bug-log row 91: so the two cannot meet, in any run, step or sample; and held-out seeds know neither run nor step."""
    place = {"step": step, "group": group, "member": member, "attempt": attempt}
    assert all(seed % 2 == 0 for seed in episode_seeds(run_seed=run_seed, split=Split.TRAIN, **place))
    held_out = episode_seeds(run_seed=run_seed, split=Split.VALIDATION, **place)
    assert all(seed % 2 == 1 for seed in held_out)
    assert held_out == episode_seeds(run_seed=other, split=Split.VALIDATION, **(place | {"step": 0}))


def test_samples_of_a_seed_share_its_task_and_nothing_else() -> None:
    with EnvStateManager(
        {"walk": EnvironmentConfig(name="bandit", num_groups=3)}, group_size=4, run_seed=0, split=Split.VALIDATION
    ) as manager:
        keys = [[handle.key for handle in members] for members in manager.open(7)]
    assert [len({key.task_seed for key in members}) for members in keys] == [1, 1, 1]
    assert len({key.dynamics_seed for members in keys for key in members}) == 12
    assert len({members[0].task_seed for members in keys}) == 3


STOPS: dict[str, tuple[Any, str, int]] = {
    "in the rollout beside it": (RolloutPhase, "play", 3),
    "after it, before its step is logged": (Trackers, "log", 3),  # the start, step 1, step 2
    "in the update behind it": (Learner, "update", 3),
}


@dataclass(frozen=True)
class Later:
    """Measures in this process once it is asked for: until then the policy has not changed."""

    validation: Validation
    done: int

    def finish(self) -> dict[str, float]:
        return self.validation(self.done)

    def cancel(self) -> None: ...


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_stopped_while_a_step_is_measured_beside_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """No row is missing, none is there twice; what was measured between the steps is measured beside. The process is apart."""
    settings = ("trainer.steps=3", "evaluation.every=1", "evaluation.num_episodes=2")
    run(small_config(tmp_path, *settings, "name=between"))
    monkeypatch.setattr(Validation, "beside", lambda self, done, checkpoint: Later(self, done))
    config = small_config(tmp_path, *settings, "name=beside", "evaluation.beside=true")
    with monkeypatch.context() as patch:
        on_call(patch, *STOPS[stop], interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    run(config, resume=True)
    assert_same_run(tmp_path / "between", tmp_path / "beside", 3)
    assert [row["step"] for row in metrics_of(tmp_path / "beside")] == [0, 1, 2, 3]


def test_what_is_measured_beside_has_the_whole_setting_of_the_running_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them decides who shares a batch, and so about last bits."""
    asked: list[EngineConfig] = []

    def ask(question: Question) -> None:
        asked.append(question.engine)
        raise TrainingError("seen enough")

    monkeypatch.setattr("ragen.evaluation.validation.Apart", ask)
    limits = EngineConfig(max_rows=5, max_tokens=777, max_idle_tokens=99)
    settings = [f"engine.{name}={value}" for name, value in asdict(limits).items()]
    config = small_config(tmp_path, "evaluation.every=1", "trainer.save_every=1", "evaluation.beside=true", *settings)
    with pytest.raises(TrainingError, match="seen enough"):
        run(config)
    assert asked == [limits]
