"""Every fault that a run has to stand, injected in turn: its class, its counter, its exit, and what it leaves as it was.

The run has twelve trajectories a step; where single episodes fail, it is compared with the same run without the fault.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ragen import run as run_module
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import EngineFailure, TrainingError
from ragen.records import EndReason, EpisodeKey, Trajectory
from ragen.training.tracker_backends import BACKENDS
from ragen.training.update import Learner
from ragen.training.watchdog import Watchdog
from tests.support.corridor import Broken, Corridor, num_open
from tests.support.models import tiny_llama
from tests.support.runs import corridor_config, metrics_of, on_call, rollouts_of, run, small_config, weights_of

FIRST_ROLLOUT = "step-000001.parquet"
ARPO = ("algorithm=arpo", "algorithm.entropy_coef=0.01", "trainer.steps=1", "evaluation.before_training=false")
TOLERANT = ("rollout.max_failed_frac=1.0", "rollout.max_replacements_frac=0", "evaluation.num_episodes=2")


def played(folder: Path) -> dict[EpisodeKey, Trajectory]:
    return {row.trajectory.key: row.trajectory for row in rollouts_of(folder)[FIRST_ROLLOUT]}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in which nothing fails."""
    return run(corridor_config(tmp_path_factory.mktemp("honest"), *ARPO, *TOLERANT))[0].folder


# -- single episodes: of the environment, of the engine ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A fault of single episodes, its end reason, and words of its error."""

    act: Callable[[], Any]  # in the place of the environment's first observation
    end: EndReason
    error: str


def broken() -> None:
    raise Broken("on purpose")


def leaves() -> None:
    raise SystemExit(0)


def hangs() -> str:
    until = time.monotonic() + 30
    while time.monotonic() < until:  # swallows what a retry loop would
        try:
            time.sleep(1)
        except Exception:
            continue
    return "at last"


EPISODES = {
    "raises": Episode(act=broken, end=EndReason.ENVIRONMENT_ERROR, error="Broken: on purpose"),
    "calls sys.exit": Episode(act=leaves, end=EndReason.ENVIRONMENT_ERROR, error="SystemExit: 0"),
    "hangs": Episode(act=hangs, end=EndReason.TIMEOUT, error="no answer within 0.5 s"),
    "says None": Episode(act=lambda: None, end=EndReason.ENVIRONMENT_ERROR, error="a text must be a str, not NoneType"),
    "says NaN": Episode(act=lambda: math.nan, end=EndReason.ENVIRONMENT_ERROR, error="a text must be a str, not float"),
    "says bytes": Episode(act=lambda: b"x", end=EndReason.ENVIRONMENT_ERROR, error="a text must be a str, not bytes"),
    "says half a character": Episode(act=lambda: "\ud800", end=EndReason.ENVIRONMENT_ERROR, error="surrogates not allowed"),
    "says 5 MB": Episode(act=lambda: "x" * 5_000_000, end=EndReason.ENVIRONMENT_ERROR, error="of 5000000 characters leaves no"),
}


