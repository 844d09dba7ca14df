from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ragen.metrics import find
from ragen.records import EndReason, FinishReason, Group, Summary, Verdict
from ragen.training.rollout_metrics import rollout_metrics
from tests.support.samples import make_group, make_trajectory


def example() -> list[Group]:
    """Two groups of two, one of them short of a third member; tags a and b.

    a/0: solved in 2 turns, rewards 1 + 2, 5 tokens. a/1: returns 0.5 - 0.1 - 0.1, both replies unreadable and cut, 2 tokens.
    b/0 and b/1: 1 turn, return 0, 1 token each, b/1 at its second attempt. b/2: timed out after 3 tokens.
    """
    solved = make_trajectory([1], [2, 2, 2], [3], [2, 2], rewards=[1, 2], tag="a", end_reason=EndReason.SOLVED, num_executed=2)
    bad = make_trajectory(
        [1],
        [2],
        [3],
        [2],
        rewards=[0.5, 0],
        penalties=[-0.1, -0.1],
        tag="a",
        member=1,
        end_reason=EndReason.TURN_LIMIT,
        verdict=Verdict.NO_ANSWER,
        finish_reason=FinishReason.LENGTH,
        num_executed=0,
    )
    idle = [make_trajectory([1], [2], tag="b", group=1, member=m) for m in range(2)]
    idle[1] = replace(idle[1], key=replace(idle[1].key, attempt=1))
    lost = make_trajectory([1], [2, 2, 2], rewards=[99], tag="b", group=1, member=2, end_reason=EndReason.TIMEOUT)
    return [Group(trajectories=(solved, bad)), Group(trajectories=tuple(idle), failed=(lost,))]


def test_every_number_by_hand() -> None:
    assert rollout_metrics(example(), seconds=2.0) == pytest.approx(
        {
            "rollout/success": 1 / 4,
            "rollout/return": (3 + 0.3) / 4,
            "rollout/reward": 3.5 / 4,
            "rollout/format_penalty": -0.2 / 4,
            "rollout/format_validity": 4 / 6,
            "rollout/num_turns": 6 / 4,
            "rollout/num_actions": (4 + 0 + 1 + 1) / 4,
            "rollout/response_tokens": (5 + 2 + 1 + 1) / 4,
            "rollout/num_segments": 1,
            "rollout/num_summaries": 0,
            "rollout/summary_tokens": 0,
            "rollout/truncated_reply_frac": 2 / 6,
            "rollout/group_return_std": (2.7 / math.sqrt(2) + 0) / 2,
            "rollout/group_reward_std": (2.5 / math.sqrt(2) + 0) / 2,
            "rollout/group_penalty_std": (0.2 / math.sqrt(2) + 0) / 2,
            "rollout/zero_spread_frac": 1 / 2,
            "rollout/failed_frac": 1 / 5,
            "rollout/replaced_frac": 1 / 4,
            "rollout/end/solved": 1 / 5,
            "rollout/end/failed": 2 / 5,
            "rollout/end/turn_limit": 1 / 5,
            "rollout/end/timeout": 1 / 5,
            "rollout/tokens_per_s": (9 + 3) / 2,
            "rollout/a/success": 1 / 2,
            "rollout/a/return": 3.3 / 2,
            "rollout/b/success": 0,
            "rollout/b/return": 0,
        }
    )


def test_segments_and_summaries_are_counted_per_trajectory() -> None:
    """One trajectory of two segments with summaries of 2 and 3 tokens, one of a single segment."""
    plain = make_trajectory([1], [2], [3], [4, 5], [6], [7, 8, 9])
    summaries = tuple(
        Summary(
            segment=0,
            start=turn.start,
            stop=turn.stop,
            num_turns=1,
            text="s",
            trained=trained,
            finish_reason=FinishReason.STOP,
            policy_version=0,
        )
        for turn, trained in zip(plain.turns[1:], (True, False), strict=True)
    )
    split = replace(plain, segments=plain.segments * 2, summaries=summaries, turns=plain.turns[:1])
    metrics = rollout_metrics([Group(trajectories=(split, make_trajectory([1], [2], member=1)))], seconds=1.0)
    assert metrics["rollout/num_segments"] == 1.5
    assert metrics["rollout/num_summaries"] == 1.0
    assert metrics["rollout/summary_tokens"] == 2.5


