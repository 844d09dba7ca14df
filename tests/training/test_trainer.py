"""The loop by itself, on stand-ins for the parts; whole runs are in tests/test_run.py."""

from __future__ import annotations

import gc
import io
import itertools
import math
import resource
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

from ragen.algorithms.config import AlgorithmConfig
from ragen.credit.config import AdvantageConfig
from ragen.credit.filters import FilterConfig
from ragen.credit.rewards import RewardsConfig
from ragen.engines.failures import RowLimit
from ragen.errors import Stopped, TrainingError
from ragen.records import EndReason, FinishReason, Group, Trajectory
from ragen.rollout.config import RolloutConfig, SamplingConfig
from ragen.rollout.curriculum import CurriculumConfig
from ragen.rollout.recorder import read_rollout
from ragen.rollout.state_manager import EnvStateManager
from ragen.training import rollout_phase
from ragen.training import trainer as module
from ragen.training.checkpoint import save_checkpoint, saved_steps, size_of
from ragen.training.config import TrainerConfig
from ragen.training.display import Display
from ragen.training.rollout_phase import RolloutPhase
from ragen.training.signals import Abandoned
from ragen.training.trackers import RunInfo, Trackers, TrackingConfig, read_metrics
from ragen.training.trainer import Trainer, UnderWay
from ragen.training.update import UpdateResult
from tests.support.episodes import corridor, manager
from tests.support.learners import small_policy
from tests.support.rewards import answer
from tests.support.samples import make_group


class StandInEngine:
    """Counts how often its caches are dropped."""

    num_resets = 0

    def __init__(self) -> None:
        self.row_limit = RowLimit(8)

    def reset(self) -> None:
        self.num_resets += 1


class NoKl:
    in_reward = False


class StandInLearner:
    """Remembers what it was given; one culprit in the steps listed in `bad`."""

    kl = NoKl()

    def state_dict(self) -> dict[str, float]:
        return {}

    num_epochs = 2
    num_optimizer_steps = 5

    def __init__(self, bad: Sequence[int] = ()) -> None:
        self.policy = small_policy()
        self.bad = bad
        self.updates: list[tuple[int, int, list[float]]] = []

    def update(self, samples: Any, *, step: int, kl_groups: int, on_progress: Any) -> UpdateResult:
        self.updates.append((step, kl_groups, [float(s.advantages[-1]) for s in samples]))
        for _ in range(self.num_epochs):
            on_progress(len(samples))
        culprits = ["loss of somebody"] if step in self.bad else []
        return UpdateResult(metrics={"update/skipped": float(len(culprits))}, num_applied=1, culprits=culprits)

    def optimizer_state(self) -> dict[str, Any]:
        return {}


