"""The actions of an outside environment: their names, how many there may be, and whether the instruction has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments import registry
from ragen.environments.adapters import gymnasium_env
from ragen.environments.adapters.actions import MAX_ACTIONS, mentions_all
from ragen.errors import ConfigError
from tests.support.outside_faults import Named

HERE = "tests.support.outside_faults"


@pytest.mark.parametrize("num_actions", [MAX_ACTIONS + 1, 2**40, 2**62])
def test_more_actions_than_a_prompt_can_name_are_refused_at_once(num_actions: int) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.configure(f"{HERE}:Numbered", {"num_actions": num_actions})
    assert f"action_space=Discrete({num_actions}) of Numbered: must have at most 2000 actions" in str(caught.value)
    assert "give it a Text space" in str(caught.value)


def test_as_many_as_that_are_played() -> None:
    env = registry.make(f"{HERE}:Numbered", {"num_actions": MAX_ACTIONS})
    env.reset(seed=0)
    assert env.action_names == tuple(map(str, range(MAX_ACTIONS)))
    assert env.step("1999")[2] is True


@pytest.mark.parametrize("names", [["a", "b"], ("a", "b"), np.array(["a", "b"])])
def test_names_are_a_list_a_tuple_or_an_array(monkeypatch: pytest.MonkeyPatch, names: Any) -> None:
    monkeypatch.setattr(Named, "action_names", names)
    env = registry.make(f"{HERE}:Named")
    env.reset(seed=0)
    assert env.action_names == ("a", "b")
    assert [type(name) for name in env.action_names] == [str, str]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (5, "action_names=5: must be a list of texts, one for each action, or None"),
        ("ab", "action_names='ab': must be a list of texts"),
        ({0: "left", 1: "right"}, "action_names={0: 'left', 1: 'right'}: must be a list of texts"),
        ((0, 1), "action_names=(0, 1): must be a list of texts"),
        (("left", None), "action_names=('left', None): must be a list of texts"),
        ((), "action_names=[]: action names must be non-empty"),
        (("", "x"), "action_names=['', 'x']: action names must be non-empty and without white space around them"),
        (("go", "GO"), "action_names=['go', 'GO']: action names must differ by more than case"),
        (("a", "b", "c"), "action_names=['a', 'b', 'c']: must be 2 names, one for each action of Named"),
        ([str(i) for i in range(3000)], "must be at most 2000 names, not 3000"),
    ],
)
def test_names_that_are_none_are_refused_in_one_short_line(monkeypatch: pytest.MonkeyPatch, names: Any, says: str) -> None:
    monkeypatch.setattr(Named, "action_names", names)
    monkeypatch.setattr(gymnasium_env, "_probed", set())  # the class passed with other names before
    with pytest.raises(ConfigError) as caught:
        registry.configure(f"{HERE}:Named", {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "names", "mentioned"),
    [
        ("Go left or right.", ("left", "right"), True),
        ("Go leftwards or right.", ("left", "right"), False),
        ("turn left, then move on", ("turn left", "move on"), True),
        ("return left", ("turn left",), False),
        ("say + or -", ("+", "-"), True),
        ("anything", (), True),
    ],
)
def test_a_name_is_mentioned_where_it_stands_as_words_of_its_own(text: str, names: tuple[str, ...], mentioned: bool) -> None:
    assert mentions_all(text, names) is mentioned


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "a b", "b_a", "+", "é"]), max_size=8),
    st.sampled_from(["a", "ab", "a b", "b_a", "é"]),
)
def test_a_text_that_has_a_name_between_spaces_mentions_it(words: list[str], name: str) -> None:
    text = " ".join(words)
    assert mentions_all(text, (name,)) is (f" {name} " in f" {text} ".replace("+", " + "))


def test_arguments_that_no_option_can_have_stay_at_their_defaults() -> None:
    name = f"{HERE}:Annotated"
    assert {
        option.name: option.type for option in registry.describe(name).options if option.name in ("items", "mode", "size")
    } == {
        "items": "list",
        "mode": "Literal['easy', 'hard']",
        "size": "int | tuple[int, int]",
    }
    made: Any = registry.make(name, {"items": ["a", 2], "mode": "hard", "size": 5, "anything": {"x": 1}})
    assert (made.outside.items, made.outside.mode, made.outside.size, made.outside.anything) == (["a", 2], "hard", 5, {"x": 1})
    plain: Any = registry.make(name)
    assert (plain.outside.items, plain.outside.size, plain.outside.weights) == ([1], (3, 4), None)
    for options, says in (
        ({"mode": "hrad"}, r"mode='hrad': must be one of 'easy', 'hard'; did you mean 'hard'\?"),
        ({"size": [1, 2]}, r"size=\[1, 2\]: must be int, not list"),
        ({"weights": [1]}, r"weights=\[1\]: its type .* is none that an option can have"),
        ({"items": 3}, "items=3: must be list, not int"),
    ):
        with pytest.raises(ConfigError, match=says):
            registry.configure(name, options)


def test_an_argument_that_must_be_given_and_cannot_is_refused_with_the_class() -> None:
    with pytest.raises(ConfigError, match=r"argument 'pair' must be given, but its type tuple\[int, int\] is none .*default"):
        registry.configure(f"{HERE}:NeedsATuple", {})
