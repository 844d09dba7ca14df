"""What an environment answers is checked before anything is made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragen.rollout.answers import read_answer, read_names, read_text

GOOD: tuple[Any, ...] = ("seen", 0.5, False, True, {"success": True, "effective": False})


def with_(position: int, value: Any) -> tuple[Any, ...]:
    return *GOOD[:position], value, *GOOD[position + 1 :]


def test_a_good_answer_is_read_into_plain_types() -> None:
    answer = read_answer(("seen", np.float32(0.5), np.bool_(True), False, {"success": np.bool_(True), "num": np.int64(3)}))
    assert (answer.text, answer.reward, answer.terminated, answer.truncated, answer.success) == ("seen", 0.5, True, False, True)
    assert answer.info == {"success": 1.0, "num": 3.0}
    assert [type(value) for value in (answer.reward, answer.terminated, answer.success)] == [float, bool, bool]


def test_only_finite_numbers_of_the_info_are_kept() -> None:
    info = {"success": False, "note": "text", "list": [1], "none": None, "nan": float("nan"), "inf": float("inf"), "n": 2}
    assert read_answer(with_(4, info)).info == {"success": 0.0, "n": 2.0}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (GOOD[:4], "unpack"),
        (None, "unpack"),
        (with_(0, None), "must be a str, not NoneType"),
        (with_(0, b"seen"), "must be a str, not bytes"),
        (with_(0, "\ud800"), "surrogates not allowed"),
        (with_(1, None), "finite number, not None"),
        (with_(1, float("nan")), "finite number, not nan"),
        (with_(1, float("-inf")), "finite number, not -inf"),
        (with_(1, "1.0"), "finite number, not '1.0'"),
        (with_(1, True), "finite number, not True"),
        (with_(2, None), "terminated must be a bool"),
        (with_(3, 1), "truncated must be a bool"),
        (with_(4, None), "info must be a dict"),
        (with_(4, {}), "must hold 'success'"),
        (with_(4, {"success": 1}), "success'] must be a bool, not 1"),
    ],
)
def test_each_wrong_answer_is_refused_with_its_reason(answer: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        read_answer(answer)
    assert says in str(caught.value)


def test_an_empty_text_and_grid_symbols_are_texts() -> None:
    assert read_text("") == ""
    assert read_text("🧍🏁▢") == "🧍🏁▢"


def test_action_names_are_read_as_a_tuple_of_plain_strings_or_none() -> None:
    assert read_names(None) is None
    assert read_names(["Up", np.str_("Down")]) == ("Up", "Down")
    assert [type(name) for name in read_names([np.str_("Down")]) or ()] == [str]


@pytest.mark.parametrize("names", ["Up", 3, {"Up": 1}, ("Up", 2), [None]])
def test_action_names_of_any_other_kind_are_refused(names: Any) -> None:
    with pytest.raises(TypeError, match="action_names must be a tuple of str"):
        read_names(names)
