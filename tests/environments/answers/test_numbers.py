"""Which number a text states."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.answers.numbers import MAX_LENGTH, read_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        (" 18\n", 18),
        ("018", 18),
        ("-5", -5),
        ("\N{MINUS SIGN}5", -5),
        ("+7", 7),
        ("18.0", 18),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        ("3/4", Fraction(3, 4)),
        ("-6/8", Fraction(-3, 4)),
        ("1,000", 1000),
        ("1{,}000", 1000),
        ("1,234,567.50", Fraction(2469135, 2)),
        ("$18", 18),
        ("-$5", -5),
        ("\\$18", 18),
        ("5 €", 5),
        ("25%", 25),
        ("25\\%", 25),
        ("18 apples", 18),
        ("60 km/h", 60),
        ("5 m", 5),
        ("18 apples and pears.", 18),
        ("$1,234.50 per year", Fraction(2469, 2)),
        ("x = 18", 18),
        ("#### 18", 18),
        ("The answer is 18.", 18),
        ("the final answer is: $18", 18),
        ("\\boxed{18}", 18),
        ("$18$", 18),
        ("**\\boxed{18}**", 18),
    ],
)
def test_a_stated_number_has_its_value(text: str, value: int | Fraction) -> None:
    assert read_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        ".",
        "eighteen",
        "3 or 4",
        "3 + 4 = 7",
        "first 3, then 18",
        "12 34",
        "1 000",
        "1,00",
        "1,0000",
        "2^5",
        "5!",
        "--5",
        "1e3",
        "1/0",
        "8/4",
        "1.5/2",
        "2x",
        "5pi",
        "2 dozen",
        "3 thousand",
        "x",
        "nan",
        "inf",
        "\N{ARABIC-INDIC DIGIT ONE}",
        "9" * (MAX_LENGTH + 1),
        "1" + " a" * 500_000,
    ],
)
def test_a_text_that_does_not_state_one_number_has_none(text: str) -> None:
    assert read_number(text) is None


def test_it_is_never_the_first_number_of_a_sentence() -> None:
    assert read_number("I had 3 apples and bought 15, so the answer is 18") is None


@given(st.integers(-(10**30), 10**30))
def test_every_whole_number_is_read_back(number: int) -> None:
    for text in (str(number), f"{number:,}", f"{number}.00", f"{number} apples", f"The answer is {number}."):
        assert read_number(text) == number


@given(st.integers(-999, 999), st.integers(1, 999))
def test_a_fraction_is_read_back_unless_it_is_a_whole_number(above: int, below: int) -> None:
    value = Fraction(above, below)
    assert read_number(f"{above}/{below}") == (None if value.denominator == 1 else value)


@given(st.text(max_size=60) | st.text("0123456789.,/-+$%{}\\ aghlms", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    value = read_number(text)
    assert value is None or isinstance(value, Fraction)