@pytest.mark.parametrize("fault", EPISODES)
def test_an_episode_that_fails_is_named_counted_and_costs_the_others_nothing(
    tmp_path: Path, honest: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Bug-log rows 44, 45 and 46: the fifth and the tenth of twelve."""
    episode, original, calls = EPISODES[fault], Corridor._begin, []

    def begin(self: Corridor) -> Any:
        calls.append(None)
        text = original(self)
        return episode.act() if len(calls) in (5, 10) else text

    monkeypatch.setattr(Corridor, "_begin", begin)
    folder = run(corridor_config(tmp_path, *ARPO, *TOLERANT, "environments.bandit.step_timeout_s=0.5"))[0].folder
    then, now = played(honest), played(folder)
    failed = [trajectory for trajectory in now.values() if trajectory.end_reason.is_infrastructure]
    assert [(t.end_reason, episode.error in t.error) for t in failed] == [(episode.end, True)] * 2, [t.error for t in failed]
    row = metrics_of(folder)[0]
    assert row["rollout/failed_frac"] == row[f"rollout/end/{episode.end}"] == pytest.approx(2 / 12)
    assert num_open() == 0
    assert_unaffected(then, now, but={t.key for t in failed})


def assert_unaffected(then: dict[EpisodeKey, Trajectory], now: dict[EpisodeKey, Trajectory], *, but: set[EpisodeKey]) -> None:
    """Every other episode was played and sampled as if nothing had happened; log-probs up to rounding, since batches differ."""
    assert now.keys() == then.keys()
    for key in now.keys() - but:
        a, b = then[key], now[key]
        assert [turn.reply for turn in a.turns] == [turn.reply for turn in b.turns]
        assert a.end_reason is b.end_reason
        for one, other in zip(a.segments, b.segments, strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            assert one.logprobs.tolist() == pytest.approx(other.logprobs.tolist(), abs=1e-4)


def test_an_engine_that_fails_a_request_ends_that_trajectory_alone(
    tmp_path: Path, honest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = TorchEngine.generate, []

    async def generate(self: TorchEngine, *args: Any) -> Any:
        calls.append(None)
        if len(calls) == 3:
            raise EngineFailure("the request was lost")
        return await original(self, *args)

    monkeypatch.setattr(TorchEngine, "generate", generate)
    folder = run(corridor_config(tmp_path, *ARPO, *TOLERANT))[0].folder
    now = played(folder)
    (failed,) = [trajectory for trajectory in now.values() if trajectory.end_reason.is_infrastructure]
    assert (failed.end_reason, failed.error) == (EndReason.ENGINE_ERROR, "the request was lost")
    assert metrics_of(folder)[0]["rollout/end/engine_error"] == pytest.approx(1 / 12)
    assert_unaffected(played(honest), now, but={failed.key})


def test_a_worker_that_dies_is_replaced_and_counted(tmp_path: Path) -> None:
    """Its process ends in the middle of an episode; the others of the same worker go on in the next one."""
    config = small_config(
        tmp_path,
        *ARPO,
        *TOLERANT,
        "environments.bandit.name=ragen.faults.environment:Flaky",
        "environments.bandit.runs_in=process",
        "environments.bandit.num_workers=1",
        "+environments.bandit.options.fault_frac=0.15",
        "+environments.bandit.options.faults=[exit]",
    )
    folder = run(config)[0].folder
    failed = [trajectory for trajectory in played(folder).values() if trajectory.end_reason.is_infrastructure]
    row = metrics_of(folder)[0]
    assert 0 < len(failed) < 12
    assert all("the worker process died: exit code 3" in trajectory.error for trajectory in failed)
    assert row["rollout/lost_workers"] == len(failed)
    assert row["rollout/end/environment_error"] == pytest.approx(len(failed) / 12)


def test_more_failures_than_are_allowed_end_the_run_and_keep_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy of all faults of single episodes: 4 of 12 are more than a quarter."""
    original, calls = Corridor._begin, []

    def begin(self: Corridor) -> str:
        calls.append(None)
        if len(calls) > 12:
            broken()
        return original(self)

    monkeypatch.setattr(Corridor, "_begin", begin)
    config = corridor_config(tmp_path, *ARPO, "trainer.steps=2", "rollout.max_replacements_frac=0")
    with pytest.raises(TrainingError, match=r"4 of 12 trajectories failed, more than rollout\.max_failed_frac=0\.25") as stopped:
        run(config)
    assert stopped.value.exit_code == 1
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000001"]


# -- the update --------------------------------------------------------------------------------------------------------------


def spoiled_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Learner.score
    monkeypatch.setattr(Learner, "score", lambda self, part: tuple(x * math.nan for x in original(self, part)))


def spoiled_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *args: torch.tensor(math.inf))