class Parts:
    """A trainer on stand-ins, and what it did: saves, evaluations and requests, in order."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        bad: Sequence[int] = (),
        rewards: RewardsConfig | None = None,
        filter: FilterConfig | None = None,
        environments: EnvStateManager | None = None,
        evaluate_every: int = 0,
        **config: Any,
    ) -> None:
        self.engine, self.learner = StandInEngine(), StandInLearner(bad)
        self.saved: list[int] = []
        self.evaluated: list[int] = []
        self.requests: list[Any] = []
        self.seen = io.StringIO()
        self.groups = [make_group(1.0, 0.0)]
        display = Display(Console(file=self.seen, width=140))
        trackers = Trackers(TrackingConfig(backends=[]), warn=print)
        trackers.start(RunInfo(folder=folder, name="run", config={}, resumed_step=None))
        monkeypatch.setattr(module, "save_checkpoint", lambda root, done, **rest: self.saved.append(done))
        monkeypatch.setattr(module, "size_of", lambda folder: 1000)
        monkeypatch.setattr(rollout_phase, "collect", self.collect)
        algorithm = AlgorithmConfig(advantage=AdvantageConfig(method="mean"), filter=filter or FilterConfig())
        rollouts = RolloutPhase(
            folder=folder,
            rollout=RolloutConfig(sampling=SamplingConfig(temperature=0.7, top_p=0.9, top_k=5, max_new_tokens=3)),
            rewards=rewards or RewardsConfig(),
            algorithm=algorithm,
            engine=cast(Any, self.engine),
            environments=environments or manager(corridor=corridor()),
            make_context=cast(Any, None),
            display=display,
        )
        self.trainer = Trainer(
            folder=folder,
            config=TrainerConfig(**config),
            algorithm=algorithm,
            rollouts=rollouts,
            critic=None,
            learner=cast(Any, self.learner),
            evaluate=self.evaluate,
            evaluate_every=evaluate_every,
            trackers=trackers,
            display=display,
        )

    async def collect(
        self, handles: Any, make_context: Any, engine: Any, request: Any, config: Any, show: Any, num_step: Any
    ) -> list[Group]:
        self.requests.append(request)
        return self.groups

    def evaluate(self, done: int) -> Mapping[str, float]:
        self.evaluated.append(done)
        return {"eval/corridor/success": done / 10}


def test_saving_and_evaluating_come_when_they_are_due_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 78: the last step always."""
    parts = Parts(tmp_path, monkeypatch, steps=7, save_every=3, evaluate_every=2)
    parts.trainer.run()
    assert (parts.saved, parts.evaluated) == ([3, 6, 7], [2, 4, 6, 7])
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row["step"] for row in rows if "time/checkpoint_s" in row] == parts.saved
    assert [row["step"] for row in rows if "eval/corridor/success" in row] == parts.evaluated
    assert parts.trainer.num_done == 7


def test_without_an_interval_evaluation_comes_at_the_end_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path, monkeypatch, steps=3, save_every=9, evaluate_every=0)
    parts.trainer.run()
    assert (parts.saved, parts.evaluated) == ([3], [3])


def test_the_caches_are_dropped_before_and_after_every_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a resumed run starts its rollout from what an unbroken one starts from (invariant I5), and the update has room."""
    parts = Parts(tmp_path, monkeypatch, steps=2)
    parts.trainer.run()
    assert parts.engine.num_resets == 4
    for request in parts.requests:
        assert (request.temperature, request.top_p, request.top_k, request.max_new_tokens) == (0.7, 0.9, 5, 3)  # row 48


def test_an_update_gets_the_step_and_what_credit_made_of_the_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path, monkeypatch, steps=2, kl_groups=3)
    parts.trainer.run()
    assert parts.learner.updates == [(0, 3, [0.5, -0.5]), (1, 3, [0.5, -0.5])]
    recorded = read_rollout(tmp_path / "rollouts" / "step-000002.parquet")
    assert [[a.tolist() for a in r.advantages if a is not None] for r in recorded] == [[[0.0, 0.5]], [[0.0, -0.5]]]


def test_a_run_goes_on_at_its_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path, monkeypatch, steps=4)
    parts.trainer.environments.load_state_dict({"next_step": 3, "run_seed": 0})
    parts.trainer.run()
    assert [step for step, _, _ in parts.learner.updates] == [3]
    parts.trainer.run()
    assert len(parts.learner.updates) == 1


@pytest.mark.parametrize(("bad", "done"), [([0, 1], None), ([0, 1, 3, 4], None), ([1, 2, 3], 4), ([0, 2, 3, 4], 5)])
def test_skipped_updates_stop_the_run_only_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: list[int], done: int | None
) -> None:
    """Bug-log row 64: counted, named, and what comes between is enough to go on."""
    parts = Parts(tmp_path, monkeypatch, bad=bad, steps=6, max_skipped_updates=3)
    if done is None:
        parts.trainer.run()
    else:
        with pytest.raises(TrainingError, match="3 steps in a row"):
            parts.trainer.run()
    assert [row["step"] for row in read_metrics(tmp_path)] == list(range(1, (done or 6) + 1))
    assert parts.seen.getvalue().count("nothing changed: not finite: loss of somebody") == len(bad)


def test_a_rollout_of_failures_alone_is_recorded_and_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path, monkeypatch)
    parts.groups = [make_group(failed=[EndReason.TIMEOUT])]
    with pytest.raises(TrainingError, match=r"step 1: nothing to train on: all 1 trajectories failed, the first: "):
        parts.trainer.run()
    assert len(read_rollout(tmp_path / "rollouts" / "step-000001.parquet")) == 1
    assert parts.learner.updates == []


def test_a_rollout_without_a_sampled_token_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log rows 14 and 97: the real cause."""
    parts = Parts(tmp_path, monkeypatch)
    (trajectory,) = make_group(0.0).trajectories
    (segment,) = trajectory.segments
    silent = replace(trajectory, segments=(replace(segment, mask=np.zeros_like(segment.mask)),))
    parts.groups = [Group(trajectories=(silent,))]
    with pytest.raises(TrainingError, match="no trajectory holds a sampled token"):
        parts.trainer.run()


