from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ragen.engines.scripted import ScriptedEngine
from ragen.errors import ConfigError, ModelError, TrainingError
from ragen.models.chat import ChatTemplate
from ragen.records import EndReason, Group, Sampling, Split, Trajectory
from ragen.rollout.collect import Progress, _say_once, collect, context_factory
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.state_manager import EnvHandle, EnvStateManager, EnvStatus
from tests.support.corridor import num_open
from tests.support.episodes import manager
from tests.support.rollouts import SAMPLING, contexts, corridor, encode, walk
from tests.support.tokenizers import T_SWITCH, make_tokenizer

STEP = encode(walk("Right", "Right"))  # two such turns solve the corridor


def step_right(prompt_ids: Sequence[int], sampling: Sampling) -> Sequence[int]:
    return STEP


def gather(
    episodes: EnvStateManager,
    engine: ScriptedEngine,
    *,
    on_progress: Progress | None = None,
    make_context: Any = None,
    **rollout: Any,
) -> list[Group]:
    handles = episodes.open(0)
    return asyncio.run(
        collect(handles, make_context or contexts(), engine, SAMPLING, RolloutConfig(**rollout), on_progress=on_progress)
    )


def everything(groups: Sequence[Group]) -> list[Trajectory]:
    return [t for group in groups for t in (*group.trajectories, *group.failed)]


def test_groups_are_those_that_share_an_initial_state() -> None:
    """Bug-log row 33: 2 prompts x 4 rollouts are two groups of four, whoever is ready first."""
    engine = ScriptedEngine(step_right, delay=lambda call: 17 * (8 - call % 8) % 11)
    groups = gather(manager(group_size=4, corridor=corridor(num_groups=2, start=None)), engine)
    keys = [[t.key for t in group.trajectories] for group in groups]
    assert [[(key.group, key.member) for key in group] for group in keys] == [[(g, m) for m in range(4)] for g in range(2)]
    assert [len({key.task_seed for key in group}) for group in keys] == [1, 1]
    assert len({key.task_seed for group in keys for key in group}) == 2
    assert len({key.dynamics_seed for group in keys for key in group}) == 8
    for group in groups:
        assert len({t.turns[0].observation for t in group.trajectories}) == 1


def test_trajectories_run_at_the_same_time() -> None:
    engine = ScriptedEngine(step_right, delay=lambda call: 3)
    gather(manager(group_size=3, corridor=corridor()), engine)
    lengths = [len(request.prompt_ids) for request in engine.requests]
    assert lengths == sorted(lengths)  # all first turns are asked for before any second one
    assert len(lengths) == 6


def test_progress_counts_trajectories_and_sampled_tokens() -> None:
    seen: list[tuple[int, int, int]] = []
    episodes = manager(group_size=2, corridor=corridor(max_turns=1))
    gather(episodes, ScriptedEngine(step_right), on_progress=lambda *counts: seen.append(counts))
    assert seen == [(1, 2, len(STEP)), (2, 2, 2 * len(STEP))]


def test_a_template_that_cannot_be_appended_to_is_said_aloud_once(caplog: pytest.LogCaptureFixture) -> None:
    """Bug-log row 5: what it costs and the way out, before the first step; nothing where several turns are not asked for."""
    _say_once.cache_clear()
    template = ChatTemplate(make_tokenizer("plain", T_SWITCH))
    for config in (RolloutConfig(), RolloutConfig(), RolloutConfig(context=ContextConfig(mode="window"))):
        for max_turns in (1, 3):
            handle = manager(corridor=corridor(max_turns=max_turns)).open(0)[0][0]
            context_factory(template, config)(handle)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "tokenizer: the chat template rewrites earlier turns (drops their thoughts): every turn is a training sample of its own"
        " with its whole prompt, not one sample per trajectory. To append instead: model.template_options={keep_thoughts: true}"
        " or rollout.context.think=false or another model"
    ]


def breaks(seed: int, frac: float) -> bool:
    """Whether the corridor of this dynamics seed is one of those that raise."""
    return float(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))).random()) < frac


