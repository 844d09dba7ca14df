"""Statuses of episodes, failures of environments, and nothing left open in any exit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ragen.environments import registry
from ragen.environments.text_env import StepAnswer
from ragen.errors import ConfigError, EnvironmentFailure
from ragen.records import Split
from ragen.rollout.state_manager import EnvHandle, EnvironmentConfig, EnvStateManager, EnvStatus, episode_seeds
from tests.support.corridor import num_open
from tests.support.episodes import Ticket, begin, corridor, manager, play


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    before = num_open()
    yield
    assert num_open() == before


def test_statuses_follow_each_episode() -> None:
    configs = {
        "running": corridor(),
        "ended": corridor(start=3),
        "failed": corridor(raise_at_step=1),
        "closed": corridor(),
        "new": corridor(),
    }
    with EnvStateManager(configs, group_size=1, run_seed=0, split=Split.TRAIN) as episodes:
        handles = {members[0].key.environment: members[0] for members in episodes.open(0)}
        for name in ("running", "ended", "failed", "closed"):
            asyncio.run(handles[name].reset())
        asyncio.run(handles["ended"].step(["Right"]))
        with pytest.raises(EnvironmentFailure):
            asyncio.run(handles["failed"].step(["Right"]))
        handles["closed"].close()
        assert {name: handle.status.value for name, handle in handles.items()} == {name: name for name in configs}
        assert episodes.counts() == dict.fromkeys(EnvStatus, 1)
    # Leaving closes what had not ended and keeps what had: started = ended + failed + closed.
    assert episodes.counts() == {
        EnvStatus.NEW: 0,
        EnvStatus.RUNNING: 0,
        EnvStatus.ENDED: 1,
        EnvStatus.FAILED: 1,
        EnvStatus.CLOSED: 3,
    }


def test_an_ended_or_failed_episode_lets_its_environment_go_at_once() -> None:
    before = num_open()
    with manager(
        group_size=2, corridor=corridor(start=3, raise_at_step=1, raise_frac=0.0), broken=corridor(raise_at_step=1)
    ) as episodes:
        handles = [handle for members in episodes.open(0) for handle in members]
        assert num_open() == before  # nothing is made before it is needed
        for handle in handles:
            asyncio.run(handle.reset())
        assert num_open() == before + 4
        asyncio.run(handles[0].step(["Right"]))
        with pytest.raises(EnvironmentFailure):
            asyncio.run(handles[2].step(["Right"]))
        assert num_open() == before + 2


def test_a_handle_plays_one_episode() -> None:
    with manager(corridor=corridor()) as episodes:
        handle = episodes.open(0)[0][0]
        with pytest.raises(RuntimeError, match="once it has been reset"):
            _ = handle.action_names
        with pytest.raises(RuntimeError, match="this one is new"):
            asyncio.run(handle.step(["Right"]))
        asyncio.run(handle.reset())
        assert handle.action_names == ("Left", "Right")
        with pytest.raises(RuntimeError, match="this one is running"):
            asyncio.run(handle.reset())


def failures(config: EnvironmentConfig, group_size: int) -> list[EnvironmentFailure | None]:
    """Play every member of one group for three turns; the failure of each, or None."""

    async def episode(handle: EnvHandle) -> EnvironmentFailure | None:
        try:
            await handle.reset()
            for _ in range(3):
                await handle.step(["Right"])
        except EnvironmentFailure as failure:
            return failure
        return None

    with manager(group_size=group_size, corridor=config) as episodes:
        outcome = [asyncio.run(episode(handle)) for handle in episodes.open(0)[0]]
        failed = sum(failure is not None for failure in outcome)
        assert episodes.counts()[EnvStatus.FAILED] == failed
        assert episodes.counts()[EnvStatus.RUNNING] == group_size - failed
    return outcome


def test_a_failing_step_ends_one_episode_and_spares_the_others() -> None:
    """bug-log row 44: about one episode in eight raises in its second step; each failure is its own."""
    outcome = failures(corridor(raise_at_step=2, raise_frac=1 / 8), 64)
    failed = [failure for failure in outcome if failure is not None]
    assert 1 <= len(failed) <= 24  # binomial(64, 1/8): mean 8, standard deviation 2.6
    assert all("action 2 'Right': Broken: step 2" in str(failure) for failure in failed)


@pytest.mark.parametrize("options", [{"raise_at_step": 2}, {"raise_in_reset": True}])
def test_all_episodes_may_fail_each_as_itself(options: dict[str, Any]) -> None:
    """bug-log row 44: in all episodes, then only in reset."""
    outcome = failures(corridor(**options), 8)
    assert all(isinstance(failure, EnvironmentFailure) for failure in outcome)
    assert len({str(failure) for failure in outcome}) == 8  # each names its own member and seed


def test_a_failure_names_tag_seeds_and_where_it_happened() -> None:
    with manager(run_seed=6, mine=corridor(raise_at_step=1)) as episodes:
        handle = episodes.open(4)[0][0]
        asyncio.run(handle.reset())
        with pytest.raises(EnvironmentFailure) as caught:
            asyncio.run(handle.step(["Right"]))
    task, dynamics = episode_seeds(run_seed=6, split=Split.TRAIN, step=4, group=0, member=0)
    assert str(caught.value) == (
        f"environment 'mine' (step 4, group 0, member 0, task seed {task}, dynamics seed {dynamics}), "
        "action 1 'Right': Broken: step 1"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"reward": "none"},
        {"reward": "nan"},
        {"reward": "text"},
        {"reward": "bool"},
        {"observation": "none"},
        {"observation": "number"},
        {"observation": "surrogate"},
        {"flags": "none"},
        {"flags": "number"},
        {"info": "none"},
        {"info": "no_success"},
    ],
)
def test_an_answer_that_is_none_of_the_contracts_is_a_failure(options: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentFailure, match="environment 'corridor'"):
        play(corridor(**options), ["Right"])


def test_an_error_of_ours_raised_by_an_environment_is_the_environments_failure() -> None:
    class Confused(Ticket):
        def _play(self, action: str) -> StepAnswer:
            raise ConfigError("where am I?")

    registry.register("confused", Confused, "raises one of our own errors")
    try:
        with manager(confused=EnvironmentConfig(name="confused")) as episodes:
            handle = episodes.open(0)[0][0]
            asyncio.run(handle.reset())
            with pytest.raises(EnvironmentFailure, match=r"environment 'confused' .*where am I"):
                asyncio.run(handle.step(["hello"]))
    finally:
        registry._entries.pop("confused")


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt, asyncio.CancelledError])
def test_every_exit_closes_every_environment(raised: type[BaseException]) -> None:
    """bug-log row 107: an error or Ctrl-C in the middle of a step leaves no environment open."""
    before = num_open()
    episodes = manager(group_size=4, corridor=corridor(num_groups=2))

    def break_off() -> None:
        with episodes:
            begin(episodes)
            assert num_open() == before + 8
            raise raised

    with pytest.raises(raised):
        break_off()
    assert num_open() == before
    assert episodes.counts()[EnvStatus.CLOSED] == 8


def test_opening_the_next_step_closes_what_is_left_of_the_last() -> None:
    """bug-log row 107."""
    before = num_open()
    with manager(group_size=3, corridor=corridor()) as episodes:
        for step in range(3):
            begin(episodes, step)
            assert num_open() == before + 3


def test_an_environment_that_cannot_close_masks_no_error_and_keeps_none_open(caplog: pytest.LogCaptureFixture) -> None:
    """bug-log row 107: the error that ended the step is the one that is seen; the failed closes are logged."""
    before = num_open()

    def break_off() -> None:
        with manager(group_size=3, corridor=corridor(raise_in_close=True)) as episodes:
            begin(episodes)
            raise ZeroDivisionError

    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError):
        break_off()
    assert num_open() == before
    assert len(caplog.records) == 3
    assert all("close: Broken: close" in record.getMessage() for record in caplog.records)


def test_closing_twice_is_harmless() -> None:
    episodes = manager(corridor=corridor())
    handle = episodes.open(0)[0][0]
    asyncio.run(handle.reset())
    episodes.close()
    episodes.close()
    handle.close()
    assert handle.status is EnvStatus.CLOSED