def test_a_return_that_is_no_number_stops_the_run_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 19."""
    parts = Parts(tmp_path, monkeypatch)
    parts.groups = [make_group(1.0, math.nan)]
    with pytest.raises(TrainingError, match="return nan of corridor group 0 member 1"):
        parts.trainer.run()
    assert parts.learner.updates == []


def test_rewards_of_one_s_own_reach_the_update_the_log_and_the_rollout_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment pays (1, 0) and the function (0, 1) with weight 3 in its place: the advantages turn around."""
    answer(0.0, 1.0)
    rewards = RewardsConfig(functions={"mine": "tests.support.rewards:planted"}, weights={"mine": 3.0, "environment": 0.0})
    parts = Parts(tmp_path, monkeypatch, rewards=rewards, steps=1)
    parts.trainer.run()
    (row,) = read_metrics(tmp_path)
    assert (row["rollout/reward"], row["rollout/part/mine"], row["rollout/part/environment"]) == (0.5, 1.5, 0.0)
    recorded = read_rollout(tmp_path / "rollouts" / "step-000001.parquet")
    assert [[float(a[-1]) for a in each.advantages if a is not None] for each in recorded] == [[-1.5], [1.5]]
    assert [each.trajectory.turns[0].parts["mine"] for each in recorded] == [0.0, 3.0]


def test_a_step_about_which_everything_abstains_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(None, None)
    rewards = RewardsConfig(functions={"mine": "tests.support.rewards:planted"}, weights={"environment": 0.0})
    parts = Parts(tmp_path, monkeypatch, rewards=rewards, steps=1)
    with pytest.raises(TrainingError, match="nothing to train on: every reward function abstained about every trajectory"):
        parts.trainer.run()


class Played:
    """Plays handles to the returns given by group number, on the step's own keys; (0, 0) where none is given."""

    def __init__(self, parts: Parts, monkeypatch: pytest.MonkeyPatch, returns: Mapping[int, Sequence[float]]) -> None:
        self.rounds: list[tuple[list[int], Any]] = []
        self.returns = returns
        monkeypatch.setattr(rollout_phase, "collect", self.collect)

    async def collect(
        self, handles: Any, make_context: Any, engine: Any, request: Any, config: Any, show: Any, num_step: Any
    ) -> Any:
        self.rounds.append(([members[0].key.group for members in handles], num_step))
        groups = []
        for members in handles:
            returns = self.returns.get(members[0].key.group, (0.0, 0.0))
            made = make_group(*returns, group=members[0].key.group).trajectories
            groups.append(Group(trajectories=tuple(replace(t, key=h.key) for t, h in zip(made, members, strict=True))))
        return groups


DYNAMIC = FilterConfig(drop_zero_spread=True, refill_frac=1.0)