@pytest.mark.parametrize(
    ("spoil", "what"), [(spoiled_loss, "loss of bandit"), (spoiled_gradient, "gradient norm inf over bandit")]
)
def test_a_loss_or_gradient_that_is_not_finite_changes_nothing_and_is_counted(
    tmp_path: Path, honest: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None], what: str
) -> None:
    """Bug-log row 64: the rollout before it is the honest one, the weights after it are those of the start."""
    spoil(monkeypatch)
    folder = run(corridor_config(tmp_path, *ARPO, *TOLERANT))[0].folder
    row = metrics_of(folder)[0]
    assert row["update/skipped"] > 0
    assert "update/grad_norm" not in row
    assert f"an optimiser step was skipped, nothing changed: not finite: {what}" in (folder / "log.txt").read_text()
    assert_unaffected(played(honest), played(folder), but=set())
    saved, start = (load_file(path / "model.safetensors") for path in (folder / "checkpoints" / "step-000001", tiny_llama()))
    assert all(torch.equal(saved[name], start[name]) for name in start)


def test_an_update_that_runs_out_of_memory_ends_as_it_would_have(
    tmp_path: Path, honest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, in the first pass: it is begun anew with half the samples at a time, which moves no more than last bits."""

    def short() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    on_call(monkeypatch, Learner, "_backward", 1, short)
    summary, seen = run(corridor_config(tmp_path, *ARPO, *TOLERANT))
    (row,) = metrics_of(summary.folder)
    assert (row["update/out_of_memory"], row["update/skipped"], row["rollout/failed_frac"]) == (1, 0, 0)
    assert "out of memory" in seen
    assert_unaffected(played(honest), played(summary.folder), but=set())
    there, here = (load_file(path / "checkpoints/step-000001/model.safetensors") for path in (honest, summary.folder))
    assert all(torch.allclose(there[name], here[name], atol=1e-5) for name in there)


# -- a reward function --------------------------------------------------------------------------------------------------------


class Clock:
    """Moved by hand, and by the function that sleeps."""

    now = 0.0
    ended = threading.Event()

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


def sleeps(trajectory: Trajectory) -> float:
    """A reward function that waits for a server, longer than any limit."""
    for _ in range(6000):
        CLOCK.now += 0.015  # not in one jump: that would be a pause of the process
        if CLOCK.ended.wait(0.01):
            break
    raise Broken("the process would have ended by now")


def test_a_reward_function_that_sleeps_for_ever_ends_the_run_and_is_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug-log row 102: no call of it has a limit of its own, but the run has one."""
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        CLOCK.ended.set()

    monkeypatch.setattr(run_module, "Watchdog", partial(Watchdog, end=end, clock=CLOCK))
    sleeping = ("rewards.functions.judge=tests.faults.test_injected:sleeps", "trainer.stall_timeout_s=4")
    with pytest.raises(TrainingError):
        run(corridor_config(tmp_path, *ARPO, *TOLERANT, *sleeping))
    assert codes == [4]
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "no sign of life for 4 s (trainer.stall_timeout_s)" in log
    assert " in sleeps" in log


# -- clocks and trackers -----------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, honest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day forward and a day back with every look: deadlines are kept by a clock that only goes forward."""
    original, looks = time.time, []

    def jumping() -> float:
        looks.append(None)
        return original() + (86400 if len(looks) % 2 else -86400)

    monkeypatch.setattr(time, "time", jumping)
    folder = run(corridor_config(tmp_path, *ARPO, *TOLERANT))[0].folder
    assert weights_of(folder, 1) == weights_of(honest, 1)
    assert metrics_of(folder) == metrics_of(honest)


class Offline:
    """A tracker without a network."""

    def __init__(self, project: str) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        def fail(*args: object) -> None:
            if name == "log":
                raise ConnectionError("network is unreachable")

        return fail


def test_a_tracker_that_is_offline_is_named_once_and_counted_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "wandb", Offline)
    config = small_config(tmp_path, *ARPO, "trainer.steps=3", "evaluation.num_episodes=2", "tracking.backends=[wandb]")
    summary, seen = run(config)
    assert len(re.findall(r"tracker wandb failed; the run goes on: ConnectionError: network is unreachable", seen)) == 1
    rows = metrics_of(summary.folder)
    assert [row.get("tracking/failures") for row in rows] == [None, 1.0, pytest.approx(1.0, abs=1.0)]
    assert summary.steps == 3
