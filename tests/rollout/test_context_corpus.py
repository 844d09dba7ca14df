"""Every context mode with real chat templates of many model families, those of an installed package; none is kept here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ragen.models.chat import ChatTemplate
from ragen.records import Observation, Sampling
from tests.support.contexts import ALL_ACTIONS, FIRST_AND_LAST, Subject, assert_exact, assert_sound, play
from tests.support.template_corpus import INSTALL, templates, tokenizer_of
from tests.support.tokenizers import chunks

MODES: list[dict[str, Any]] = [
    {},
    {"mode": "window", "window": 2},
    {"mode": "single_turn"},
    {"mode": FIRST_AND_LAST},
    {"overflow": "summarise", "summarise_every": 2},
    {"overflow": "summarise", "summarise_every": 3, "summariser": ALL_ACTIONS},
]
SEEN = [Observation(text=f"P _ G {turn}", reward=-0.1, executed=("Left",), actions_left=9 - turn) for turn in range(4)]


@pytest.mark.skipif(len(templates()) < 25, reason=f"needs the templates of TRL: {INSTALL}")
@pytest.mark.parametrize("name", templates())
def test_every_mode_is_exact_with_real_templates(name: str) -> None:
    """Bug-log rows 3 to 6, 11, 12 and 59: one sample per trajectory where the template appends, else one per completion."""
    tokenizer = tokenizer_of(name)
    over = Subject(tokenizer=tokenizer, chat=ChatTemplate(tokenizer))
    for mode in MODES:
        for think in (True, False):
            if over.chat.layout.prompt_problem or (over.chat.opens_with("<think>") and not think):
                continue
            reply = chunks(tokenizer, "go</think><answer>Left</answer>" if think else "Left</answer>")

            def script(prompt_ids: Sequence[int], sampling: Sampling, reply: list[int] = reply) -> Sequence[int]:
                return reply

            played = play(script, SEEN, over, think=think, **mode)
            assert_sound(played)
            assert_exact(played)
            num_completions = len(played.requests)
            if not over.chat.appends(think):
                assert len(played.trajectory.segments) == num_completions
            elif mode == {}:
                assert len(played.trajectory.segments) == 1
