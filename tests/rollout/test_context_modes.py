"""What is shown, forgotten and written down: context modes, overflow and summaries, on small conversations worked by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ragen.engines.scripted import Script
from ragen.errors import ConfigError, ModelError
from ragen.records import Observation, Sampling
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.layout import SUMMARY_REQUEST
from ragen.rollout.memory import PAST, Exchange, Message
from tests.support.contexts import (
    ALL_ACTIONS,
    FIRST,
    FIRST_AND_LAST,
    LAST_ACTIONS,
    RESERVE,
    Played,
    assert_exact,
    assert_sound,
    make_context,
    play,
    subject,
)
from tests.support.conversations import encode
from tests.support.tokenizers import T_STRIP, T_THINK, make_tokenizer

GOOD = "go</think><answer>Left</answer>"


def seen(count: int) -> list[Observation]:
    return [Observation(text=f"cell {i}", reward=-0.1, executed=("Left",), actions_left=9 - i) for i in range(count)]


def saying(*texts: str) -> Script:
    """Replies and summaries in the order in which they are asked for; the last one over and over."""
    ids = [encode(make_tokenizer(), text) for text in texts]

    def script(prompt_ids: Sequence[int], sampling: Sampling) -> Sequence[int]:
        return ids[min(sampling.seed[-1], len(ids) - 1)]

    return script


def prompts(played: Played) -> list[str]:
    return [str(played.tokenizer.decode(list(request.prompt_ids))) for request in played.requests]


def cells(prompt: str) -> list[str]:
    """The observations in a prompt, in order."""
    return [line for line in prompt.split("\n") if line.startswith(("cell", "P _ G"))]


# --- modes ------------------------------------------------------------------------------------------------------------------


def test_a_window_shows_the_last_turns_and_begins_a_segment_once_one_is_forgotten() -> None:
    played = play(saying(GOOD), seen(3), mode="window", window=2)
    assert [cells(prompt) for prompt in prompts(played)] == [
        ["P _ G"],
        ["P _ G", "cell 0"],
        ["cell 0", "cell 1"],
        ["cell 1", "cell 2"],
    ]
    assert [turn.segment for turn in played.trajectory.turns] == [0, 0, 1, 2]
    assert all(prompt.count("Walk to G.") == prompt.count("Example answer format") == 1 for prompt in prompts(played))
    assert_sound(played)
    assert_exact(played)


def test_a_single_turn_is_one_message_with_the_past_as_text() -> None:
    played = play(saying(GOOD), seen(3), mode="single_turn", window=3)
    assert [prompt.count("<|im_start|>user") for prompt in prompts(played)] == [1, 1, 1, 1]
    assert [cells(prompt) for prompt in prompts(played)] == [
        ["P _ G"],
        ["P _ G", "cell 0"],
        ["P _ G", "cell 0", "cell 1"],
        ["cell 0", "cell 1", "cell 2"],
    ]
    assert "Turn 2:\ncell 0\nYou did: Left. Reward: -0.1.\nTurn 3:\n" in prompts(played)[3]
    assert all("<answer>Left</answer><|im_end|>" not in prompt for prompt in prompts(played))  # no reply is shown
    assert_exact(played)


def test_hidden_rewards_stay_hidden_in_every_mode() -> None:
    for mode in ("full", "window", "single_turn"):
        assert not any("Reward" in prompt for prompt in prompts(play(saying(GOOD), seen(3), mode=mode, show_reward=False)))


def test_a_template_that_rewrites_turns_gives_a_segment_a_turn_in_every_mode() -> None:
    """Bug-log row 5."""
    for mode in ("full", "window", "single_turn", LAST_ACTIONS, FIRST_AND_LAST):
        played = play(saying(GOOD), seen(2), subject("plain", T_STRIP), mode=mode)
        assert [turn.segment for turn in played.trajectory.turns] == [0, 1, 2]


def test_a_memory_whose_messages_go_on_is_appended_to() -> None:
    played = play(saying(GOOD), seen(3), mode=FIRST_AND_LAST)
    assert [turn.segment for turn in played.trajectory.turns] == [0, 0, 1, 2]
    assert [cells(prompt) for prompt in prompts(played)][1:] == [["P _ G", f"cell {i}"] for i in range(3)]


class Broken:
    """A memory that fails once there is a past."""

    def recall(self, exchanges: Sequence[Exchange]) -> Sequence[Message]:
        past = exchanges[-2].reply if len(exchanges) > 1 else "none"
        return [{"role": "user", "content": {"none": "begin"}[str(past)]}]


class Talkative:
    """A memory that forgets the question."""

    def recall(self, exchanges: Sequence[Exchange]) -> Sequence[Message]:
        return [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}][: len(exchanges)]


@pytest.mark.parametrize(
    ("memory", "said"), [(Broken, "KeyError: '<think>go"), (Talkative, "the user's last; roles: user, assistant")]
)
def test_a_memory_that_fails_in_an_episode_is_a_setting_at_fault(memory: type, said: str) -> None:
    mode = f"{__name__}:{memory.__name__}"
    with pytest.raises(ConfigError, match=rf"^rollout\.context\.mode='{mode}': .*{said}"):
        play(saying(GOOD), seen(1), mode=mode)


# --- overflow ---------------------------------------------------------------------------------------------------------------


def room_for(turns: int, spare: int = 0, **config: Any) -> int:
    """`max_context_tokens` with which so many turns fit exactly, and `spare` tokens."""
    return len(play(saying(GOOD), seen(turns - 1), **config).requests[-1].prompt_ids) + RESERVE + spare


@pytest.mark.parametrize(("spare", "num_turns"), [(-1, 2), (0, 3), (1, 3)])
def test_an_episode_ends_where_its_history_does_not_fit(spare: int, num_turns: int) -> None:
    """Bug-log row 53: by a token too many, exactly, by one less."""
    played = play(saying(GOOD), seen(3), max_context_tokens=room_for(3, spare))
    assert (len(played.trajectory.turns), played.context.has_room) == (num_turns, False)
    assert_sound(played)


@pytest.mark.parametrize(("spare", "shown"), [(-1, ["cell 1"]), (0, ["cell 0", "cell 1"])])
def test_whole_oldest_turns_are_dropped_until_a_reply_fits(spare: int, shown: list[str]) -> None:
    """Nothing is cut: a turn is shown whole or not at all, and the task always."""
    opening_of_two = len(play(saying(GOOD), seen(2), mode="window", window=2).requests[2].prompt_ids)
    played = play(saying(GOOD), seen(2), overflow="drop", max_context_tokens=opening_of_two + RESERVE + spare)
    assert cells(prompts(played)[2]) == shown
    assert prompts(played)[2].count("Walk to G.") == 1
    assert played.context.has_room
    assert_sound(played)
    assert_exact(played)


def test_an_episode_of_many_turns_goes_on_in_little_room() -> None:
    """The memory is asked again without each oldest turn: however long the episode, and whatever it shows."""
    for mode in ({"mode": "full"}, {"mode": "window", "window": 3}, {"mode": "single_turn"}):
        first = make_context(subject().chat, 2)
        first.observe(FIRST)
        room = len(first.prompt_ids) + RESERVE + 60
        played = play(saying(GOOD), seen(60), **mode, overflow="drop", max_context_tokens=room)
        assert len(played.trajectory.turns) == 61
        assert_sound(played)


def test_one_message_that_is_too_long_ends_the_episode_whatever_is_dropped() -> None:
    long = [*seen(2), Observation(text="x" * 2000)]
    for overflow in ("drop", "summarise"):
        config: dict[str, Any] = {"overflow": overflow, "max_context_tokens": 1500}
        played = play(saying(GOOD), long, **config)
        assert (len(played.trajectory.turns), played.context.has_room) == (3, False)
        assert_sound(played)


# --- summaries --------------------------------------------------------------------------------------------------------------


def test_the_model_writes_a_summary_and_the_history_goes_on_from_it() -> None:
    script = saying(GOOD, GOOD, " I went left twice. ", GOOD)
    played = play(script, seen(3), overflow="summarise", summarise_every=2, summary_tokens=30)
    said = prompts(played)
    assert said[2].endswith(f"<|im_start|>user\n{SUMMARY_REQUEST}<|im_end|>\n<|im_start|>assistant\n")
    assert cells(said[2]) == ["P _ G", "cell 0"]  # the state that follows the last reply is not told twice
    assert f"Walk to G.\n{PAST}\nI went left twice.\nNow:\nReward: -0.1\ncell 1\n" in said[3]
    assert cells(said[3]) == ["cell 1"]
    assert [turn.segment for turn in played.trajectory.turns] == [0, 0, 1, 1]
    (summary,) = played.trajectory.summaries
    assert (summary.segment, summary.num_turns, summary.text, summary.trained) == (0, 2, "I went left twice.", True)
    asked = [request.sampling for request in played.requests]
    assert [request.max_new_tokens for request in asked] == [RESERVE, RESERVE, 30, RESERVE, RESERVE]
    assert (asked[2].stop_texts, asked[2].stop_ids) == ((), asked[0].stop_ids)
    assert [request.seed[-1] for request in asked] == [0, 1, 2, 3, 4]
    assert_sound(played)
    assert_exact(played)


def test_a_template_that_rewrites_turns_is_asked_for_a_summary_in_a_segment_of_its_own() -> None:
    script = saying(GOOD, GOOD, "Left twice.", GOOD)
    played = play(script, seen(2), subject("plain", T_STRIP), overflow="summarise", summarise_every=2)
    assert [turn.segment for turn in played.trajectory.turns] == [0, 1, 3]
    assert played.trajectory.summaries[0].segment == 2
    assert "go</think>" not in prompts(played)[2]  # as the template shows earlier turns
    assert_sound(played)
    assert_exact(played)


@pytest.mark.parametrize(("spare", "num_summaries"), [(-1, 1), (0, 0)])
def test_room_for_the_request_and_the_summary_is_kept_to_the_token(spare: int, num_summaries: int) -> None:
    """Bug-log rows 53 and 54."""
    free = play(saying(GOOD), seen(2), overflow="summarise", summary_tokens=9)
    request = len(subject().chat.append_user(SUMMARY_REQUEST, last_id=None)) + 9
    room = len(free.requests[-1].prompt_ids) + RESERVE + request + spare
    played = play(saying(GOOD), seen(2), overflow="summarise", summary_tokens=9, max_context_tokens=room)
    assert len(played.trajectory.summaries) == num_summaries
    assert_sound(played)


def test_a_summary_of_the_summary_follows_when_room_runs_out_again() -> None:
    played = play(saying(GOOD, "north", GOOD, "south", GOOD), seen(2), overflow="summarise", summarise_every=1)
    assert [summary.text for summary in played.trajectory.summaries] == ["north", "south"]
    assert f"{PAST}\nnorth\n" in prompts(played)[3]  # the second request shows what the first one left
    assert f"{PAST}\nsouth\n" in prompts(played)[4]
    assert "north" not in prompts(played)[4]


@pytest.mark.parametrize(
    ("text", "kept"), [("", ""), (" \n", ""), ("hm</think>\nGo left.", "Go left."), ("<think>hm</think>", "")]
)
def test_nothing_and_thoughts_are_no_summary(text: str, kept: str) -> None:
    """Bug-log row 62, and models that always think first."""
    played = play(saying(GOOD, text, GOOD), seen(1), overflow="summarise", summarise_every=1)
    assert played.trajectory.summaries[0].text == kept
    assert (PAST in prompts(played)[2]) is bool(kept)
    assert_sound(played)


@pytest.mark.parametrize(("text", "kept"), [("hm</think>Go left.", "Go left."), ("hm, still thinking", "")])
def test_a_thought_that_the_template_opens_is_not_part_of_the_summary_closed_or_not(text: str, kept: str) -> None:
    played = play(saying(GOOD, text, GOOD), seen(1), subject("plain", T_THINK), overflow="summarise", summarise_every=1)
    assert prompts(played)[1].endswith("<think>\n")
    assert played.trajectory.summaries[0].text == kept


def test_a_long_summary_is_cut_like_an_observation_and_says_so() -> None:
    played = play(saying(GOOD, "ab" * 10, GOOD), seen(1), overflow="summarise", summarise_every=1, max_observation_chars=15)
    assert f"{PAST}\nabababababababa\n[5 more characters cut]\n" in prompts(played)[2]
    assert played.trajectory.summaries[0].text == "ab" * 10


def test_a_function_writes_summaries_without_the_model() -> None:
    played = play(saying(GOOD), seen(3), overflow="summarise", summarise_every=2, summariser=ALL_ACTIONS)
    assert (len(played.requests), played.trajectory.summaries) == (4, ())
    assert [turn.segment for turn in played.trajectory.turns] == [0, 0, 1, 1]
    assert f"{PAST}\n 2 turns: ['Left', 'Left']\n" in prompts(played)[2]
    assert_sound(played)


def says_nothing(exchanges: Sequence[Exchange]) -> None:
    """Not a summary."""


def fails(exchanges: Sequence[Exchange]) -> str:
    raise RuntimeError("no idea")


def half_a_pair(exchanges: Sequence[Exchange]) -> str:
    return "\ud800"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (says_nothing, "must return a text that UTF-8 can hold, not None"),
        (half_a_pair, "must return a text that UTF-8 can hold, not "),
        (fails, "RuntimeError: no idea"),
    ],
)
def test_a_summariser_that_fails_is_a_setting_at_fault(function: Callable[..., object], said: str) -> None:
    path = f"{__name__}:{function.__name__}"
    with pytest.raises(ConfigError, match=rf"^rollout\.context\.summariser='{path}': {said}"):
        play(saying(GOOD), seen(1), overflow="summarise", summarise_every=1, summariser=path)


def test_a_first_prompt_without_room_for_a_summary_says_so() -> None:
    with pytest.raises(ConfigError, match=r"a reply may take 40, with room for a summary; must be at least \d+$"):
        play(saying(GOOD), [], overflow="summarise", max_context_tokens=400)


# --- settings ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"mode": "windw"}, r"mode='windw': must be one of full, window, single_turn; did you mean 'window'"),
        ({"overflow": "cut"}, r"overflow='cut': must be one of end, drop, summarise"),
        ({"mode": "window", "window": 0}, r"window=0: must be at least 1"),
        ({"overflow": "summarise", "summarise_every": -1}, r"summarise_every=-1: must be at least 0"),
        ({"overflow": "summarise", "summary_tokens": 0}, r"summary_tokens=0: must be at least 1"),
        ({"window": 3}, r"window=3: has no effect without rollout\.context\.mode=window or single_turn"),
        ({"summarise_every": 2}, r"summarise_every=2: has no effect without rollout\.context\.overflow=summarise"),
        ({"train_summaries": False}, r"train_summaries=False: has no effect without"),
        ({"overflow": "summarise", "summariser": ALL_ACTIONS, "summary_tokens": 9}, r"summary_tokens=9: has no effect without"),
        ({"overflow": "summarise", "mode": "window"}, r"overflow=summarise: .*set rollout\.context\.mode=full, not window"),
        ({"show_return": True, "show_reward": False}, r"show_return=true: goes with rollout\.context\.show_reward=true"),
        ({"mode": "nowhere:Memory"}, r"mode='nowhere:Memory': cannot be imported"),
        ({"overflow": "summarise", "summariser": "nowhere:f"}, r"summariser='nowhere:f': cannot be imported"),
    ],
)
def test_impossible_settings_and_those_without_effect_are_refused_by_name(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^rollout\.context\.{message}"):
        ContextConfig(**setting).check()


def test_a_template_that_cannot_show_two_turns_is_refused_before_the_first() -> None:
    lossy = "{{ messages[0]['content'] + '\n' + messages[-1]['content'] }}"
    with pytest.raises(ModelError, match="use environments with max_turns=1 or another model"):
        make_context(subject("plain", lossy).chat, 2, mode="window")
    make_context(subject("plain", lossy).chat, 1, mode="window")


def test_a_turn_keeps_what_the_environment_showed_apart_from_the_message_around_it() -> None:
    """What groups by state compare: the history that single_turn puts into the message is no part of it."""
    played = play(saying(GOOD), seen(2), mode="single_turn")
    assert [turn.state for turn in played.trajectory.turns] == ["P _ G", "cell 0", "cell 1"]
    assert all(turn.state in turn.observation for turn in played.trajectory.turns)
