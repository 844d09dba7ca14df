"""What a group is judged by, worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.credit.filters.scores import NEVER_NEGATIVE, SCORES, SPREADS, Members, members_of, spread_ratio
from ragen.errors import TrainingError
from ragen.records import EndReason, Group
from tests.support.samples import make_group, make_trajectory

HUNDREDTHS = st.integers(-1000, 1000).map(lambda n: n / 100)
RETURNS = st.lists(HUNDREDTHS, min_size=1, max_size=8)
FRESH = {"surprisals": (), "lengths": (3,), "successes": (True,)}


def members(*returns: float) -> Members:
    size = len(returns)
    return Members(returns=returns, successes=(False,) * size, lengths=(1,) * size, surprisals=(1.0,) * size)


def group_of_two() -> Group:
    """Returns 1.5 - 0.5 = 1 and 4; 3 tokens of 1, 2, 3 nats and 1 token of 4 nats; the second succeeds."""
    first = make_trajectory([1], [2, 3], [4], [5], logprobs=[-1.0, -2.0, -3.0], rewards=[1.5, 0.0], penalties=[0.0, -0.5])
    second = make_trajectory([1], [6], logprobs=[-4.0], rewards=[4.0], member=1, end_reason=EndReason.SOLVED)
    return Group(trajectories=(first, second))


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ("std", 3 / math.sqrt(2)),  # deviations -1.5 and 1.5, squares 4.5 over n - 1 = 1
        ("variance", 4.5),
        ("range", 3.0),
        ("mean", 2.5),
        ("sum", 5.0),
        ("entropy", 3.0),  # the mean of 2 and 4: members count alike, however long
        ("entropy_std", math.sqrt(2)),
        ("length", 2.0),
        ("balance", 1.0),
    ],
)
def test_every_score_by_hand(score: str, expected: float) -> None:
    assert SCORES[score](members_of(group_of_two())) == pytest.approx(expected)


def test_observation_tokens_are_neither_length_nor_entropy() -> None:
    short = make_trajectory([1], [2], [3], [2], logprobs=[-1.0, -2.0])
    long = make_trajectory([1] * 9, [2], [3] * 64, [2], logprobs=[-1.0, -2.0])
    for score in ("length", "entropy"):
        assert SCORES[score](members_of(Group(trajectories=(short,)))) == SCORES[score](members_of(Group(trajectories=(long,))))


def test_balance_is_highest_where_every_second_member_succeeds() -> None:
    def balance(num_solved: int) -> float:
        outcomes = tuple(place < num_solved for place in range(8))
        return SCORES["balance"](Members(returns=(0.0,) * 8, successes=outcomes, lengths=(1,) * 8, surprisals=()))

    assert [balance(n) for n in (0, 2, 4, 6, 8)] == [0.0, 0.75, 1.0, 0.75, 0.0]


@pytest.mark.parametrize("lost", [(), (EndReason.TIMEOUT, EndReason.ENGINE_ERROR)])
def test_what_was_never_scored_is_no_member(lost: tuple[EndReason, ...]) -> None:
    """Bug-log rows 18 and 20: lost and abstained trajectories move no statistic. 2, 0, 0: mean 2/3, squares 24/9 over 2."""
    group = make_group(2.0, 0.0, 0.0, failed=lost)
    abstained = make_trajectory([1], [2], rewards=[100.0], logprobs=[-9.0], member=9)
    found = members_of(Group(trajectories=group.trajectories, failed=group.failed, abstained=(abstained,)))
    assert SCORES["variance"](found) == pytest.approx(4 / 3)
    assert SCORES["range"](found) == 2.0
    assert SCORES["entropy"](found) == 1.0


@pytest.mark.parametrize("score", sorted(SPREADS))
def test_a_lone_member_has_no_spread(score: str) -> None:
    """Bug-log rows 17 and 25: the unbiased spread of one value is 0 here, not nan."""
    assert SCORES[score](Members(returns=(3.0,), successes=(True,), lengths=(2,), surprisals=(1.0,))) == 0.0


@pytest.mark.parametrize("score", ["std", "variance", "range"])
def test_the_same_rewards_in_another_order_have_no_spread(score: str) -> None:
    """0.1 + 0.2 + 0.3 from the left and from the right differ in the last bit."""
    assert SCORES[score](members((0.1 + 0.2) + 0.3, (0.3 + 0.2) + 0.1)) == 0.0


def test_two_parts_that_cancel_have_no_spread() -> None:
    """Bug-log row 21: what is compared is the total."""
    cancelled = make_trajectory([1], [2], rewards=[0.1], penalties=[-0.1])
    nothing = make_trajectory([1], [2], member=1)
    assert not members_of(Group(trajectories=(cancelled, nothing))).has_spread


def test_members_without_a_sampled_token_say_nothing_about_entropy() -> None:
    silent, spoke = make_trajectory([1, 2], []), make_trajectory([1, 2], [3], logprobs=[-2.0], member=1)
    assert SCORES["entropy"](members_of(Group(trajectories=(silent, spoke)))) == 2.0
    assert SCORES["entropy"](members_of(Group(trajectories=(silent,)))) == 0.0


def test_a_log_prob_a_little_above_zero_is_rounding() -> None:
    sure = make_trajectory([1], [2], logprobs=[1e-7])
    assert SCORES["entropy"](members_of(Group(trajectories=(sure,)))) == 0.0


@pytest.mark.parametrize("broken", [math.nan, math.inf, 1e39])
def test_a_return_that_is_no_number_names_its_trajectory(broken: float) -> None:
    """Bug-log row 19: nan is neither kept nor dropped in silence."""
    with pytest.raises(TrainingError, match=r"return \S+ of corridor group 3 member 1 \(task seed 103\)"):
        members_of(make_group(0.0, broken, group=3))


@pytest.mark.parametrize("score", sorted(SCORES))
@given(data=st.data(), returns=RETURNS)
def test_the_order_of_the_members_decides_nothing(score: str, data: st.DataObject, returns: list[float]) -> None:
    shuffled = data.draw(st.permutations(returns))
    assert SCORES[score](members(*shuffled)) == pytest.approx(SCORES[score](members(*returns)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("score", ["std", "variance", "range"])
@given(returns=RETURNS, shift=st.integers(-100, 100), scale=st.floats(0.01, 100))
def test_spread_forgets_a_shift_and_follows_the_scale(score: str, returns: list[float], shift: int, scale: float) -> None:
    before = SCORES[score](members(*returns))
    assert SCORES[score](members(*[r + shift for r in returns])) == pytest.approx(before, rel=1e-6, abs=1e-9)
    factor = scale**2 if score == "variance" else scale
    assert SCORES[score](members(*[r * scale for r in returns])) == pytest.approx(before * factor, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("score", sorted(NEVER_NEGATIVE))
@given(returns=RETURNS, successes=st.lists(st.booleans(), min_size=1), surprisals=st.lists(st.floats(0, 20)))
def test_what_is_never_negative_never_is(
    score: str, returns: list[float], successes: list[bool], surprisals: list[float]
) -> None:
    found = Members(returns=tuple(returns), successes=tuple(successes), lengths=(4, 0), surprisals=tuple(surprisals))
    value = SCORES[score](found)
    assert value >= 0
    assert math.isfinite(value)


def test_spread_ratio_by_hand() -> None:
    """0.25, 0.25, 0, 0: mean 1/8, four deviations of 1/8, unbiased std sqrt(4/64 / 3) = 1 / sqrt(48)."""
    assert spread_ratio([0.25, 0.25, 0.0, 0.0]) == pytest.approx(8 / math.sqrt(48))
    assert spread_ratio([0.25, 0.0, 0.0, 0.0]) == pytest.approx(2.0)  # mean 1/16, std 1/8


@pytest.mark.parametrize("variances", [[], [0.3], [0.0, 0.0], [0.1 + 0.2, 0.3]])
def test_groups_that_are_alike_have_no_spread_ratio(variances: list[float]) -> None:
    assert spread_ratio(variances) == 0.0


@given(variances=st.lists(st.integers(0, 100).map(float), min_size=2), exponent=st.integers(-40, 40))
def test_the_spread_ratio_has_no_unit(variances: list[float], exponent: int) -> None:
    assert spread_ratio([v * 2.0**exponent for v in variances]) == pytest.approx(spread_ratio(variances))
