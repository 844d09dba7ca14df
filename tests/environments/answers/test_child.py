"""The helper process: it answers, reports failures, ends what overruns, and is replaced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragen.environments.answers.child import Child, ChildLost
from ragen.errors import ConfigError, EnvironmentFailure

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    child = Child("tests.support.helper_child")
    yield child
    child.close()


def test_it_answers_even_where_the_library_prints(child: Child) -> None:
    assert child.ask("add", {"a": 2, "b": 3}, limit_s=LIMIT_S) == 5


@pytest.mark.parametrize("text", ["", "a\nb", "\x00", "\N{GRINNING FACE}", "\ud800", "x" * 1_000_000])
def test_any_text_arrives_as_it_was_sent(child: Child, text: str) -> None:
    assert child.ask("echo", {"text": text}, limit_s=LIMIT_S) == text


def test_one_process_serves_many_tasks_and_hashes_the_same_everywhere(child: Child) -> None:
    first = child.ask("identity", {}, limit_s=LIMIT_S)
    assert first == child.ask("identity", {}, limit_s=LIMIT_S)
    assert first[0] != os.getpid()
    other = Child("tests.support.helper_child")
    assert other.ask("identity", {}, limit_s=LIMIT_S)[1] == first[1]
    other.close()


def test_what_a_handler_raises_is_raised_here_in_one_line(child: Child) -> None:
    with pytest.raises(ConfigError, match=r"^size=0: must be at least 1$"):
        child.ask("fail", {"kind": "config"}, limit_s=LIMIT_S)
    with pytest.raises(EnvironmentFailure, match=r"^fail: ValueError: not a number$"):
        child.ask("fail", {"kind": "value"}, limit_s=LIMIT_S)
    with pytest.raises(EnvironmentFailure, match=r"^fail: RecursionError"):
        child.ask("fail", {"kind": "recursion"}, limit_s=LIMIT_S)
    assert child.ask("add", {"a": 1, "b": 1}, limit_s=LIMIT_S) == 2


@pytest.mark.parametrize("how", ["asleep", "in one multiplication"])
def test_a_task_that_overruns_is_ended_and_the_next_one_is_answered(child: Child, how: str) -> None:
    with pytest.raises(ChildLost, match=r"no answer to 'hold' within 0.2 s"):
        child.ask("hold", {"how": how}, limit_s=0.2)
    assert child.ask("add", {"a": 4, "b": 4}, limit_s=LIMIT_S) == 8


def test_a_helper_that_dies_is_replaced(child: Child) -> None:
    with pytest.raises(ChildLost):
        child.ask("leave", {}, limit_s=LIMIT_S)
    assert child.ask("add", {"a": 4, "b": 5}, limit_s=LIMIT_S) == 9


def test_threads_get_their_own_answers(child: Child) -> None:
    with ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda n: child.ask("add", {"a": n, "b": n}, limit_s=LIMIT_S), range(100)))
    assert sums == [2 * n for n in range(100)]


def test_a_module_that_cannot_be_imported_is_a_failure_not_a_hang() -> None:
    child = Child("tests.support.no_such_module")
    with pytest.raises(ChildLost):
        child.ask("add", {}, limit_s=LIMIT_S)
