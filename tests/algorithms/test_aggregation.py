"""From token losses to one number: by hand, and however the tokens are cut into parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.algorithms.aggregation import denominator, length_weights, token_weight
from ragen.algorithms.config import AGGREGATIONS

EPISODE = 10


def aggregate(losses: list[list[float]], aggregation: str, owners: list[int] | None = None) -> float:
    """The token losses of each sample as one number; `owners`: whose trajectory each is part of, its own if absent."""
    owners = [*range(len(losses))] if owners is None else owners
    whole = [sum(len(row) for row, o in zip(losses, owners, strict=True) if o == owner) for owner in owners]
    divisor = denominator(aggregation, num_tokens=[*map(len, losses)], trajectory_tokens=whole, episode_tokens=EPISODE)
    rows = zip(losses, whole, strict=True)
    return sum(token_weight(aggregation, trajectory_tokens=tokens) * sum(row) for row, tokens in rows) / divisor


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token_mean", 3.0), ("seq_mean_token_mean", 4.0), ("seq_mean_token_sum", 6.0), ("constant", 0.6)],
)
def test_two_samples_by_hand(aggregation: str, expected: float) -> None:
    """Losses (6) and (1, 2, 3) with longest episode 10: 12 / 4 tokens; (6 + 2) / 2; 12 / 2; 12 / (2 * 10)."""
    assert aggregate([[6.0], [1.0, 2.0, 3.0]], aggregation) == pytest.approx(expected)


LOSSES = st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=5), min_size=1, max_size=5)


@given(losses=LOSSES)
def test_each_aggregation_equals_its_definition(losses: list[list[float]]) -> None:
    n, tokens = len(losses), [x for row in losses for x in row]
    assert aggregate(losses, "token_mean") == pytest.approx(sum(tokens) / len(tokens))
    assert aggregate(losses, "seq_mean_token_mean") == pytest.approx(sum(sum(row) / len(row) for row in losses) / n)
    assert aggregate(losses, "seq_mean_token_sum") == pytest.approx(sum(tokens) / n)
    assert aggregate(losses, "constant") == pytest.approx(sum(tokens) / n / EPISODE)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(losses=LOSSES, cuts=st.data())
def test_a_trajectory_in_several_segments_counts_as_it_would_in_one(
    aggregation: str, losses: list[list[float]], cuts: st.DataObject
) -> None:
    segments, owners = [], []
    for owner, row in enumerate(losses):
        cut = cuts.draw(st.integers(0, len(row) - 1))
        parts = [part for part in (row[:cut], row[cut:]) if part]
        segments += parts
        owners += [owner] * len(parts)
    assert aggregate(segments, aggregation, owners) == pytest.approx(aggregate(losses, aggregation))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_step_without_a_token_divides_by_one(aggregation: str) -> None:
    """Bug-log row 66: 0 / 0."""
    assert denominator(aggregation, num_tokens=[], trajectory_tokens=[], episode_tokens=EPISODE) == 1


def test_a_segment_that_is_alone_in_its_step_counts_as_its_share() -> None:
    """3 of the 12 tokens of a trajectory: a quarter of a trajectory."""
    assert denominator("seq_mean_token_sum", num_tokens=[3], trajectory_tokens=[12]) == 0.25


def test_the_constant_is_the_longest_episode_not_the_longest_turn() -> None:
    """Bug-log row 72: five turns of at most 100 tokens are 500; the divisor does not ask how long anything has become."""
    for lengths in ([1, 1], [500, 3]):
        assert denominator("constant", num_tokens=lengths, trajectory_tokens=lengths, episode_tokens=500) == 1000


def test_the_token_mean_divides_by_a_whole_number_of_tokens() -> None:
    found = denominator("token_mean", num_tokens=[2, 3], trajectory_tokens=[2, 9])
    assert (found, type(found)) == (5, int)


def test_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'mean': no such aggregation"):
        denominator("mean", num_tokens=[1], trajectory_tokens=[1])


def test_length_weights_by_hand() -> None:
    """Lengths 1, 2 and 3 have mean 2."""
    assert length_weights([1, 2, 3]) == pytest.approx([2.0, 1.0, 2 / 3])
    assert length_weights([]) == []


@given(losses=LOSSES)
def test_a_token_mean_with_length_weights_is_a_mean_over_sequences(losses: list[list[float]]) -> None:
    weights = length_weights([*map(len, losses)])
    weighted = [[weight * x for x in row] for weight, row in zip(weights, losses, strict=True)]
    assert aggregate(weighted, "token_mean") == pytest.approx(aggregate(losses, "seq_mean_token_mean"))
