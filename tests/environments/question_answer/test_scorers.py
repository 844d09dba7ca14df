"""Which answers count as equal to the right one."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.environments.question_answer import scorers
from ragen.environments.question_answer.scorers import exact_verdict, math_verdict, numeric_verdict

needs_library = pytest.mark.skipif(find_spec("math_verify") is None, reason="needs math-verify")

HOSTILE = (
    "9**9**9",
    "9^9^9",
    "9^{9^{9^9}}",
    "(9)^{9}^{9}",
    "9^{99999}",
    "99999999!",
    "9!!",
    "9" * 400,
    "x" * 1_000_000,
    "[" * 400,
    "{" * 400 + "}" * 400,
    "$" * 300,
    "\\boxed{" * 60,
    "\\frac{" * 80,
    "\\sum_{i=1}^{99999999} i^9",
    "\x00",
    "\ud800",
    "\N{GRINNING FACE}",
    "",
    "nan",
    "\\infty",
)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("Paris", " paris. ", True),
        ("New York", "new\n york", True),
        ("Paris", "Paris, France", False),
        ("1/2", "0.5", False),
        ("2", "two", False),
    ],
)
def test_exact_compares_words(gold: str, answer: str, right: bool) -> None:
    assert exact_verdict(gold, answer).score == float(right)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("1000", "1,000", True),
        ("18", "$18.00", True),
        ("18", "18 apples", True),
        ("1/2", "0.5", True),
        ("18", "17", False),
        ("18", "-18", False),
        ("0.3333", "1/3", False),
    ],
)
def test_numeric_compares_values(gold: str, answer: str, right: bool) -> None:
    assert numeric_verdict(gold, answer).score == float(right)


def test_numeric_says_when_an_answer_is_not_one_number() -> None:
    verdict = numeric_verdict("18", "9 + 9")
    assert (verdict.score, verdict.problem) == (0.0, "Your answer is not one number.")


@needs_library
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("0.5", "1/2"),
        ("1/2", "0.5"),
        ("\\frac{1}{2}", "0.5"),
        ("\\frac12", "1/2"),
        ("\\frac{1}{2}", "\\boxed{\\frac{1}{2}}"),
        ("\\frac{1}{3}", "0.3333333"),
        ("x+1", "1+x"),
        ("x+1", "$1 + x$"),
        ("(x+1)^2", "x^2+2x+1"),
        ("2x", "x*2"),
        ("1000", "1,000"),
        ("1500", "1.5\\times10^{3}"),
        ("5", "x = 5"),
        ("x = 5", "5"),
        ("7", "7\\text{ cm}"),
        ("90^\\circ", "90"),
        ("50\\%", "50"),
        ("\\{1,2\\}", "\\{2,1\\}"),
        ("(1,2)", "(1, 2)"),
        ("\\sqrt{2}", "sqrt(2)"),
        ("5\\sqrt{2}", "\\sqrt{50}"),
        ("9\\pi", "\\pi \\cdot 9"),
        ("x^2 + y^2", "y^2 + x^2"),
        ("\\begin{pmatrix}1&2\\end{pmatrix}", "\\begin{pmatrix} 1 & 2 \\end{pmatrix}"),
        ("Paris", "paris"),
    ],
)
def test_answers_that_mean_the_same_are_right(gold: str, answer: str) -> None:
    assert math_verdict(gold, answer).score == 1.0


@needs_library
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("18", "17"),
        ("1/3", "0.33"),
        ("x+1", "x+2"),
        ("x^2+1", "y^2+1"),
        ("(1,2)", "(2,1)"),
        ("[0,1)", "[0,1]"),
        ("5", "5 or 6"),
        ("5", "4,5"),
        ("2x", "2"),
        ("2", "2x"),
        ("1", "nan"),
        ("Paris", "Prias"),  # to math-verify both are a product of the same letters
        ("1", "because it is one"),
    ],
)
def test_answers_that_mean_something_else_are_wrong(gold: str, answer: str) -> None:
    assert math_verdict(gold, answer).score == 0.0


@pytest.mark.parametrize(
    "answer", ["3+4", "3 + 4", "14/2", "\\frac{14}{2}", "7*1", "7\\cdot1", "2^2+3", "\\sqrt{49}", "sqrt(49)", "3 4", "7!"]
)
def test_a_calculation_is_not_the_number_it_comes_to(answer: str) -> None:
    """Otherwise repeating the question would answer it."""
    verdict = math_verdict("7", answer)
    assert (verdict.score, verdict.problem) == (0.0, "Your answer leaves arithmetic undone.")


@needs_library
@pytest.mark.parametrize("answer", HOSTILE)
def test_hostile_answers_are_wrong_and_said_to_be(answer: str) -> None:
    assert math_verdict("x^2+1", answer).score == 0.0


@needs_library
def test_an_answer_that_overruns_the_limit_is_wrong_and_the_next_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert math_verdict("x+3", "3+x").score == 1.0  # the helper is running, so the limit below is for the answer alone
    monkeypatch.setattr(scorers, "VERIFY_LIMIT_S", 0.3)
    verdict = math_verdict("x^2+1", "(9^{9999})^{9999}")
    assert (verdict.score, verdict.problem) == (0.0, "Your answer could not be checked.")
    monkeypatch.undo()
    assert math_verdict("x+4", "4+x").score == 1.0


@needs_library
def test_answers_are_judged_on_any_thread() -> None:
    """math-verify's own time limit is an alarm signal, which only a main thread may set."""
    scores: list[float] = []
    thread = threading.Thread(target=lambda: scores.append(math_verdict("a+b", "b+a").score))
    thread.start()
    thread.join()
    assert scores == [1.0]


@needs_library
def test_an_answer_is_never_run_as_code(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for text in (f"__import__('pathlib').Path('{mark}').touch()", f"\\text{{open('{mark}','w')}}", f"x_{{open('{mark}','w')}}"):
        assert math_verdict("x^2+1", text).score == 0.0
    assert not mark.exists()


@needs_library
@settings(max_examples=30, deadline=None)
@given(st.text("0123456789+-*/^_(){}[]\\,.=x ", max_size=25))
def test_any_text_gets_a_verdict(text: str) -> None:
    assert math_verdict("x+1", text).score in (0.0, 1.0)


@pytest.mark.parametrize(
    ("gold", "answer"), [("42", "42"), ("1,000", "1000"), ("3/4", "0.75"), ("-2", "\N{MINUS SIGN}2"), ("42", "43")]
)
def test_plain_numbers_are_judged_without_the_helper(gold: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorers, "_child", None)
    assert math_verdict(gold, answer).score == float(answer != "43")
