"""Reading an expression: values worked by hand, and against Python's own arithmetic."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.countdown.expression import MAX_CHARACTERS, MAX_DEPTH, ExpressionError, read_expression


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("10 - 4 - 3", 3),
        ("10 - (4 - 3)", 9),
        ("24 / 4 / 2", 3),
        ("24 / (4 / 2)", 12),
        ("2 * 3 - 8 / 4", 4),
        ("7 / 2", Fraction(7, 2)),
        ("8 / (3 - 8 / 3)", 24),  # the well-known one that needs fractions
        ("-3 + 10", 7),
        ("2 * -3", -6),
        ("2 - -(1 + 1)", 4),
        ("+5", 5),
        ("((6))", 6),
        ("\n 1\t+  2 \n", 3),
    ],
)
def test_values_are_those_of_school(text: str, value: Fraction | int) -> None:
    assert read_expression(text).value == value


def test_symbols_that_look_like_the_operations_are_read_as_them() -> None:
    assert read_expression("2 × 3 ÷ 4 − 5 · 6 – 7").value == Fraction(3, 2) - 37  # noqa: RUF001
    assert read_expression("2 × 3").operations == {"*"}  # noqa: RUF001


def test_numbers_come_in_the_order_written_with_repeats() -> None:
    expression = read_expression("(9 - 4) * 9 / 007")
    assert expression.numbers == (9, 4, 9, 7)
    assert expression.operations == {"-", "*", "/"}


@pytest.mark.parametrize("text", ["1 / 0", "5 / (3 - 3)", "1 + 2 * (4 / (2 - 2)) - 3", "0 / 0"])
def test_a_division_by_zero_leaves_no_value(text: str) -> None:
    assert read_expression(text).value is None


@pytest.mark.parametrize("text", ["3 + 4 = 7", "3+4=999", "3 + 4 =-1", "3 + 4 = "])
def test_a_closing_equals_sign_needs_a_whole_number_and_changes_nothing(text: str) -> None:
    if text.endswith("= "):
        with pytest.raises(ExpressionError, match="after '=' only a whole number"):
            read_expression(text)
    else:
        assert read_expression(text).numbers == (3, 4)
        assert read_expression(text).value == 7


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a number is missing at the end"),
        ("   \n", "a number is missing at the end"),
        ("3 +", "a number is missing at the end"),
        ("(3 + 4", r"a '\)' is missing"),
        ("3 + 4)", r"'\)' was not expected after '4'"),
        ("3 4", "'4' was not expected after '3'"),
        ("2(3 + 4)", r"'\(' was not expected after '2'"),
        ("()", r"'\)' stands where a number is needed"),
        ("2 ** 3", r"'\*' stands where a number is needed"),
        ("9**9**9", r"'\*' stands where a number is needed"),
        ("7 // 2", "'/' stands where a number is needed"),
        ("2.5 + 1", r"'\.' was not expected after '2'"),
        ("1e9", "'e' was not expected after '1'"),
        ("the answer is 3 + 4", "'t' stands where a number is needed"),
        ("3 + 4 = 7 = 7", "after '=' only a whole number"),
        ("3 + 4 = seven", "after '=' only a whole number"),
        ("= 7", "a number is missing at the end"),
        ("٣ + 4", "'٣' stands where a number is needed"),  # a digit, but not one of ours
        ("²", "'²' stands where a number is needed"),
        ("3 + \0", r"'\\x00' stands where a number is needed"),
        ("3 + \ud800", r"'\\ud800' stands where a number is needed"),
        ("__import__('os')", "'_' stands where a number is needed"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        read_expression(text)


def test_long_and_deep_texts_are_refused() -> None:
    longest = "1" * MAX_CHARACTERS
    assert read_expression(longest).numbers == (int(longest),)
    deepest = "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH
    assert read_expression(deepest).value == 1
    with pytest.raises(ExpressionError, match="longer than 200 characters"):
        read_expression(longest + "1")
    with pytest.raises(ExpressionError, match="longer than 200 characters"):
        read_expression("(" * 1_000_000)
    for text in (f"({deepest})", "-" * 150 + "1", "(-" * 60 + "1" + ")" * 60):
        with pytest.raises(ExpressionError, match="nested more than 16 deep"):
            read_expression(text)


@given(st.text(max_size=250) | st.text(alphabet="0123456789+-*/()= .", max_size=250))
def test_any_text_is_read_or_refused_in_one_printable_line(text: str) -> None:
    try:
        read_expression(text)
    except ExpressionError as error:
        line = str(error)
        assert line.isprintable()
        assert len(line) < 500


EXPRESSIONS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("-{}".format),
    ),
    max_leaves=8,
).filter(lambda text: len(text) <= MAX_CHARACTERS)


@given(EXPRESSIONS)
def test_values_agree_with_pythons_own_arithmetic(text: str) -> None:
    in_python = re.sub(r"(\d+)", r"Fraction(\1)", text)
    try:
        expected = eval(in_python, {"Fraction": Fraction})  # our own text, not a model's
    except ZeroDivisionError:
        expected = None
    assert read_expression(text).value == expected
