"""Observations of every kind become text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.adapters.texts import as_text, plain_ansi, sections_for_agents


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (np.str_("text"), "text"),
        (3, "3"),
        (np.int64(-7), "-7"),
        (True, "true"),
        (np.bool_(False), "false"),
        (0.123456, "0.1235"),
        (np.float32(-0.0), "0"),
        ((11, 10, 0), "11, 10, 0"),
        (np.array(5), "5"),
        (np.array([0.5, -0.0, 12345.678]), "0.5 0 1.235e+04"),
        (np.array([[1, 2], [3, 4]]), "1 2\n3 4"),
        (np.array([[[1, 2]], [[3, 4]]]), "1 2\n\n3 4"),
        ({"a": 1, "b": np.array([[1, 2], [3, 4]])}, "a: 1\nb:\n1 2\n3 4"),
        (({"x": 1, "y": 2}, 3), "x: 1\ny: 2\n3"),
        ([[1, 2], [3, 4]], "1, 2\n3, 4"),
        (("left", "right"), "left, right"),
        ((), ""),
        (None, "None"),
    ],
)
def test_a_value_is_written_as_a_person_would(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_a_picture_is_described_and_not_written_out() -> None:
    picture = np.zeros((210, 160, 3), dtype=np.uint8)
    picture[3, 4, 1] = 200
    assert as_text({"screen": picture}) == "screen: array of shape 210 x 160 x 3, values 0 to 200"
    assert len(as_text(np.zeros((32, 32), dtype=np.int8)).splitlines()) == 32


@given(st.integers(0, 2**32 - 1))
def test_whatever_lies_in_a_space_of_gymnasium_has_a_text(seed: int) -> None:
    space = spaces.Dict(
        {
            "graph": spaces.Tuple((spaces.MultiBinary((2, 3)), spaces.Text(5), spaces.MultiDiscrete([2, 3]))),
            "box": spaces.Box(-np.inf, np.inf, (3,)),
            "many": spaces.Sequence(spaces.Discrete(4)),
            "one": spaces.OneOf((spaces.Discrete(2), spaces.Box(0, 1, ()))),
        },
        seed=seed,
    )
    text = as_text(space.sample())
    assert [line.partition(":")[0] for line in text.splitlines() if ":" in line] == sorted(space.keys(), key=list(space).index)


def test_colours_become_words_since_they_may_be_all_that_marks_the_player() -> None:
    """FrozenLake shows the player as a letter on red; Taxi the passenger in bold blue."""
    assert plain_ansi("  (Down)\n\x1b[41mS\x1b[0mFF\n") == "  (Down)\n[red:S]FF"
    assert plain_ansi("|\x1b[34;1mR\x1b[0m: |\x1b[43m \x1b[0m|") == "|[blue:R]: |[yellow: ]|"
    assert plain_ansi("\x1b[1mbold\x1b[0m \x1b[2Jcleared \x1b[31mleft open") == "bold cleared left open"


def test_of_a_docstring_the_sections_for_programmers_are_dropped() -> None:
    doc = "First.\n\n## Description\nA lake.\n\n## Arguments\nmake('x')\n\n## Rewards\n- goal: 1\n\n## Version History\n* v1"
    assert sections_for_agents(doc) == "First.\nDescription:\nA lake.\nRewards:\n- goal: 1"
    assert sections_for_agents("Only this.") == "Only this."
