"""What reaches the scorers of reasoning-gym, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.reasoning.gates import GATES, is_plain_expression


@pytest.mark.parametrize(
    "text",
    [
        "82 + 20 + 67 - 50",
        "(1 + 2)*3/4",
        "-9*x**8/10 + 3*x**4/2 + C",
        "2*(-10*x - 10)**(3/2)/3 + C",
        "x**(-2)",
        "exp(x)*sin(2*X) + log(x)",
        "E**(2*x)",
        "sqrt(x**2 + 1)",
        " 1.5 ",
    ],
)
def test_arithmetic_over_numbers_letters_and_elementary_functions_is_plain(text: str) -> None:
    assert is_plain_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "__import__('os').system('true')",
        "().__class__",
        "x.real",
        "[1, 2]",
        "'text'",
        "lambda: 1",
        "(x for x in y)",
        "x if y else z",
        "x == y",
        "f(x)",
        "exp(x, evaluate=False)",
        "Integral(x, x)",
        "preview(x)",
        "True",
        "1j",
        "factorial(9)",
        "5!",
        "9**9**9",
        "9**(9**9)",
        "(9**99)**99",
        "x**y",
        "x**101",
        "2**-101",
        "9**1e3",
        "10000000000000",
        "1e13",
        "1//2",
        "7 % 2",
        "1 << 70",
        "\x00",
        "(" * 300,
        "-" * 900,
        "1+" * 500 + "1",
    ],
)
def test_anything_else_is_not(text: str) -> None:
    assert not is_plain_expression(text)


@given(st.text(max_size=80) | st.text("0123456789+-*/() xE.", max_size=80))
def test_any_text_is_judged_without_an_error(text: str) -> None:
    assert isinstance(is_plain_expression(text), bool)


def test_four_numbers_that_make_24_must_be_the_numbers_of_the_problem() -> None:
    item = {"metadata": {"numbers": [4, 8, 6, 2]}}
    assert GATES["puzzle24"]("4*8 - 6 - 2", item)
    assert not GATES["puzzle24"]("6*4*1*1", item)
    assert not GATES["puzzle24"]("4*8 - 6", item)


@pytest.mark.parametrize(
    ("dataset", "right", "refused"),
    [
        ("game_of_life_halting", "False", "no idea"),
        ("complex_arithmetic", "8.0 + 3.0i", "nan"),
        ("coin_flip", "15/64", "1e999999999"),
        ("propositional_logic", "(P ∧ Q)", "¬" * 5000),
    ],
)
def test_a_text_that_a_scorer_misjudges_or_cannot_stop_on_is_refused(dataset: str, right: str, refused: str) -> None:
    assert GATES[dataset](right, {})
    assert not GATES[dataset](refused, {})
