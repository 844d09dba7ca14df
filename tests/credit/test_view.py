from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ragen.credit.view import TrajectoryView, Values, make_views
from ragen.errors import TrainingError
from ragen.records import EndReason, FinishReason, Group, Segment, Summary, Trajectory
from tests.support.samples import make_group, make_trajectory
from tests.support.views import make_view


def view_of(trajectory: Trajectory, values: Values | None = None) -> TrajectoryView:
    said = None if values is None else {trajectory.key: values}
    (view,) = make_views([Group(trajectories=(trajectory,))], values=said)
    return view


def segment(*mask: int) -> Segment:
    ids = np.arange(len(mask), dtype=np.int32)
    return Segment(ids=ids, mask=np.array(mask, dtype=np.bool_), logprobs=np.zeros(len(mask), dtype=np.float32))


def with_segments(trajectory: Trajectory, *segments: Segment, spans: list[tuple[int, int, int]]) -> Trajectory:
    """The same turns at other places: (segment, start, stop) each."""
    turns = [replace(t, segment=i, start=a, stop=b) for t, (i, a, b) in zip(trajectory.turns, spans, strict=True)]
    return replace(trajectory, segments=segments, turns=tuple(turns))


TWO_TURNS = make_trajectory([1, 2], [3, 4], [5, 5, 5], [6], rewards=[1, 2], penalties=[-0.5, 0], num_executed=2)


def test_a_turn_has_its_sampled_tokens_and_what_it_earned() -> None:
    """Bug-log rows 23 and 24: every turn's reward is there, and what was read between turns is not."""
    view = view_of(TWO_TURNS)
    assert (view.lengths, view.rewards, view.num_actions, view.states) == ((2, 1), (0.5, 2.0), (2, 2), ("o", "o"))
    assert (view.return_, view.num_tokens, view.tag, view.group) == (2.5, 3, "corridor", 0)
    assert view.values is None


def test_segments_follow_each_other_on_the_axis_of_trained_tokens() -> None:
    """The same two turns, each in a sequence of its own whose prompt holds tokens that were trained before."""
    cut = with_segments(TWO_TURNS, segment(0, 0, 1, 1), segment(0, 0, 0, 0, 1), spans=[(0, 2, 4), (1, 4, 5)])
    assert view_of(cut).lengths == view_of(TWO_TURNS).lengths


def summary(**changes: object) -> Summary:
    fields = {
        "segment": 0,
        "start": 4,
        "stop": 7,
        "num_turns": 1,
        "text": "",
        "trained": True,
        "finish_reason": FinishReason.STOP,
        "policy_version": 0,
    }
    return Summary(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_trained_summary_belongs_to_the_turn_behind_it() -> None:
    cut = with_segments(TWO_TURNS, segment(0, 0, 1, 1, 1, 1, 1), segment(0, 1), spans=[(0, 2, 4), (1, 1, 2)])
    assert view_of(replace(cut, summaries=(summary(),))).lengths == (2, 4)
    assert view_of(replace(cut, summaries=(summary(trained=False),))).lengths == (2, 1)


def test_a_summary_that_no_turn_follows_belongs_to_the_last_one() -> None:
    cut = with_segments(TWO_TURNS, segment(0, 1, 1, 0, 1, 1, 1, 1), spans=[(0, 1, 3), (0, 4, 5)])
    assert view_of(replace(cut, summaries=(summary(start=5, stop=8),))).lengths == (2, 4)


@pytest.mark.parametrize(
    ("replies", "lengths", "rewards"),
    [
        (([3, 3], [], [3]), (2, 1), (1 + 2, 4)),
        (([], [3, 3], [3]), (2, 1), (1 + 2, 4)),
        (([3], [], []), (1,), (7,)),
        (([], [], [3, 3]), (2,), (7,)),
        (([], [], []), (0,), (7,)),
    ],
)
def test_a_turn_without_a_token_is_merged_into_its_neighbour(
    replies: tuple[list[int], ...], lengths: tuple[int, ...], rewards: tuple[float, ...]
) -> None:
    first, second, third = replies
    view = view_of(make_trajectory([1], first, [9], second, [9], third, rewards=[1, 2, 4]))
    assert (view.lengths, view.rewards, view.return_) == (lengths, rewards, 7.0)
    assert sum(view.num_actions) == 3


def test_a_trajectory_without_turns_is_seen() -> None:
    view = view_of(make_trajectory([1]))
    assert (view.lengths, view.return_) == ((0,), 0.0)


@pytest.mark.parametrize("reason", list(EndReason))
def test_the_value_behind_the_end_counts_only_where_the_task_goes_on(reason: EndReason) -> None:
    """An announced budget ends the task; a limit that the agent could not know does not."""
    values = Values(tokens=np.array([0.1, 0.2, 0.3]), after=4.0)
    view = view_of(replace(TWO_TURNS, end_reason=reason, truncated=reason.is_truncation), values)
    assert view.values is not None
    assert view.values.tolist() == [0.1, 0.2, 0.3]
    assert view.bootstrap == (4.0 if reason in (EndReason.TRUNCATED, EndReason.CONTEXT_LIMIT) else 0.0)


def test_a_budget_that_was_not_announced_does_not_end_the_task() -> None:
    """rollout.context.show_budget=false: the trajectory says so, its end reason alone does not."""
    values = Values(tokens=np.array([0.1, 0.2, 0.3]), after=4.0)
    assert view_of(replace(TWO_TURNS, end_reason=EndReason.TURN_LIMIT, truncated=True), values).bootstrap == 4.0


def test_only_scored_trajectories_are_seen_each_with_its_group() -> None:
    """Bug-log rows 18 and 20."""
    lost = make_group(1.0, 2.0, failed=[EndReason.TIMEOUT])
    abstained = Group(trajectories=(), abstained=make_group(5.0).trajectories)
    assert [(v.group, v.return_) for v in make_views([lost, abstained, make_group(3.0)])] == [(0, 1), (0, 2), (2, 3)]


def test_token_rewards_add_to_the_return() -> None:
    key = TWO_TURNS.key
    (view,) = make_views([Group(trajectories=(TWO_TURNS,))], token_rewards={key: np.array([0.25, 0, -1])})
    assert view.return_ == 1.75
    assert view.rewards_per_token().tolist() == [0.25, 0.5, 1.0]
    assert view.rewards_per_turn().tolist() == [0.75, 1.0]


def test_values_for_other_tokens_than_there_are_are_refused() -> None:
    with pytest.raises(AssertionError):
        view_of(TWO_TURNS, Values(tokens=np.zeros(2), after=0.0))


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 1e39])
def test_a_return_that_is_no_trainable_number_names_its_trajectory(broken: float) -> None:
    """Bug-log row 19: no NaN goes unseen. 1e39 is finite, but not in the float32 of an advantage."""
    with pytest.raises(TrainingError, match=r"return \S+ of corridor group 3 member 1 \(task seed 103\)"):
        make_views([make_group(0.0, 1.0), make_group(0.0, broken, group=3)])


def test_time_passes_by_token_action_or_turn() -> None:
    view = make_view((2, 1), (0, 0), num_actions=(3, 0))
    assert view.ticks("token").tolist() == [1, 1, 1]
    assert view.ticks("action").tolist() == [0, 3, 0]
    assert view.ticks("turn").tolist() == [0, 1, 1]


def test_rewards_at_the_end_stand_on_the_last_turn() -> None:
    view = make_view((2, 1), (1, 2), token_rewards=(5, 0, 0)).with_reward_at_end()
    assert view.rewards == (0, 3)
    assert view.rewards_per_token().tolist() == [5, 0, 3]