def test_the_filter_decides_what_is_trained_on_and_everything_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes = manager(group_size=2, corridor=corridor(num_groups=3))
    filter = FilterConfig(rule="top_k", value=1, loss_scale="linear")
    parts = Parts(tmp_path, monkeypatch, filter=filter, environments=episodes, steps=1)
    Played(parts, monkeypatch, {0: (0.0, 1.0), 1: (0.0, 4.0), 2: (1.0, 1.0)})
    parts.trainer.run()
    assert parts.learner.updates == [(0, 1, [pytest.approx(-2 / 3), pytest.approx(2 / 3)])]  # of 2, one group of three
    recorded = read_rollout(tmp_path / "rollouts" / "step-000001.parquet")
    assert [row.trajectory.key.group for row in recorded] == [0, 0, 1, 1, 2, 2]
    (row,) = read_metrics(tmp_path)
    assert (row["filter/kept_groups"], row["filter/dropped_trajectories"], row["filter/extra_groups"]) == (1, 4, 0)
    assert row["rollout/return"] == pytest.approx(7 / 6)  # before any filter


def test_a_step_is_refilled_until_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups 1 and 2 of three teach nothing; 3 does, 4 does not, 5 does: two rounds, then nothing is missing."""
    episodes = manager(group_size=2, corridor=corridor(num_groups=3))
    parts = Parts(tmp_path, monkeypatch, filter=DYNAMIC, environments=episodes, steps=1)
    played = Played(parts, monkeypatch, {0: (0.0, 1.0), 3: (0.0, 2.0), 5: (0.0, 3.0)})
    parts.trainer.run()
    assert played.rounds == [([0, 1, 2], None), ([3, 4], 10), ([5], 12)]
    assert parts.learner.updates == [(0, 1, [-0.5, 0.5, -1.0, 1.0, -1.5, 1.5])]
    assert parts.engine.num_resets == 2  # not between the rounds, which go on from what is cached
    (row,) = read_metrics(tmp_path)
    assert (row["filter/extra_groups"], row["filter/extra_rounds"], row["filter/missing_groups"]) == (3, 2, 0)


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [
        ({"refill_frac": 0.5}, [[0, 1, 2, 3], [4, 5]]),
        ({"refill_frac": 9.0, "refill_rounds": 2}, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]),
        ({}, [[0, 1, 2, 3]]),
    ],
)
def test_refill_ends_with_its_budget_and_the_step_without_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], rounds: list[list[int]]
) -> None:
    """Nothing ever teaches anything: no error and no lost step; it is shown, saved and evaluated when that is due."""
    episodes = manager(group_size=2, corridor=corridor(num_groups=4))
    filter = FilterConfig(drop_zero_spread=True, **settings)
    parts = Parts(tmp_path, monkeypatch, filter=filter, environments=episodes, steps=3, save_every=2, evaluate_every=1)
    played = Played(parts, monkeypatch, {})
    parts.trainer.run()
    assert [numbers for numbers, _ in played.rounds] == rounds * 3
    assert parts.learner.updates == []
    assert (parts.saved, parts.evaluated) == ([2, 3], [1, 2, 3])
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["filter/skipped_update"] == 1 and "update/tokens" not in row for row in rows)
    assert f"step 2: no update: the filter kept none of {sum(map(len, rounds))} groups" in parts.seen.getvalue()


def test_a_step_without_update_does_not_hide_updates_that_are_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 64: in a row means with no finite update between."""
    episodes = manager(group_size=2, corridor=corridor(num_groups=1))
    config = {"steps": 9, "max_skipped_updates": 2}
    parts = Parts(tmp_path, monkeypatch, bad=[0, 2], filter=DYNAMIC, environments=episodes, **config)
    played = Played(parts, monkeypatch, {0: (0.0, 1.0)})
    teaching = played.returns

    def only_even(step: int) -> Any:
        played.returns = {} if step % 2 else teaching
        return honest(step)

    honest = parts.trainer.rollouts.play
    monkeypatch.setattr(parts.trainer.rollouts, "play", only_even)
    with pytest.raises(TrainingError, match="2 steps in a row"):
        parts.trainer.run()
    assert [step for step, _, _ in parts.learner.updates] == [0, 2]