def test_what_the_environment_says_of_itself_is_logged_under_its_tag() -> None:
    """Two trajectories of two and one actions, three of them effective in all; deadlock is 0 and 1 when they end."""
    infos = (
        {"success": 0.0, "effective": 1.0, "deadlock": 1.0},
        {"effective": 1.0, "deadlock": 0.0},
        {"effective": 1.0, "deadlock": 1.0},
    )
    one, other = make_trajectory([1], [2], [3], [4]), make_trajectory([1], [2], member=1)
    first, second = (replace(turn, info=info) for turn, info in zip(one.turns, infos, strict=False))
    one = replace(one, turns=(replace(first, executed=("a", "b")), second))
    other = replace(other, turns=(replace(other.turns[0], info=infos[2]),))
    metrics = rollout_metrics([Group(trajectories=(one, other))], seconds=1.0)
    assert metrics["rollout/corridor/effective_frac"] == pytest.approx(3 / 4)
    assert metrics["rollout/corridor/info/deadlock"] == 0.5
    assert "rollout/corridor/info/success" not in metrics
    assert find("rollout/corridor/info/deadlock") is not None


def test_every_key_is_defined() -> None:
    assert [key for key in rollout_metrics(example(), seconds=1.0) if find(key) is None] == []


def test_the_shares_of_the_end_reasons_sum_to_one() -> None:
    metrics = rollout_metrics(example(), seconds=1.0)
    assert sum(value for key, value in metrics.items() if key.startswith("rollout/end/")) == pytest.approx(1)


def test_a_group_of_one_has_no_spread_to_speak_of() -> None:
    """Bug-log row 17: absent rather than NaN or 0."""
    metrics = rollout_metrics([make_group(1.0)], seconds=1.0)
    assert "rollout/group_return_std" not in metrics
    assert "rollout/zero_spread_frac" not in metrics
    assert metrics["rollout/return"] == 1


def test_parts_that_cancel_are_seen_as_a_spread_of_zero() -> None:
    """Bug-log row 21: reward and penalty differ, their sums do not, not even in the last bit that rounding leaves."""
    a = make_trajectory([1], [2], rewards=[0.3], penalties=[-0.1])
    b = make_trajectory([1], [2], rewards=[0.2], member=1)
    assert a.return_ != b.return_
    metrics = rollout_metrics([Group(trajectories=(a, b))], seconds=1.0)
    assert metrics["rollout/zero_spread_frac"] == 1
    assert metrics["rollout/format_penalty"] == pytest.approx(-0.05)
    assert metrics["rollout/group_reward_std"] == pytest.approx(0.1 / math.sqrt(2))
    assert metrics["rollout/group_penalty_std"] == pytest.approx(0.1 / math.sqrt(2))


def test_only_failures_leave_only_what_can_be_known() -> None:
    metrics = rollout_metrics([make_group(failed=[EndReason.ENGINE_ERROR, EndReason.TIMEOUT])], seconds=1.0)
    assert metrics == {
        "rollout/failed_frac": 1,
        "rollout/tokens_per_s": 2,
        "rollout/end/engine_error": 0.5,
        "rollout/end/timeout": 0.5,
    }


def test_a_cut_reply_has_the_length_that_the_loss_sees() -> None:
    """bug-log row 99: one reply cut after 4 tokens, one of 2 that ended: 3 on average, and 6 tokens are trained."""
    cut = make_trajectory([1], [2, 2, 2, 2], finish_reason=FinishReason.LENGTH)
    whole = make_trajectory([1, 1, 1], [2, 2], member=1)
    group = Group(trajectories=(cut, whole))
    assert rollout_metrics([group], seconds=1.0)["rollout/response_tokens"] == 3
    assert sum(int(trajectory.segments[0].mask.sum()) for trajectory in group.trajectories) == 6
