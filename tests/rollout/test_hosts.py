"""Environments in the event loop, in threads and in worker processes: same answers, same failures, nothing left behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragen.engines.scripted import ScriptedEngine
from ragen.environments import registry
from ragen.errors import ConfigError
from ragen.records import EndReason, Group, Observation, Sampling, Trajectory
from ragen.rollout.collect import Progress, collect
from ragen.rollout.config import RolloutConfig
from ragen.rollout.deadline import EnvironmentTimeout
from ragen.rollout.environment_config import PLACES
from ragen.rollout.state_manager import EnvHandle, EnvironmentConfig, EnvStateManager, EnvStatus
from tests.support.corridor import num_open
from tests.support.episodes import begin, corridor, manager
from tests.support.rollouts import SAMPLING, contexts, encode, walk
from tests.support.samples import same_trajectory

ROOT = Path(__file__).parents[2]
BESIDE = ("thread", "process")
SHORT_S = 0.5  # a deadline that an idle environment keeps even on a loaded machine
STEP = encode(walk("Right", "Right"))  # two such turns solve the corridor


def is_alive(pid: int) -> bool:
    """False also for one that is over but whose exit status nobody has collected."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")
    except (ProcessLookupError, FileNotFoundError):
        return False


def eventually(holds: Callable[[], bool], *, within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def helpers() -> list[str]:
    """Threads of hosts that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("environments", "attendant"))]


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    yield
    assert eventually(lambda: helpers() == [])


def everything(groups: Sequence[Group]) -> list[Trajectory]:
    return [t for group in groups for t in (*group.trajectories, *group.failed)]


def gather(episodes: EnvStateManager, *, on_progress: Progress | None = None, **rollout: Any) -> list[Group]:
    config = RolloutConfig(**{"max_failed_frac": 1.0, "max_replacements_frac": 0.0} | rollout)
    engine = ScriptedEngine(lambda prompt_ids, sampling: STEP)
    with episodes:
        return asyncio.run(collect(episodes.open(0), contexts(), engine, SAMPLING, config, on_progress))


# --- the same everywhere ----------------------------------------------------------------------------------------------------


def test_where_an_environment_runs_changes_nothing_in_its_trajectories() -> None:
    """Wandering agents, slips, an environment that ends, one that raises: the same records from every host, to the bit."""

    def wander(prompt_ids: Sequence[int], sampling: Sampling) -> Sequence[int]:
        return encode(walk(*("Left" if seed % 3 == 0 else "Right" for seed in sampling.seed[-3:-1])))

    def play(place: str) -> list[Trajectory]:
        config = corridor(num_groups=2, start=None, slip=0.3, raise_at_step=5, raise_frac=0.3, runs_in=place)
        with manager(group_size=4, corridor=config) as episodes:
            rollout = RolloutConfig(max_failed_frac=1.0)
            return everything(asyncio.run(collect(episodes.open(0), contexts(), ScriptedEngine(wander), SAMPLING, rollout)))

    inline, *others = [play(place) for place in PLACES]
    assert {EndReason.SOLVED, EndReason.ENVIRONMENT_ERROR} <= {t.end_reason for t in inline}
    for beside in others:
        assert [t.key for t in beside] == [t.key for t in inline]
        assert all(same_trajectory(a, b) for a, b in zip(inline, beside, strict=True))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"raise_in_reset": True}, "reset: Broken: reset"),
        ({"raise_at_step": 1}, "action 1 'Right': Broken: step 1"),
        ({"reward": "nan"}, "action 1 'Right': ValueError: the reward must be a finite number, not nan"),
    ],
)
def test_a_failure_says_the_same_wherever_it_happened(place: str, fault: dict[str, Any], says: str) -> None:
    """bug-log row 44."""
    (group,) = gather(manager(corridor=corridor(runs_in=place, num_workers=None, **fault)))
    assert [t.end_reason for t in group.failed] == [EndReason.ENVIRONMENT_ERROR]
    assert group.failed[0].error.endswith(f"), {says}")


@pytest.mark.parametrize("place", BESIDE)
def test_an_environment_that_cannot_close_is_reported(place: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        gather(manager(corridor=corridor(raise_in_close=True, runs_in=place, num_workers=1)))
    assert [record.getMessage().partition("), ")[2] for record in caplog.records] == ["close: Broken: close"]


@pytest.mark.parametrize("place", BESIDE)
def test_workers_go_on_from_step_to_step_and_after_a_close(place: str) -> None:
    with manager(corridor=corridor(observation="pid", runs_in=place, num_workers=1)) as episodes:
        seen = [asyncio.run(begin_one(episodes, step)).text for step in range(2)]
        assert seen[0] == seen[1]
        episodes.close()
        asyncio.run(begin_one(episodes, 2))


async def begin_one(episodes: EnvStateManager, step: int) -> Observation:
    return await episodes.open(step)[0][0].reset()


def test_a_slow_environment_holds_up_neither_the_event_loop_nor_the_others() -> None:
    """Four resets of a quarter of a second each take about one, in four threads."""

    async def reset_all(handles: list[EnvHandle]) -> int:
        resets = asyncio.gather(*[handle.reset() for handle in handles])
        turns_of_the_loop = 0
        while not resets.done():
            await asyncio.sleep(0.001)
            turns_of_the_loop += 1
        return turns_of_the_loop

    slow = corridor(hang_in_reset=True, hang_s=0.25, runs_in="thread", num_workers=4)
    with manager(group_size=4, corridor=slow) as episodes:
        handles = [handle for members in episodes.open(0) for handle in members]
        assert asyncio.run(reset_all(handles)) > 5
        assert all(handle.status is EnvStatus.RUNNING for handle in handles)


# --- deadlines --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("fault", "doing"), [({"hang_in_reset": True}, "reset"), ({"hang_at_step": 2}, "action 2 'Right'")], ids=["reset", "step"]
)
def test_an_environment_that_hangs_ends_its_own_trajectory_and_no_other(place: str, fault: dict[str, Any], doing: str) -> None:
    """bug-log row 44. Every second corridor or so hangs, swallowing every Exception; all share the worker, if there is one."""
    workers = None if place == "inline" else 1
    hang_s = 60.0 if place != "thread" else 3 * SHORT_S  # an abandoned thread is awaited at the end of this test
    config = corridor(raise_frac=0.4, hang_s=hang_s, step_timeout_s=SHORT_S, runs_in=place, num_workers=workers, **fault)
    episodes = manager(group_size=6, corridor=config)
    (group,) = gather(episodes)
    assert len(group.trajectories) + len(group.failed) == 6
    assert {t.end_reason for t in group.trajectories} == {EndReason.SOLVED}
    assert {t.end_reason for t in group.failed} == {EndReason.TIMEOUT}
    assert all(t.error.endswith(f"), {doing}: no answer within {SHORT_S} s (step_timeout_s)") for t in group.failed)
    assert episodes.num_lost_workers() == {"corridor": 0 if place == "inline" else len(group.failed)}
    assert eventually(lambda: num_open() == 0)  # an abandoned thread closes its environment once it is back


@pytest.mark.parametrize("place", PLACES)
def test_an_environment_that_hangs_in_close_is_reported_and_left(place: str, caplog: pytest.LogCaptureFixture) -> None:
    hang_s = 60.0 if place != "thread" else 3 * SHORT_S
    config = corridor(hang_in_close=True, hang_s=hang_s, step_timeout_s=SHORT_S, runs_in=place)
    with caplog.at_level(logging.WARNING):
        (group,) = gather(manager(corridor=config))
    assert [t.end_reason for t in group.trajectories] == [EndReason.SOLVED]
    if place == "inline":
        assert caplog.messages[0].endswith("close: no answer within 0.5 s")


@pytest.mark.parametrize("place", PLACES)
def test_the_seconds_of_a_trajectory_are_counted_in_its_environment_alone(place: str) -> None:
    """Each step takes a fifth of a second, so the second one goes beyond 0.3 s. Waiting for the engine costs nothing."""

    async def turn_by_turn(handle: EnvHandle) -> None:
        await handle.reset()
        await handle.step(["Right"])
        await asyncio.sleep(0.2)
        await handle.step(["Right"])

    with manager(corridor=corridor(step_s=0.2, max_seconds=5.0, runs_in=place)) as episodes:
        asyncio.run(turn_by_turn(episodes.open(0)[0][0]))
    with manager(corridor=corridor(step_s=0.2, max_seconds=0.3, runs_in=place)) as episodes:
        handle = episodes.open(0)[0][0]
        with pytest.raises(EnvironmentTimeout, match=r"action 2 'Right': no answer within .* what was left of max_seconds=0\.3$"):
            asyncio.run(turn_by_turn(handle))
        assert handle.status is EnvStatus.FAILED


# --- worker processes -------------------------------------------------------------------------------------------------------


def test_a_process_that_dies_takes_one_episode_with_it_and_the_others_are_rebuilt() -> None:
    """bug-log row 44: the environment ends the whole process in its third step; what its neighbours played is played again."""
    config = corridor(exit_at_step=3, raise_frac=0.4, start=None, slip=0.3, runs_in="process", num_workers=1)
    healthy = corridor(raise_frac=0.4, start=None, slip=0.3)
    episodes = manager(group_size=6, corridor=config)
    (group,) = gather(episodes)
    assert 0 < len(group.failed) < 6
    assert episodes.num_lost_workers() == {"corridor": len(group.failed)}
    assert {t.end_reason for t in group.failed} == {EndReason.ENVIRONMENT_ERROR}
    assert all(t.error.endswith("action 3 'Right': the worker process died: exit code 3") for t in group.failed)
    (undisturbed,) = gather(manager(group_size=6, corridor=healthy))
    wanted = {t.key: t for t in undisturbed.trajectories}
    assert all(same_trajectory(t, wanted[t.key]) for t in group.trajectories)


def test_an_episode_that_cannot_be_rebuilt_says_so() -> None:
    """What it answers depends on the process, so that playing it again gives another answer."""
    config = corridor(observation="pid", exit_at_step=3, raise_frac=0.4, runs_in="process", num_workers=1)
    (group,) = gather(manager(group_size=6, corridor=config))
    reasons = {t.error.rpartition(", ")[2].partition(": ")[2] for t in group.failed}
    assert reasons == {
        "the worker process died: exit code 3",
        "it does not replay after its worker was lost to another episode: the same seeds and actions give another answer",
    }
    assert {t.end_reason for t in group.failed} == {EndReason.ENVIRONMENT_ERROR}


def test_no_process_is_left_in_any_exit() -> None:
    pids: list[int] = []

    def leave_by(error: type[BaseException] | None) -> None:
        with manager(group_size=4, corridor=corridor(observation="pid", runs_in="process", num_workers=2)) as episodes:
            handles = begin(episodes)
            pids.extend({int(handle._text) for handle in handles})
            if error is not None:
                raise error

    leave_by(None)
    with pytest.raises(KeyboardInterrupt):
        leave_by(KeyboardInterrupt)
    assert len(pids) == 4
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("place", BESIDE)
def test_ctrl_c_during_a_rollout_leaves_nothing(place: str) -> None:
    """bug-log row 107: one episode is over, one hangs, the others wait for the same worker."""

    def interrupt(*counts: int) -> None:
        signal.raise_signal(signal.SIGINT)

    hang_s = 60.0 if place == "process" else 3 * SHORT_S
    config = corridor(hang_at_step=4, raise_frac=0.4, hang_s=hang_s, step_timeout_s=SHORT_S, runs_in=place, num_workers=1)
    episodes = manager(group_size=6, corridor=config)
    with pytest.raises(KeyboardInterrupt):
        gather(episodes, on_progress=interrupt)
    counts = episodes.counts()
    assert counts[EnvStatus.NEW] == counts[EnvStatus.RUNNING] == 0
    assert eventually(lambda: num_open() == 0)


def test_a_worker_ends_when_the_process_that_started_it_is_killed() -> None:
    script = textwrap.dedent("""
        import asyncio, os
        from tests.support.episodes import corridor, manager
        episodes = manager(corridor=corridor(observation="pid", runs_in="process", num_workers=1))
        print(asyncio.run(episodes.open(0)[0][0].reset()).text, flush=True)
        os.kill(os.getpid(), 9)
    """)
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert eventually(lambda: not is_alive(int(killed.stdout)))


def test_an_environment_that_only_this_process_has_is_refused_for_another() -> None:
    with pytest.raises(ConfigError, match="cannot import the script itself"):
        registry.portable_name("__main__:Mine")

    class Local(registry.load("corridor")):  # type: ignore[misc]
        """Only this test has it."""

    registry.register("local", Local, "cannot be imported")
    try:
        with pytest.raises(
            ConfigError, match=r"environments\.mine\.runs_in=process: environment 'local': another process cannot"
        ):
            EnvironmentConfig(name="local", runs_in="process").check("mine")
        EnvironmentConfig(name="local", runs_in="thread").check("mine")
    finally:
        registry._entries.pop("local")


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [
        ("bandit", "ragen.environments.bandit.env:BanditEnv"),
        ("corridor", "tests.support.corridor:Corridor"),
        ("tests.support.corridor:Corridor", "tests.support.corridor:Corridor"),
    ],
)
def test_a_name_that_was_registered_here_is_found_elsewhere_by_its_module(name: str, elsewhere: str) -> None:
    assert registry.portable_name(name) == elsewhere
    assert registry.load(elsewhere) is registry.load(name)


def test_a_process_that_cannot_start_is_a_failure_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen.rollout.workers._BOOT", "import sys; sys.exit(7)")
    (group,) = gather(manager(corridor=corridor(runs_in="process")))
    assert group.failed[0].error.endswith("reset: a worker process could not be started: the worker process died: exit code 7")
