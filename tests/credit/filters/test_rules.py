"""Which scores are kept: published cases, cases worked by hand, and properties of every rule."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragen.credit.filters.rules import min_p, top_k, top_p, top_p_softmax

PUBLISHED_SLACK = 0.01

# Distinct tenths: permutations then have no ties to break, and sums no surprising rounding.
DISTINCT = st.lists(st.integers(0, 1000).map(lambda n: n / 10), min_size=1, max_size=12, unique=True)
SCORES = st.lists(st.integers(0, 20).map(lambda n: n / 10), min_size=1, max_size=12)  # with ties and zeros
SHARE = st.floats(0.01, 0.99)
BY_SHARE: list[Callable[..., list[int]]] = [top_p, top_p_softmax, min_p]
BOTH_WAYS = pytest.mark.parametrize("largest", [True, False])


@pytest.mark.parametrize(
    ("scores", "slack", "kept"),
    [
        ([0.01, 0.01, 0.01], PUBLISHED_SLACK, [0, 1]),  # 0.9 x 0.03 - 0.01 = 0.017: 0.01, 0.02
        ([0.011], PUBLISHED_SLACK, []),  # 0.9 x 0.011 - 0.01 < 0
        ([0.004, 0.004], PUBLISHED_SLACK, []),  # 0.9 x 0.008 - 0.01 < 0
        ([0.35, 0.3, 0.25, 0.0], PUBLISHED_SLACK, [0, 1, 2]),  # 0.9 x 0.9 - 0.01 = 0.8: 0.35, 0.65, 0.9
        ([0.01, 0.01, 0.01], 0.0, [0, 1, 2]),  # 0.027: 0.01, 0.02, 0.03
        ([0.011], 0.0, [0]),
        ([0.004, 0.004], 0.0, [0, 1]),
        ([0.35, 0.3, 0.25, 0.0], 0.0, [0, 1, 2]),  # 0.81
        ([0.0, 0.0], 0.0, []),  # no mass to share
        ([], 0.0, []),
    ],
)
def test_top_p_as_published_and_without_its_absolute_slack(scores: list[float], slack: float, kept: list[int]) -> None:
    """The first four are the cases that the specification lists for the published code, at p = 0.9."""
    assert top_p(scores, 0.9, slack=slack) == kept


def test_the_rules_side_by_side_as_the_page_shows_them() -> None:
    """docs/algorithms/filters.md. exp of the scores: 1.419, 1.350, 1.284, 1; three of them are 80 % of 5.053, all are needed."""
    scores = [0.35, 0.3, 0.25, 0.0]
    kept = [top_k(scores, 1), top_k(scores, 2), top_p(scores, 0.9), top_p_softmax(scores, 0.9), min_p(scores, 0.8)]
    assert kept == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1]]


def test_top_p_of_one_keeps_all_even_without_mass() -> None:
    assert top_p([0.0, 2.0, 0.0], 1.0) == [0, 1, 2]


def test_top_p_from_the_small_end_takes_scores_of_zero_first() -> None:
    """Published: a score of 0 ends the search with nothing. Here 0, 0.1, 0.2 of 0.6 reach half of it."""
    assert top_p([0.3, 0.1, 0.0, 0.2], 0.5, largest=False) == [1, 2, 3]


def test_softmax_top_p_by_hand() -> None:
    """exp of ln 6, ln 3, ln 1 is 6, 3, 1: probabilities 0.6, 0.3, 0.1."""
    scores = [math.log(3), math.log(6), 0.0]
    assert top_p_softmax(scores, 0.5) == [1]
    assert top_p_softmax(scores, 0.9) == [0, 1]
    assert top_p_softmax(scores, 0.91) == [0, 1, 2]
    assert top_p_softmax([-s for s in scores], 0.9, largest=False) == [0, 1]


def test_softmax_top_p_of_small_spreads_drops_a_tenth_whatever_they_are_worth() -> None:
    """Ten scores within 0.01: nearly uniform, so 0.9 drops the last; the linear rule keeps the only one with mass."""
    scores = [0.01] + [0.0] * 9
    assert top_p_softmax(scores, 0.9) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert top_p(scores, 0.9) == [0]


def test_softmax_top_p_bears_any_score() -> None:
    assert top_p_softmax([1e300, -1e300, 0.0], 0.9) == [0]
    assert top_p_softmax([1e300, -1e300, 0.0], 0.9, largest=False) == [1]
    assert top_p_softmax([], 0.9) == []


def test_min_p_by_hand() -> None:
    assert min_p([0.5, 0.2, 0.25, 0.0], 0.5) == [0, 2]
    assert min_p([0.5, 0.2, 0.25, 0.4], 0.5, largest=False) == [1, 2, 3]
    assert min_p([0.0, 0.0], 0.5) == [0, 1]
    assert min_p([0.0, 0.1], 0.5, largest=False) == [0]
    assert min_p([], 0.5) == []


def test_min_p_forgives_rounding_at_any_scale() -> None:
    """0.1 + 0.2 is a little more than 0.3, of which the other is all."""
    assert min_p([0.1 + 0.2, 0.3], 1.0) == [0, 1]
    assert min_p([(0.1 + 0.2) * 1e-20, 0.3e-20], 1.0) == [0, 1]


def test_top_k_by_hand() -> None:
    assert top_k([0.1, 0.4, 0.2, 0.3], 2) == [1, 3]
    assert top_k([0.1, 0.4, 0.2, 0.3], 2, largest=False) == [0, 2]
    assert top_k([0.1, 0.4], 5) == [0, 1]
    assert top_k([-1.0, -3.0, -2.0], 1) == [0]


@BOTH_WAYS
def test_of_equal_scores_the_first_are_kept(largest: bool) -> None:
    equal = [0.5] * 4
    assert top_k(equal, 2, largest=largest) == [0, 1]
    assert top_p(equal, 0.5, largest=largest) == [0, 1]
    assert top_p_softmax(equal, 0.5, largest=largest) == [0, 1]
    assert min_p(equal, 0.5, largest=largest) == [0, 1, 2, 3]


@pytest.mark.parametrize("rule", [top_p, min_p])
def test_a_negative_score_has_no_share(rule: Callable[..., list[int]]) -> None:
    with pytest.raises(ValueError, match=r"not negative, not -0\.1"):
        rule([0.5, -0.1], 0.5)


@BOTH_WAYS
@pytest.mark.parametrize("rule", [*BY_SHARE, top_k])
@given(data=st.data(), scores=DISTINCT, share=SHARE)
def test_the_order_of_the_groups_decides_nothing(
    rule: Callable[..., list[int]], largest: bool, data: st.DataObject, scores: list[float], share: float
) -> None:
    order = data.draw(st.permutations(range(len(scores))))
    value = max(1, int(share * len(scores))) if rule is top_k else share
    before = {scores[i] for i in rule(scores, value, largest=largest)}
    shuffled = [scores[i] for i in order]
    assert {shuffled[i] for i in rule(shuffled, value, largest=largest)} == before


@BOTH_WAYS
@pytest.mark.parametrize("rule", [top_p, min_p, top_k])
@given(scores=SCORES, share=SHARE, exponent=st.integers(-40, 40))
def test_the_unit_of_the_scores_decides_nothing(
    rule: Callable[..., list[int]], largest: bool, scores: list[float], share: float, exponent: int
) -> None:
    """Powers of two, so that scaling does not round. Not so for the softmax, see its docstring."""
    value = max(1, int(share * len(scores))) if rule is top_k else share
    scaled = [score * 2.0**exponent for score in scores]
    assert rule(scaled, value, largest=largest) == rule(scores, value, largest=largest)


@BOTH_WAYS
@given(scores=SCORES, share=SHARE, shift=st.integers(-8, 8))
def test_a_shift_of_all_scores_does_not_move_the_softmax(largest: bool, scores: list[float], share: float, shift: int) -> None:
    exact = [round(score * 8) / 8 for score in scores]  # eighths, so that shifting does not round
    assert top_p_softmax([s + shift for s in exact], share, largest=largest) == top_p_softmax(exact, share, largest=largest)


@BOTH_WAYS
@pytest.mark.parametrize("rule", BY_SHARE)
@given(scores=SCORES, shares=st.tuples(SHARE, SHARE))
def test_asking_for_more_keeps_more(
    rule: Callable[..., list[int]], largest: bool, scores: list[float], shares: tuple[float, float]
) -> None:
    less, more = sorted(shares, reverse=rule is min_p)  # a higher share of the best score is harder to reach
    assert set(rule(scores, less, largest=largest)) <= set(rule(scores, more, largest=largest))


@BOTH_WAYS
@given(scores=SCORES, k=st.integers(1, 15))
def test_top_k_keeps_k_and_nothing_better_is_left(largest: bool, scores: list[float], k: int) -> None:
    kept = top_k(scores, k, largest=largest)
    assert len(kept) == min(k, len(scores))
    left = [scores[i] for i in range(len(scores)) if i not in kept]
    if left:
        worst = min(scores[i] for i in kept) if largest else max(scores[i] for i in kept)
        assert worst >= max(left) if largest else worst <= min(left)


@BOTH_WAYS
@given(scores=SCORES, p=SHARE)
def test_top_p_keeps_the_fewest_that_reach_their_share(largest: bool, scores: list[float], p: float) -> None:
    assume(any(scores))
    kept = [scores[i] for i in top_p(scores, p, largest=largest)]
    wanted = p * sum(scores)
    assert sum(kept) >= wanted - 1e-9
    last = min(kept) if largest else max(kept)
    assert sum(kept) - last < wanted + 1e-9


@BOTH_WAYS
@pytest.mark.parametrize("rule", [*BY_SHARE, top_k])
@given(scores=SCORES, share=SHARE)
def test_something_is_kept_wherever_a_score_is_above_zero_in_ascending_order(
    rule: Callable[..., list[int]], largest: bool, scores: list[float], share: float
) -> None:
    assume(any(scores))
    kept = rule(scores, 1 if rule is top_k else share, largest=largest)
    assert kept
    assert kept == sorted(set(kept))
