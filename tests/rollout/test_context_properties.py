"""Whatever a model says and an environment shows, under whatever template and context mode: what is trained is what was seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ragen.engines.scripted import ScriptedReply
from ragen.errors import ConfigError
from ragen.records import FinishReason, Observation, Sampling
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
from tests.support.tokenizers import (
    CHATML,
    END,
    END_OF_TEXT,
    START,
    T_BOS,
    T_DEFSYS,
    T_HEADER,
    T_LATE_SYSTEM,
    T_NOSYS,
    T_PARTS,
    T_STRIP,
    T_SWITCH,
    T_THINK,
    T_TRIM,
    T_WORDS,
    Kind,
    chunks,
)

Odd = tuple[Kind, str]

# Templates that append and templates that rewrite earlier turns, with tokenizers that merge across every boundary.
ODD: list[Odd] = [
    *(("plain", CHATML), ("merge", CHATML), ("pad", T_DEFSYS), ("two-stops", T_NOSYS), ("bos", T_BOS), ("bos", CHATML)),
    *(("non-special", CHATML), ("metaspace", CHATML), ("merge", T_TRIM), ("plain", T_LATE_SYSTEM), ("merge", T_WORDS)),
    *(("plain", T_PARTS), ("plain", T_HEADER), ("merge", T_THINK), ("merge", T_STRIP), ("bos", T_SWITCH)),
]

MODES: list[dict[str, Any]] = [
    {},
    {"mode": "window", "window": 1},
    {"mode": "window", "window": 2},
    {"mode": "window", "window": 3, "overflow": "drop"},
    {"mode": "single_turn"},
    {"mode": "single_turn", "overflow": "drop"},
    {"mode": LAST_ACTIONS},
    {"mode": FIRST_AND_LAST, "overflow": "drop"},
    {"overflow": "drop"},
    {"overflow": "summarise", "summary_tokens": 12},
    {"overflow": "summarise", "summary_tokens": 12, "summarise_every": 1, "train_summaries": False},
    {"overflow": "summarise", "summarise_every": 2},
    {"overflow": "summarise", "summariser": ALL_ACTIONS},
    {"overflow": "summarise", "summariser": ALL_ACTIONS, "summarise_every": 2},
]

WORDS = ["Left", "Right", " || ", "hello", "<answer>", "</answer>", "</think>", "<think>", "\n\n", "\n", " ", "🧍", "é", "P _ G"]
SPELLED = [START, END, END_OF_TEXT, "<|pad|>", f"{END}\n{START}assistant\n"]
VALID = "go</think><answer>Left</answer>"

harmless = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)
hostile = st.lists(st.sampled_from([*WORDS, *SPELLED]), max_size=8).map("".join)


def observations(texts: st.SearchStrategy[str]) -> st.SearchStrategy[list[Observation]]:
    one = st.builds(
        Observation,
        text=texts,
        reward=st.sampled_from([0.0, -0.1, 1.0]),
        executed=st.sampled_from([(), ("Left",), ("Left", "Right")]),
        actions_left=st.integers(0, 10),
    )
    return st.lists(one, min_size=1, max_size=6)


def least_context(odd: Odd, mode: dict[str, Any]) -> int:
    """What the refusal of a smaller `max_context_tokens` says it must be at least."""
    with pytest.raises(ConfigError) as caught:
        make_context(subject(*odd).chat, 7, **mode, max_context_tokens=1).observe(FIRST)
    found = re.search(r"must be at least (\d+)$", str(caught.value))
    assert found is not None
    return int(found[1])


def played(
    odd: Odd,
    mode: dict[str, Any],
    replies: Sequence[ScriptedReply | Sequence[int]],
    seen: Sequence[Observation],
    spare: int,
    **settings: Any,
) -> Played:
    """A conversation with room for the first prompt and `spare` tokens; its replies come round again."""
    room = least_context(odd, {**mode, **settings}) + spare

    def script(prompt_ids: Sequence[int], sampling: Sampling) -> ScriptedReply | Sequence[int]:
        return replies[sampling.seed[-1] % len(replies)]

    done = play(script, seen, subject(*odd), **mode, **settings, max_context_tokens=room)
    num_segments, num_parts = len(done.trajectory.segments), len(done.requests)
    event("one segment" if num_segments == 1 else "a segment per completion" if num_segments == num_parts else "in between")
    event("summaries" if done.trajectory.summaries else "no summaries")
    event("room" if done.context.has_room else "no room")
    return done


@settings(max_examples=200)
@given(
    odd=st.sampled_from(ODD),
    mode=st.sampled_from(MODES),
    replies=st.lists(
        st.builds(
            ScriptedReply,
            ids=st.lists(st.integers(0, 285), max_size=RESERVE + 5).map(tuple),
            finish_reason=st.sampled_from(FinishReason),
        ),
        min_size=1,
        max_size=4,
    ),
    seen=observations(hostile),
    spare=st.integers(0, 900),
    think=st.booleans(),
    prefix=st.booleans(),
)
def test_any_ids_and_any_observation_in_any_mode(
    odd: Odd,
    mode: dict[str, Any],
    replies: list[ScriptedReply],
    seen: list[Observation],
    spare: int,
    think: bool,
    prefix: bool,
) -> None:
    """I1 to I3, room for every completion, each trained once: bug-log rows 1, 2, 7 to 10, 15, 53, 54, 62.

    The ids are any of the vocabulary: halves of characters, control ids, nothing at all.
    """
    think = think or odd[1] == T_THINK
    assert_sound(played(odd, mode, replies, seen, spare, think=think, reply_prefix=prefix))


@settings(max_examples=200)
@given(
    odd=st.sampled_from(ODD),
    mode=st.sampled_from(MODES),
    texts=st.lists(st.one_of(harmless, st.just(VALID)), min_size=1, max_size=4),
    seen=observations(harmless),
    spare=st.integers(0, 900),
    think=st.booleans(),
    bytewise=st.booleans(),
    closed=st.booleans(),
)
def test_every_prompt_is_the_template_s_own_rendering(
    odd: Odd,
    mode: dict[str, Any],
    texts: list[str],
    seen: list[Observation],
    spare: int,
    think: bool,
    bytewise: bool,
    closed: bool,
) -> None:
    """Bug-log rows 3, 4, 5, 6, 11, 12: appended or begun anew, outside the sampled spans the ids are those of the template."""
    kind, template = odd
    tokenizer, chat = subject(*odd).tokenizer, subject(*odd).chat
    replies = [chunks(tokenizer, text) if bytewise and kind != "metaspace" else encode(tokenizer, text) for text in texts]
    if closed and chat.end_of_turn_id is not None:
        replies = [[*reply, chat.end_of_turn_id] for reply in replies]
    done = played(odd, mode, replies, seen, spare, think=think or template == T_THINK)
    assert_sound(done)
    assert_exact(done)
