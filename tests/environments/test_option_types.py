"""What an option may be, and what becomes of a value that is or is not of its type."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Literal, Optional, Union

import pytest

from ragen.environments.option_types import can_be_given, type_name, typed
from ragen.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "hint", "read"),
    [
        (3, int, 3),
        (3, float, 3.0),
        ("x", str | None, "x"),
        (None, Optional[int], None),  # noqa: UP045
        ("x", Union[int, str], "x"),  # noqa: UP007
        ([1, "a"], list, [1, "a"]),
        ([1, "a"], typing.List, [1, "a"]),  # noqa: UP006
        ((1, 2), typing.List[float], [1.0, 2.0]),  # noqa: UP006
        ([[1], []], list[list[int]], [[1], []]),
        ([], list[str] | None, []),
        ({"a": [1]}, dict, {"a": [1]}),
        ({1: "x"}, typing.Dict, {"1": "x"}),  # noqa: UP006
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        ("b", Literal["a", "b"], "b"),
        (None, Literal["a"] | None, None),
        (8, int | tuple[int, int], 8),
        (object, Any, object),
    ],
)
def test_a_value_of_the_type_is_read_as_it(value: Any, hint: Any, read: Any) -> None:
    found = typed(value, hint, "x")
    assert found == read
    assert type(found) is type(read)


@pytest.mark.parametrize(
    ("value", "hint", "says"),
    [
        (3, list, "x=3: must be list, not int"),
        (3, typing.List, "x=3: must be list, not int"),  # noqa: UP006
        ("abc", dict, "x='abc': must be dict, not str"),
        (["1"], list[int], "x[0]='1': must be int, not str"),
        ({"a": "1"}, dict[str, int], "x.a='1': must be int, not str"),
        (True, float, "x=True: must be float, not bool"),
        ("hrad", Literal["easy", "hard"], "x='hrad': must be one of 'easy', 'hard'; did you mean 'hard'?"),
        (True, Literal[1, 2], "x=True: must be one of 1, 2"),
        (3, Literal["a"] | None, "x=3: must be one of 'a', None"),
        ([1, 2], int | tuple[int, int], "x=[1, 2]: must be int, not list"),
        ([1, 2], tuple[int, int], "x=[1, 2]: its type tuple[int, int] is none that an option can have (bool, int, float, str, "),
        ("f", Callable[[], int] | None, "is none that an option can have"),
        ({"a": 1}, dict[int, int], "its type dict[int, int] is none that an option can have"),
        ([1], list[set[int]], "its type list[set[int]] is none that an option can have"),
    ],
)
def test_any_other_value_is_refused_in_one_line(value: Any, hint: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        typed(value, hint, "x")
    assert str(caught.value).startswith(says) or says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_type_is_written_as_in_code() -> None:
    assert type_name(Optional[list[int]]) == "list[int] | None"  # noqa: UP045
    assert type_name(typing.Dict) == "dict"  # noqa: UP006
    assert type_name(Literal["a", 1]) == "Literal['a', 1]"
    assert type_name(Any) == "Any"


def test_an_optional_that_could_only_be_none_cannot_be_given() -> None:
    assert can_be_given(int | None)
    assert can_be_given(int | tuple[int, int])
    assert not can_be_given(tuple[int, int] | None)
    assert not can_be_given(typing.Sequence)
