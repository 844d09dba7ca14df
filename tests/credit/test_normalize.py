from __future__ import annotations

import math
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.credit.normalize import METHODS, all_equal, leave_one_out, normalize, whiten, within

# Hundredths: exact enough that no two different ones are equal up to rounding.
NUMBERS = st.lists(st.integers(-1000, 1000).map(lambda n: n / 100), min_size=2, max_size=8)
SPREAD = NUMBERS.filter(lambda numbers: min(numbers) < max(numbers))
COMPARING = [method for method in METHODS if method != "identity"]


def test_the_methods_by_hand() -> None:
    """1, 0, 0, 0: mean 1/4, unbiased std sqrt((9/16 + 3/16) / 3) = 1/2."""
    numbers = [1.0, 0.0, 0.0, 0.0]
    assert normalize(numbers, "identity") == numbers
    assert normalize(numbers, "mean") == [0.75, -0.25, -0.25, -0.25]
    assert normalize(numbers, "mean_std") == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=4e-6)


def test_asym_clip_bounds_a_bad_outlier_more_than_a_good_one() -> None:
    """Fifteen zeros and a one: mean 1/16, std 1/4, so 15/4 = 3.75 and -1/4. Negated: 1/4 and -3.75."""
    numbers = [1.0, *[0.0] * 15]
    assert normalize(numbers, "asym_clip") == [3.0, *[pytest.approx(-0.25, abs=2e-6)] * 15]
    assert normalize([-x for x in numbers], "asym_clip") == [-1.0, *[pytest.approx(0.25, abs=2e-6)] * 15]


def test_leave_one_out_by_hand() -> None:
    """1 - (2 + 6)/2, 2 - (1 + 6)/2, 6 - (1 + 2)/2."""
    assert leave_one_out([1.0, 2.0, 6.0]) == pytest.approx([-3.0, -1.5, 4.5])


def test_the_divisor_has_a_floor() -> None:
    """Two numbers 2e-6 apart: deviations 1e-6, std sqrt(2) * 1e-6, so 1 / (sqrt(2) + 1) instead of 1 / sqrt(2)."""
    expected = 1 / (math.sqrt(2) + 1)
    assert normalize([0.0, 2e-6], "mean_std") == pytest.approx([-expected, expected])


def test_a_method_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="method='std'"):
        normalize([1.0, 2.0], "std")


@pytest.mark.parametrize("value", [0.0, -0.1, 0.1 + 0.2, float(np.float32(0.1) + np.float32(0.2)), 1e-300, -1e30])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_equal_numbers_give_exactly_zero(value: float, size: int) -> None:
    """Bug-log row 17 (a group of one) and the rounding of a mean: three times 0.3 has a mean that is not 0.3."""
    for method in COMPARING:
        assert normalize([value] * size, method) == [0.0] * size
    assert leave_one_out([value] * size) == [0.0] * size


def test_the_same_rewards_in_another_order_are_the_same_number() -> None:
    """Adding 0.1, 0.2, 0.3 from the left gives 0.6000000000000001, from the right 0.6; nobody did better."""
    forward, backward = (0.1 + 0.2) + 0.3, (0.3 + 0.2) + 0.1
    assert forward != backward
    assert normalize([forward, backward], "mean_std") == leave_one_out([forward, backward]) == [0.0, 0.0]


def test_numbers_are_equal_up_to_rounding_at_any_size() -> None:
    assert all_equal([1e-20])
    assert all_equal([1e20 + 1.0, 1e20])
    assert not all_equal([1e-20, 2e-20])
    assert not all_equal([1000.0, 1000.000001])
    assert not all_equal([0.0, 5e-324])


@given(numbers=SPREAD)
def test_normalized_numbers_are_centred_with_a_spread_of_one(numbers: list[float]) -> None:
    normalized, n = normalize(numbers, "mean_std"), len(numbers)
    assert fmean(normalized) == pytest.approx(0, abs=1e-9)
    assert pstdev(normalized) * math.sqrt(n / (n - 1)) == pytest.approx(1, rel=1e-3)


@given(numbers=SPREAD, method=st.sampled_from(COMPARING))
def test_a_higher_number_never_comes_out_lower(numbers: list[float], method: str) -> None:
    ranked = [a for _, a in sorted(zip(numbers, normalize(numbers, method), strict=True))]
    assert ranked == sorted(ranked)


@given(numbers=SPREAD)
def test_leave_one_out_equals_the_mean_of_the_others_taken_literally(numbers: list[float]) -> None:
    others = [numbers[:i] + numbers[i + 1 :] for i in range(len(numbers))]
    expected = [x - sum(rest) / len(rest) for x, rest in zip(numbers, others, strict=True)]
    assert leave_one_out(numbers) == pytest.approx(expected, abs=1e-9)


def test_numbers_are_compared_with_those_of_the_same_key_and_come_back_in_order() -> None:
    keys = ["b", "a", "b", "a", "c"]
    assert within([10.0, 1.0, 30.0, 3.0, 7.0], keys, lambda part: normalize(part, "mean")) == [-10.0, -1.0, 10.0, 1.0, 0.0]


def test_a_comparison_that_answers_too_few_is_refused() -> None:
    """Bug-log row 32: one value for all is never copied."""
    with pytest.raises(ValueError, match="zip"):
        within([1.0, 2.0], ["a", "a"], lambda part: [0.0])


def test_whitening_is_over_all_parts_together() -> None:
    """1, 0 and 0, 0: mean 1/4, std 1/2."""
    first, second = whiten([np.array([1.0, 0.0]), np.array([0.0, 0.0])])
    assert first.tolist() == pytest.approx([1.5, -0.5], abs=4e-6)
    assert second.tolist() == pytest.approx([-0.5, -0.5], abs=4e-6)


@pytest.mark.parametrize(
    ("parts", "expected"), [([], []), ([[]], [[]]), ([[3.0]], [[3.0]]), ([[], [0.3], [0.3]], [[], [0.0], [0.0]])]
)
def test_whitening_of_next_to_nothing(parts: list[list[float]], expected: list[list[float]]) -> None:
    """Bug-log row 25: fewer than two numbers have no spread and stay as they are; equal ones are exactly 0."""
    assert [part.tolist() for part in whiten([np.array(part) for part in parts])] == expected
