"""The bandit's rules: names, the draw of a pair, payoffs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ragen.environments.bandit.rules import PAIRS, Arms, Payoffs, deal, pull

PAPER = Payoffs(low=0.15, high=1.0, high_prob=0.25, miss=0.0)
ARMS = Arms(names=("Trader", "Teacher"), risky="Trader")


def test_there_are_twelve_training_pairs_eight_test_pairs_and_the_papers_one() -> None:
    assert {name: len(pairs) for name, pairs in PAIRS.items()} == {"train": 12, "test": 8, "phoenix_dragon": 1}


def test_no_name_occurs_twice_anywhere() -> None:
    words = [word.casefold() for pairs in PAIRS.values() for pair in pairs for word in pair]
    assert len(words) == 42
    assert len(set(words)) == 42


def test_names_are_single_words() -> None:
    assert all(word.isalpha() and word == word.capitalize() for pairs in PAIRS.values() for pair in pairs for word in pair)


def test_the_steady_arm_always_pays_the_same_and_draws_nothing() -> None:
    random = np.random.default_rng(0)
    before = random.bit_generator.state
    assert [pull(ARMS, "Teacher", PAPER, random) for _ in range(20)] == [0.15] * 20
    assert random.bit_generator.state == before


def test_the_risky_arm_pays_one_or_nothing_with_the_stated_probability() -> None:
    random = np.random.default_rng(1)
    paid = [pull(ARMS, "Trader", PAPER, random) for _ in range(4000)]
    assert set(paid) == {0.0, 1.0}
    # Five standard deviations of a Bernoulli(0.25) mean over 4000 draws: 5 * sqrt(0.25 * 0.75 / 4000) = 0.034.
    assert abs(sum(paid) / 4000 - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 4000)


@pytest.mark.parametrize(("high_prob", "expected"), [(0.0, -1.0), (1.0, 3.0)])
def test_a_certain_payoff_is_certain(high_prob: float, expected: float) -> None:
    payoffs = Payoffs(low=0.0, high=3.0, high_prob=high_prob, miss=-1.0)
    random = np.random.default_rng(2)
    assert {pull(ARMS, "Trader", payoffs, random) for _ in range(50)} == {expected}


def test_the_mean_of_the_risky_arm() -> None:
    assert PAPER.risky_mean == 0.25
    assert Payoffs(low=0.0, high=3.0, high_prob=0.5, miss=-1.0).risky_mean == 1.0


def test_every_pair_is_dealt_in_both_orders() -> None:
    random = np.random.default_rng(3)
    dealt = {deal(PAIRS["train"], reverse=False, random=random).names for _ in range(1000)}
    assert dealt == {order for pair in PAIRS["train"] for order in (pair, pair[::-1])}


def test_reversed_makes_the_steady_name_the_risky_arm_on_the_same_table() -> None:
    for seed in range(20):
        plain = deal(PAIRS["train"], reverse=False, random=np.random.default_rng(seed))
        turned = deal(PAIRS["train"], reverse=True, random=np.random.default_rng(seed))
        assert plain.names == turned.names
        assert {plain.risky, turned.risky} == set(plain.names)
        assert (turned.risky, plain.risky) in PAIRS["train"]