@pytest.mark.parametrize("fault", [{"raise_at_step": 2}, {"raise_in_reset": True}])
def test_a_few_broken_episodes_are_put_aside_and_counted(fault: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Bug-log row 44 and invariant I6: 1 in 8 environments raises, in its second step or in reset."""
    episodes = manager(group_size=8, corridor=corridor(num_groups=4, raise_frac=1 / 8, **fault))
    with caplog.at_level(logging.WARNING):
        groups = gather(episodes, ScriptedEngine(step_right), max_replacements_frac=0.0)
    started = [t.key for t in everything(groups)]
    failed = [t for group in groups for t in group.failed]
    assert len(started) == len(set(started)) == 32
    assert {t.key for t in failed} == {key for key in started if breaks(key.dynamics_seed, 1 / 8)}
    assert 0 < len(failed) < 8
    assert {t.end_reason for t in failed} == {EndReason.ENVIRONMENT_ERROR}
    assert all(t.end_reason is EndReason.SOLVED for group in groups for t in group.trajectories)
    assert episodes.counts()[EnvStatus.ENDED] + episodes.counts()[EnvStatus.FAILED] == 32
    first = f"{len(failed)} of 32 trajectories failed and are left out; the first: environment 'corridor' (step 0, group "
    assert caplog.messages[0].startswith(first)


@pytest.mark.parametrize("fault", [{"raise_at_step": 1}, {"raise_in_reset": True}])
def test_broken_episodes_are_replaced_within_their_group(fault: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Bug-log row 44: 1 in 8 raises; another episode from the same initial state takes its place, and its own order."""
    episodes = manager(group_size=8, corridor=corridor(num_groups=4, start=None, raise_frac=1 / 8, **fault))
    with caplog.at_level(logging.WARNING):
        groups = gather(episodes, ScriptedEngine(step_right))
    failed = [t for group in groups for t in group.failed]
    assert len({t.key for t in everything(groups)}) == 32 + len(failed)
    assert 0 < len(failed) <= 8
    for group in groups:
        assert [t.key.member for t in group.trajectories] == list(range(8))
        assert len({t.key.task_seed for t in (*group.trajectories, *group.failed)}) == 1
        assert len({t.key.dynamics_seed for t in (*group.trajectories, *group.failed)}) == 8 + len(group.failed)
        assert len({t.turns[0].observation for t in group.trajectories}) == 1
        lost = {t.key.member for t in group.failed}
        assert {t.key.member for t in group.trajectories if t.key.attempt} == lost
    for t in everything(groups):
        assert breaks(t.key.dynamics_seed, 1 / 8) == t.end_reason.is_infrastructure
    assert f"of 32 trajectories failed, 0 are left out after {len(failed)} replacements; the first: " in caplog.text
    assert num_open() == 0


def test_replacements_do_not_depend_on_who_answers_first() -> None:
    config = corridor(num_groups=3, start=None, slip=0.3, raise_at_step=2, raise_frac=0.2)
    runs = [
        everything(gather(manager(group_size=4, corridor=config), ScriptedEngine(step_right, delay=delay), max_failed_frac=1.0))
        for delay in (lambda call: 0, lambda call: 7 * call % 5)
    ]
    assert any(t.key.attempt for t in runs[0])
    assert [(t.key, t.end_reason, t.rewards) for t in runs[0]] == [(t.key, t.end_reason, t.rewards) for t in runs[1]]


def test_a_group_that_can_never_be_played_leaves_the_others_their_replacements() -> None:
    """Bug-log row 44: one initial state is broken for good; it is given up after as many attempts as it has members."""
    both = {"dead": corridor(raise_in_reset=True), "alive": corridor(num_groups=7, raise_at_step=2, raise_frac=0.15)}
    with EnvStateManager(both, group_size=4, run_seed=5, split=Split.TRAIN) as episodes:
        dead, *alive = gather(episodes, ScriptedEngine(step_right), max_failed_frac=1.0, max_replacements_frac=0.5)
    assert dead.trajectories == ()
    assert len(dead.failed) == 4 + 4
    assert [len(group.trajectories) for group in alive] == [4] * 7
    assert any(group.failed for group in alive)


def test_replacements_end_with_the_budget_of_the_step() -> None:
    episodes = manager(group_size=4, corridor=corridor(num_groups=3, raise_in_reset=True))
    groups = gather(episodes, ScriptedEngine(step_right), max_failed_frac=1.0, max_replacements_frac=0.2)
    assert sum(t.key.attempt > 0 for t in everything(groups)) == 2  # a fifth of 12, rounded down
    assert [t.key.attempt for t in groups[0].failed] == [0, 1, 2, 0, 0, 0]


def test_environments_of_one_batch_keep_their_own_shares_and_limits() -> None:
    """Three tags with their own number of groups, turns, actions, actions in a turn, and place to run in."""
    tags = {
        "long": corridor(num_groups=2, max_turns=6, max_actions=5, max_actions_per_turn=2),
        "short": corridor(num_groups=1, max_turns=1),
        "beside": corridor(num_groups=1, max_turns=2, max_actions=2, max_actions_per_turn=1, runs_in="thread"),
    }
    left = encode(walk("Left", "Left"))
    with EnvStateManager(tags, group_size=2, run_seed=0, split=Split.TRAIN) as episodes:
        groups = gather(episodes, ScriptedEngine(lambda prompt_ids, sampling: left))
    seen = {t.key.environment: (t.end_reason, len(t.turns), t.num_actions) for t in everything(groups)}
    assert [group.trajectories[0].key.environment for group in groups] == ["long", "long", "short", "beside"]
    assert seen == {
        "long": (EndReason.ACTION_LIMIT, 3, 5),  # two, two and one
        "short": (EndReason.TURN_LIMIT, 1, 2),
        "beside": (EndReason.ACTION_LIMIT, 2, 2),  # the second action of each reply is one too many
    }
    beginnings = {t.key.environment: t.turns[0].observation for t in everything(groups)}
    assert {tag: [line for line in text.split("\n") if " left: " in line] for tag, text in beginnings.items()} == {
        "long": ["Turns left: 6", "Actions left: 5"],
        "short": ["Turns left: 1", "Actions left: 10"],
        "beside": ["Turns left: 2", "Actions left: 2"],
    }


@pytest.mark.parametrize("fault", [{"raise_at_step": 2}, {"raise_in_reset": True}])
def test_broken_episodes_everywhere_stop_the_run_with_the_first_cause(fault: dict[str, Any]) -> None:
    """Bug-log row 44: the environment raises in all episodes; the third failure in eight is one too many, replaced or not."""
    expected = (
        r"^3 of 8 trajectories failed, more than rollout.max_failed_frac=0.25 allows; "
        r"the first: environment 'corridor' \(step 0, group 0, member 0, .*Broken: "
    )
    with pytest.raises(TrainingError, match=expected):
        gather(manager(group_size=8, corridor=corridor(**fault)), ScriptedEngine(step_right))
    assert num_open() == 0


def test_the_share_of_failures_that_is_allowed_is_allowed() -> None:
    episodes = manager(group_size=4, corridor=corridor(max_turns=1))
    (group,) = gather(episodes, ScriptedEngine(step_right, fail_at={2}), max_failed_frac=0.25, max_replacements_frac=0.0)
    assert [t.key.member for t in group.trajectories] == [0, 1, 3]
    assert [(t.key.member, t.end_reason) for t in group.failed] == [(2, EndReason.ENGINE_ERROR)]
    with pytest.raises(TrainingError, match="2 of 4"):
        gather(episodes, ScriptedEngine(step_right, fail_at={0, 2}), max_failed_frac=0.25)


def test_no_failure_is_allowed_where_the_share_is_zero() -> None:
    with pytest.raises(TrainingError, match="1 of 4"):
        gather(manager(group_size=4, corridor=corridor()), ScriptedEngine(step_right, fail_at={1}), max_failed_frac=0.0)


def test_a_bug_comes_out_as_itself_and_everything_is_closed() -> None:
    """Bug-log row 107: not wrapped, not taken for a failure of the environment, nothing left open."""

    def buggy(prompt_ids: Sequence[int], sampling: Sampling) -> Sequence[int]:
        if len(engine.requests) == 5:
            raise KeyError("a bug")
        return STEP

    engine = ScriptedEngine(buggy, delay=lambda call: call)
    episodes = manager(group_size=4, corridor=corridor())
    with pytest.raises(KeyError, match="a bug"):
        gather(episodes, engine)
    assert num_open() == 0
    assert episodes.counts()[EnvStatus.RUNNING] == episodes.counts()[EnvStatus.NEW] == 0


def test_a_setting_at_fault_comes_out_as_itself() -> None:
    with pytest.raises(ConfigError, match="max_context_tokens=10"):
        gather(manager(group_size=4, corridor=corridor()), ScriptedEngine([]), make_context=contexts(max_context_tokens=10))
    assert num_open() == 0


def test_ctrl_c_closes_everything() -> None:
    """Bug-log row 107: the signal comes while trajectories are running."""

    def interrupt(*counts: int) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        gather(
            manager(group_size=4, corridor=corridor()),
            ScriptedEngine(step_right, delay=lambda call: call),
            on_progress=interrupt,
        )
    assert num_open() == 0


def test_a_cancelled_collection_closes_everything() -> None:
    """Bug-log row 107."""
    episodes = manager(group_size=3, corridor=corridor())
    engine = ScriptedEngine(step_right, delay=lambda call: 1_000_000)

    async def cancel_while_running() -> int:
        task = asyncio.create_task(collect(episodes.open(0), contexts(), engine, SAMPLING, RolloutConfig()))
        while len(engine.requests) < 3:
            await asyncio.sleep(0)
        open_before = num_open()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return open_before

    assert asyncio.run(cancel_while_running()) == 3
    assert num_open() == 0


def test_handles_whose_trajectory_could_not_begin_are_closed_too() -> None:
    """Bug-log row 107: nobody can begin them later and leave them open."""

    def refuse(handle: EnvHandle) -> ContextManager:
        raise ModelError("no chat template")

    episodes = manager(group_size=3, corridor=corridor())
    with pytest.raises(ModelError, match="no chat template"):
        gather(episodes, ScriptedEngine([]), make_context=refuse)
    assert episodes.counts()[EnvStatus.CLOSED] == 3