def test_a_rollout_of_failures_alone_is_no_empty_result_of_the_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path, monkeypatch, filter=FilterConfig(drop_zero_spread=True))
    parts.groups = [make_group(failed=[EndReason.TIMEOUT])]
    with pytest.raises(TrainingError, match=r"step 1: nothing to train on: all 1 trajectories failed, the first: "):
        parts.trainer.run()


def test_a_checkpoint_holds_what_the_curriculum_has_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing succeeds in either environment: (0 + 1) / (4 + 2) for each."""
    tags = {"a": corridor(num_groups=2), "b": corridor(num_groups=2)}
    episodes = manager(group_size=2, curriculum=CurriculumConfig(rule="balance"), **tags)
    parts = Parts(tmp_path, monkeypatch, environments=episodes, steps=1)
    Played(parts, monkeypatch, {})
    states: list[Any] = []
    monkeypatch.setattr(module, "save_checkpoint", lambda root, done, *, state, **rest: states.append(state))
    parts.trainer.run()
    assert states[0]["environments"]["curriculum"] == {"a": [0.0, 4.0], "b": [0.0, 4.0]}
    (row,) = read_metrics(tmp_path)
    assert (row["curriculum/a/num_groups"], row["curriculum/a/success"]) == (2, 0.5)


def test_replies_cut_at_their_limit_may_be_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rule=mask nothing is left: no error and no lost step, and the filter, which is off, is not blamed."""
    parts = Parts(tmp_path, monkeypatch, steps=1)
    parts.trainer.algorithm.overlong.rule = "mask"
    parts.groups = [Group(trajectories=tuple(_cut(t) for t in make_group(1.0, 0.0).trajectories))]
    parts.trainer.run()
    assert (parts.learner.updates, parts.saved, parts.evaluated) == ([], [1], [1])
    assert "step 1: no update: every trajectory ran out of room" in parts.seen.getvalue()


def test_the_price_of_long_replies_is_a_part_of_the_return_that_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token of at most three, of which two are the buffer: free. With a buffer of three it pays a third."""
    for buffer, price in ((2, 0.0), (3, -1 / 3)):
        folder = tmp_path / str(buffer)
        folder.mkdir()
        parts = Parts(folder, monkeypatch, steps=1)
        parts.trainer.algorithm.overlong.rule, parts.trainer.algorithm.overlong.buffer = "penalty", buffer
        parts.trainer.run()
        (row,) = read_metrics(folder)
        assert row["rollout/part/overlong"] == pytest.approx(price)
        assert row["rollout/return"] == 0.5  # as it was earned


def _cut(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, turns=tuple(replace(turn, finish_reason=FinishReason.LENGTH) for turn in trajectory.turns))


# -- what is kept, and what is left behind -------------------------------------------------------------------------------------


class SavingParts(Parts):
    """Parts whose checkpoints are real folders; `scores` are the successes of the evaluations, one after each step."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, scores: Sequence[float], **config: Any) -> None:
        super().__init__(folder, monkeypatch, steps=len(scores), save_every=1, evaluate_every=1, **config)
        self.scores = scores
        monkeypatch.setattr(module, "save_checkpoint", save_checkpoint)
        monkeypatch.setattr(module, "size_of", size_of)

    def evaluate(self, done: int) -> Mapping[str, float]:
        return {"eval/corridor/success": self.scores[done - 1]}

    def kept(self) -> list[int]:
        return sorted(saved_steps(self.trainer.folder / "checkpoints"))


