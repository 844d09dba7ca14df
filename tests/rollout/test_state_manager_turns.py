"""Turns of one environment handle: packed actions, budgets, unknown names, ends."""

from __future__ import annotations

import asyncio

import pytest

from ragen.rollout.state_manager import EnvironmentConfig, EnvStatus
from tests.support.episodes import corridor, manager, play


def test_packed_actions_are_executed_in_order_and_their_rewards_added() -> None:
    first, second, third = play(corridor(), ["Right", "left", "RIGHT"], ["Right", "Right", "Right", "Left"])
    assert (first.text, first.instruction, first.actions_left) == ("P _ _ _ G", "Walk to G. Actions: Left, Right.", 10)
    assert (second.text, second.executed, second.actions_left) == ("_ P _ _ G", ("Right", "Left", "Right"), 7)
    assert second.reward == pytest.approx(-0.3)
    assert second.instruction == ""
    assert second.info == {"success": 0.0, "effective": 3.0, "cell": 1.0}  # where it stands; the note is no number
    assert (second.terminated, second.truncated, second.success) == (False, False, False)
    assert (third.text, third.executed) == ("_ _ _ _ P", ("Right", "Right", "Right"))  # the goal comes before the last action
    assert third.reward == pytest.approx(1 - 0.1 - 0.1)
    assert (third.terminated, third.truncated, third.success, third.actions_left) == (True, False, True, 4)


def test_unknown_names_are_rejected_without_cost_and_the_others_executed() -> None:
    _, turn = play(corridor(), ["Jump", "Right", "Rigth", ""])
    assert turn.executed == ("Right",)
    assert turn.rejected == ("Jump", "Rigth", "")
    assert (turn.text, turn.actions_left) == ("_ P _ _ G", 9)


def test_a_turn_without_a_known_action_leaves_the_environment_where_it_was() -> None:
    _, moved, nothing, unknown = play(corridor(), ["Right"], [], ["Fly"])
    assert (nothing.text, nothing.reward, nothing.executed, nothing.info) == (moved.text, 0.0, (), {})
    assert (unknown.text, unknown.rejected, unknown.actions_left) == (moved.text, ("Fly",), 9)


def test_actions_beyond_the_budget_of_the_trajectory_are_not_executed() -> None:
    _, first, second = play(corridor(max_actions=3), ["Right", "Right"], ["Fly", "Right", "Right"])
    assert (first.actions_left, second.actions_left) == (1, 0)
    assert (second.executed, second.rejected, second.text) == (("Right",), ("Fly",), "_ _ _ P G")
    assert (second.terminated, second.truncated) == (False, False)  # our limit, not the environment's


def test_more_actions_than_a_turn_holds_or_than_are_left_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="3 actions in one turn; max_actions_per_turn is 2"):
        play(corridor(max_actions_per_turn=2), ["Right", "Right", "Right"])
    with pytest.raises(ValueError, match="all 1 actions"):
        play(corridor(max_actions=1), ["Right"], ["Right"])


def test_the_environments_own_limit_truncates() -> None:
    *_, last = play(corridor(), ["Left"] * 4, ["Left"] * 4)
    assert (last.terminated, last.truncated, last.success) == (False, True, False)
    assert (len(last.executed), last.actions_left) == (2, 4)  # six steps are all that the corridor allows


def test_reaching_the_goal_on_the_limit_step_is_a_success_and_ends_the_episode_once() -> None:
    """bug-log row 40: terminated and truncated on the same step."""
    *_, last = play(corridor(both_flags=True, start=0), ["Right", "Right"], ["Right", "Right"])
    assert (last.terminated, last.truncated, last.success) == (True, True, True)
    with manager(corridor=corridor(both_flags=True, start=3)) as episodes:
        handle = episodes.open(0)[0][0]
        asyncio.run(handle.reset())
        asyncio.run(handle.step(["Right"]))
        assert handle.status is EnvStatus.ENDED
        with pytest.raises(RuntimeError, match="this one is ended"):
            asyncio.run(handle.step(["Right"]))


def test_free_text_is_never_rejected() -> None:
    with manager(ticket=EnvironmentConfig(name="ticket")) as episodes:
        handle = episodes.open(0)[0][0]
        asyncio.run(handle.reset())
        assert handle.action_names is None
        turn = asyncio.run(handle.step(["  Any Thing "]))
    assert (turn.executed, turn.rejected) == (("  Any Thing ",), ())


@pytest.mark.parametrize("observation", ["empty", "unicode", "huge"])
def test_odd_texts_pass_through_unchanged(observation: str) -> None:
    seen = {"empty": "", "unicode": "▢ 🧍 ▢ ▢ 🏁", "huge": "x" * 100_000}
    assert play(corridor(observation=observation), ["Right"])[1].text == seen[observation]
