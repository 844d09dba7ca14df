from __future__ import annotations

from dataclasses import replace

import pytest

from ragen.errors import ConfigError
from ragen.rollout.memory import Exchange, SingleTurn, Window, chat, checked, load_memory, load_summariser
from tests.support.contexts import ALL_ACTIONS, LAST_ACTIONS


def exchange(number: int, **changes: object) -> Exchange:
    """Turn `number`, answered and played."""
    told = Exchange(
        number=number,
        task="Walk to G.",
        observation=f"cell {number}",
        state=f"cell {number}\nTurns left: {9 - number}",
        news=f"Reward: {number}" if number > 1 else "",
        how="Say <answer>.",
        reminder="Again.",
        reply=f"reply {number}",
        actions=("Left", "Right")[: number % 3],
        reward=0.5,
    )
    return replace(told, **changes)  # type: ignore[arg-type]


PAST = [exchange(1), exchange(2), exchange(3)]
NOW = exchange(4, reply=None, actions=(), reward=None)


def test_a_chat_opens_with_the_task_and_goes_on_with_what_is_new() -> None:
    assert chat([PAST[0], PAST[1]]) == [
        {"role": "user", "content": "Walk to G.\ncell 1\nTurns left: 8\nSay <answer>."},
        {"role": "assistant", "content": "reply 1"},
        {"role": "user", "content": "Reward: 2\ncell 2\nTurns left: 7\nAgain."},
        {"role": "assistant", "content": "reply 2"},
    ]


def test_a_window_opens_the_chat_anew_with_its_first_turn() -> None:
    assert Window(2).recall([*PAST, NOW]) == [
        {"role": "user", "content": "Walk to G.\nReward: 3\ncell 3\nTurns left: 6\nSay <answer>."},
        {"role": "assistant", "content": "reply 3"},
        {"role": "user", "content": "Reward: 4\ncell 4\nTurns left: 5\nAgain."},
    ]
    assert Window(4).recall([*PAST, NOW]) == Window(9).recall([*PAST, NOW]) == chat([*PAST, NOW])


def test_a_single_turn_tells_the_turns_before_it_in_a_list() -> None:
    (message,) = SingleTurn(3).recall([*PAST, NOW])
    assert message["content"].split("\n") == [
        "Walk to G.",
        "What happened so far:",
        "Turn 2:",
        "cell 2",
        "You did: Left, Right. Reward: 0.5.",
        "Turn 3:",
        "cell 3",
        "You did: nothing valid. Reward: 0.5.",
        "Now:",
        "Reward: 4",
        "cell 4",
        "Turns left: 5",
        "Say <answer>.",
    ]


def test_a_single_turn_without_a_past_is_the_task_and_the_state() -> None:
    opening = [{"role": "user", "content": "Walk to G.\nReward: 4\ncell 4\nTurns left: 5\nSay <answer>."}]
    assert SingleTurn(1).recall([*PAST, NOW]) == SingleTurn(5).recall([NOW]) == opening


def test_a_reward_that_is_hidden_is_not_told_later_either() -> None:
    (message,) = SingleTurn(2).recall([exchange(1, reward=None), replace(NOW, news="")])
    assert "You did: Left.\n" in message["content"]
    assert "Reward" not in message["content"]


def test_notes_of_a_summary_and_of_a_memory_stand_behind_the_task() -> None:
    assert replace(NOW, notes="Summary.").opening("Own.") == (
        "Walk to G.\nSummary.\nOwn.\nNow:\nReward: 4\ncell 4\nTurns left: 5\nSay <answer>."
    )


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "roles: none"),
        ([{"role": "system", "content": "s"}], "roles: system"),
        ([{"role": "user", "content": "u"}] * 2, "roles: user, user"),
        ([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "roles: user, assistant"),
        (["u"], "roles: str"),
        ([{"content": "u"}], "roles: None"),
        ([{"role": "user", "content": 3}], "must be text that UTF-8 can hold: 3"),
        ([{"role": "user"}], "must be text that UTF-8 can hold: None"),
    ],
)
def test_a_chat_that_cannot_be_answered_is_refused(messages: object, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^here: .*{said}"):
        checked(messages, "here")


def test_messages_may_come_one_by_one_and_lose_what_else_they_hold() -> None:
    assert checked(({"role": "user", "content": text, "name": "n"} for text in "u"), "") == [{"role": "user", "content": "u"}]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_such_module:Memory", r"cannot be imported: ModuleNotFoundError"),
        (":Memory", "must be 'module:name'"),
        ("tests.support.contexts:", "must be 'module:name'"),
        ("tests.support.contexts:LastAction", "did you mean 'LastActions'"),
        ("tests.support.contexts:KEY", "has no 'KEY' that can be called"),
        ("builtins:dict", r"must be a class with a method recall\(exchanges\)"),
        ("tests.support.contexts:FIRST_AND_LAST", "has no 'FIRST_AND_LAST' that can be called"),
        (ALL_ACTIONS, "missing 1 required positional argument"),
    ],
)
def test_a_memory_that_cannot_be_had_is_refused_by_name(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^rollout\.context\.mode='{path}'.*{said}"):
        load_memory(path, 4)


def test_every_trajectory_has_a_memory_of_its_own() -> None:
    assert load_memory(LAST_ACTIONS, 4) is not load_memory(LAST_ACTIONS, 4)


def test_a_summariser_that_cannot_be_had_is_refused_by_name() -> None:
    assert callable(load_summariser(ALL_ACTIONS))
    with pytest.raises(ConfigError, match=r"^rollout\.context\.summariser='tests\.support\.contexts:all_action': .*all_actions"):
        load_summariser("tests.support.contexts:all_action")