@pytest.mark.parametrize(
    ("direction", "scores", "kept"),
    [
        ("max", [0.1, 0.9, 0.2, 0.9, 0.3], [2, 5]),  # of equal ones the first
        ("min", [0.5, 0.4, 0.1, 0.2, 0.3], [3, 5]),
        ("max", [0.1, 0.2, 0.3, 0.4, 0.5], [4, 5]),  # the last is only known to be the best after it was saved
    ],
)
def test_the_best_checkpoint_is_kept_beside_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: str, scores: list[float], kept: list[int]
) -> None:
    best = {"keep_best": "eval/corridor/success", "keep_best_direction": direction}
    parts = SavingParts(tmp_path, monkeypatch, scores, keep_checkpoints=1, **best)
    parts.trainer.run()
    assert parts.kept() == kept
    assert parts.trainer.best_step() == (kept[0] if direction == "min" or kept[0] == 2 else 5)


def test_without_a_best_one_the_newest_alone_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = SavingParts(tmp_path, monkeypatch, [0.9, 0.1, 0.1], keep_checkpoints=1)
    parts.trainer.run()
    assert parts.kept() == [3]
    assert parts.trainer.best_step() is None


@pytest.mark.parametrize(("number", "kept"), [(2, [4, 5]), (None, [1, 2, 3, 4, 5])])
def test_only_the_newest_rollouts_are_kept_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, kept: list[int]
) -> None:
    Parts(tmp_path, monkeypatch, steps=5, keep_rollouts=number).trainer.run()
    assert sorted(int(path.stem[5:]) for path in (tmp_path / "rollouts").iterdir()) == kept


def test_a_disk_that_will_not_hold_the_run_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte is free; the policy alone needs more."""
    parts = Parts(tmp_path, monkeypatch, steps=4)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1))
    parts.trainer.run()
    assert parts.seen.getvalue().count("are still to be written and") == 1


def resident() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
def test_memory_files_and_threads_stay_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 106: a hundred steps of real files and metrics; after the first thirty nothing grows but the disk."""
    parts = Parts(tmp_path, monkeypatch, steps=100, save_every=1000, keep_rollouts=3)
    at: list[tuple[int, int, int]] = []
    honest, calls = parts.collect, itertools.count()

    async def collect(*args: Any) -> list[Group]:
        if next(calls) in (30, 99):
            gc.collect()
            at.append((resident(), len(list(Path("/proc/self/fd").iterdir())), threading.active_count()))
        return await honest(*args)

    monkeypatch.setattr(rollout_phase, "collect", collect)
    parts.learner.updates = deque(maxlen=1)  # type: ignore[assignment]
    parts.requests = deque(maxlen=1)  # type: ignore[assignment]
    parts.trainer.run()
    early, late = at
    assert late[1:] == early[1:]
    assert late[0] - early[0] < 4 * 2**20  # 60 kB a step


# -- an evaluation beside the next rollout ---------------------------------------------------------------------------------------


def on_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], None]) -> None:
    """Do `act` before every call of `owner.name`."""
    honest = getattr(owner, name)

    def observed(*args: Any, **rest: Any) -> Any:
        act()
        return honest(*args, **rest)

    monkeypatch.setattr(owner, name, observed)


