from __future__ import annotations

from typing import Any

import pytest

from ragen.records import Observation, Reply, Verdict
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.layout import Layout
from ragen.rollout.memory import PAST

FIRST = Observation(text="P _ G", instruction="Walk to G.", actions_left=6)
MOVED = Observation(text="_ P G", reward=-0.1 * 3, executed=("Right",), actions_left=5)
GOOD = Reply(text="t", thought="", actions=("Right",), verdict=Verdict.VALID)
BAD = Reply(text="t", thought="", actions=(), verdict=Verdict.NO_ANSWER, feedback="What?")


def layout(*, max_turns: int = 3, max_actions: int = 6, **config: Any) -> Layout:
    settings = ContextConfig(**config)
    env = EnvironmentConfig(name="corridor", max_turns=max_turns, max_actions=max_actions)
    return Layout(settings, settings.reply_format(1), env, max_invalid_turns=3)


def test_state_and_news_of_a_turn_are_kept_apart_from_the_task() -> None:
    made = layout(show_return=True, show_turn=True)
    first = made.first(FIRST, ["Left", "Right"])
    assert (first.number, first.task, first.observation, first.news) == (1, "Walk to G.", "P _ G", "")
    assert first.state == "Turn 1:\nP _ G\nTurns left: 3\nActions left: 6"
    later = made.next(MOVED, GOOD, num_turns=1, num_invalid=0, return_=0.7)
    assert (later.number, later.task, later.news) == (2, "Walk to G.", "Reward: -0.3\nRewards so far: 0.7")
    assert later.state == "Turn 2:\n_ P G\nTurns left: 2\nActions left: 5"
    assert (later.how, later.reminder) == (first.how, first.reminder)


@pytest.mark.parametrize(
    ("num_invalid", "said"),
    [(1, "What? 2 more such replies in a row end the episode."), (2, "What? 1 more such reply ends the episode.")],
)
def test_a_refused_reply_is_told_how_many_like_it_are_left(num_invalid: int, said: str) -> None:
    made = layout(show_reward=False)
    made.first(FIRST, None)
    nothing = Observation(text="P _ G", actions_left=6)
    assert made.next(nothing, BAD, num_turns=1, num_invalid=num_invalid, return_=0.0).news == said


@pytest.mark.parametrize(("max_turns", "max_actions", "is_told"), [(1, 1, False), (1, 2, True), (2, 1, True)])
def test_one_turn_with_one_action_needs_no_budget(max_turns: int, max_actions: int, is_told: bool) -> None:
    first = layout(max_turns=max_turns, max_actions=max_actions).first(FIRST, None)
    assert ("Turns left" in first.state) is is_told


@pytest.mark.parametrize("show_reward", [True, False])
def test_what_came_of_a_turn_is_remembered_unless_it_is_hidden(show_reward: bool) -> None:
    made = layout(show_reward=show_reward)
    done = made.played(made.first(FIRST, None), MOVED)
    assert done.actions == ("Right",)
    assert done.reward == (MOVED.reward if show_reward else None)


def test_a_summary_stands_below_its_heading_and_an_empty_one_nowhere() -> None:
    made = layout(max_observation_chars=4)
    first = made.first(FIRST, None)
    assert made.summed_up(first, "abcdef").notes == f"{PAST}\nabcd\n[2 more characters cut]"
    assert made.summed_up(first, " \n").notes == ""