class BesideParts(Parts):
    """Parts that tell, in order, what they did; saved steps are measured beside the rollout that follows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
        super().__init__(folder, monkeypatch, save_every=1, evaluate_every=1, **config)
        self.events: list[str] = []
        self.on_finish: Callable[[], None] = lambda: None
        self.trainer.evaluate_beside = self.begin
        update = self.learner.update
        monkeypatch.setattr(
            self.learner, "update", lambda *args, **rest: (self.events.append("update"), update(*args, **rest))[1]
        )

    async def collect(self, *args: Any) -> list[Group]:
        self.events.append("play")
        return await super().collect(*args)

    def evaluate(self, done: int) -> Mapping[str, float]:
        self.events.append(f"measure {done}")
        return super().evaluate(done)

    def begin(self, done: int, checkpoint: Path) -> UnderWay:
        assert checkpoint == self.trainer.folder / "checkpoints" / f"step-{done:06d}"
        self.events.append(f"begin {done}")

        def finish() -> Mapping[str, float]:
            self.on_finish()
            self.events.append(f"finish {done}")
            return {"eval/corridor/success": done / 10}

        return cast(Any, SimpleNamespace(finish=finish, cancel=lambda: self.events.append(f"cancel {done}")))


def evaluated_rows(folder: Path) -> list[tuple[float, float | None]]:
    return [(row["step"], row.get("eval/corridor/success")) for row in read_metrics(folder)]


def test_a_saved_step_is_measured_while_the_next_one_is_played_and_logged_before_its_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step has nothing behind it that could be played meanwhile."""
    parts = BesideParts(tmp_path, monkeypatch, steps=3)
    parts.trainer.run()
    first = ["play", "update", "begin 1", "play", "finish 1", "update", "begin 2", "play", "finish 2", "update", "measure 3"]
    assert parts.events == first
    assert evaluated_rows(tmp_path) == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_what_is_measured_beside_decides_which_checkpoint_is_the_best_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = BesideParts(tmp_path, monkeypatch, steps=3, keep_best="eval/corridor/success", keep_checkpoints=1)
    kept: list[int | None] = []
    monkeypatch.setattr(module, "saved_steps", lambda root: {1, 2})
    monkeypatch.setattr(module, "save_checkpoint", lambda root, done, *, keep_step, **rest: kept.append(keep_step))
    parts.trainer.run()
    assert kept == [None, 1, 2]


@pytest.mark.parametrize("where", ["rollout", "finish"])
def test_what_ends_the_run_ends_the_measuring_and_the_step_is_measured_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    parts = BesideParts(tmp_path, monkeypatch, steps=3)

    def broken(*_: Any) -> Any:
        raise TrainingError("broken")

    if where == "rollout":
        on_call(monkeypatch, parts.trainer, "evaluate_beside", lambda: monkeypatch.setattr(rollout_phase, "collect", broken))
    else:
        parts.on_finish = broken
    with pytest.raises(TrainingError, match="broken"):
        parts.trainer.run()
    assert parts.events[-1] == "cancel 1"
    assert evaluated_rows(tmp_path) == []
    unlogged = parts.trainer.unlogged
    assert unlogged is not None

    monkeypatch.undo()
    resumed = BesideParts(tmp_path, monkeypatch, steps=3)
    resumed.trainer.environments.load_state_dict({"next_step": 1, "run_seed": 0})
    resumed.trainer.unlogged, resumed.trainer._last_saved = unlogged, 1
    resumed.trainer.run()
    assert resumed.events[:3] == ["begin 1", "play", "finish 1"]
    assert evaluated_rows(tmp_path) == [(1, 0.1), (2, 0.2), (3, 0.3)]


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_signal_in_the_rollout_waits_for_what_is_measured_or_gives_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    """Given up, the rollout has changed nothing, and the step is measured when the run goes on."""
    parts = BesideParts(tmp_path, monkeypatch, steps=5)

    def stop() -> None:
        parts.trainer.stop.number = 15
        if gives_up:
            raise Abandoned

    parts.on_finish = stop
    with pytest.raises(Stopped, match=f"SIGTERM: stopped after {1 if gives_up else 2} of 5 steps") as stopped:
        parts.trainer.run()
    assert stopped.value.exit_code == 143
    assert evaluated_rows(tmp_path) == ([] if gives_up else [(1, 0.1), (2, 0.2)])
    assert parts.events[-2:] == (["play", "cancel 1"] if gives_up else ["update", "measure 2"])
    assert parts.trainer.num_done == (1 if gives_up else 2)


def test_a_run_that_ends_over_skipped_updates_is_measured_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = BesideParts(tmp_path, monkeypatch, steps=9, bad=[0, 1], max_skipped_updates=2)
    with pytest.raises(TrainingError, match="2 steps in a row"):
        parts.trainer.run()
    assert parts.events[-1] == "measure 2"
    assert evaluated_rows(tmp_path) == [(1, 0.1), (2, 0.2)]
