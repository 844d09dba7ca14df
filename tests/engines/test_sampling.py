from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragen.engines.sampling import BLOCK, check, random_stream, sample
from ragen.records import Sampling

SIZES = (1, 2, 100, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1000)
LAST = math.nextafter(1.0, 0.0)  # the largest number that a random stream can hold


def request(**fields: Any) -> Sampling:
    return Sampling(max_new_tokens=1, **fields)


def draw(scores_V: torch.Tensor, uniform: float, **fields: Any) -> tuple[int, float]:
    ids, logprobs = sample(scores_V[None], [request(**fields)], [uniform])
    return ids[0], logprobs[0]


def scores_of(size: int, seed: int = 0, spread: float = 2.0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng((size, seed)).normal(0, spread, size)).float()


@st.composite
def rows(draw_: st.DrawFn) -> tuple[torch.Tensor, float]:
    """Scores of one request, some of them minus infinity, and a uniform number."""
    size = draw_(st.sampled_from(SIZES))
    scores_V = scores_of(size, draw_(st.integers(0, 50)), draw_(st.sampled_from([0.1, 2.0, 20.0])))
    removed = draw_(st.sets(st.integers(0, size - 1), max_size=min(size - 1, 5)))
    if draw_(st.booleans()) and size > BLOCK:
        removed |= set(range(BLOCK))  # a whole block without probability, at the beginning
    best = float(scores_V[-1])
    scores_V[list(removed)] = -torch.inf
    scores_V[-1] = best  # something is left
    return scores_V, draw_(st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, LAST, 0.5]))


@given(row=rows(), temperature=st.sampled_from([0.3, 1.0, 2.5]))
def test_the_draw_is_the_inverse_of_the_cumulative_distribution(row: tuple[torch.Tensor, float], temperature: float) -> None:
    """Against one pass in float64. At an edge between two tokens rounding may decide either way: 1e-6 is granted."""
    scores_V, uniform = row
    token, logprob = draw(scores_V, uniform, temperature=temperature)
    exact_V = scores_V.double() / temperature
    probs_V = exact_V.softmax(-1)
    upper_V = probs_V.cumsum(-1)
    assert probs_V[token] > 0
    assert upper_V[token] - probs_V[token] - 1e-6 <= uniform <= upper_V[token] + 1e-6
    assert logprob == pytest.approx(exact_V.log_softmax(-1)[token].item(), abs=2e-5)


@pytest.mark.parametrize("size", SIZES)
def test_probabilities_are_met_over_an_even_grid_of_uniform_numbers(size: int) -> None:
    """A grid of n numbers gives each token n times its probability, off by at most one: no luck involved."""
    number = 4000
    probs_V = scores_of(size).double().softmax(-1).numpy()
    grid = ((np.arange(number) + 0.5) / number).tolist()
    ids, _ = sample(scores_of(size).expand(number, -1), [request()] * number, grid)
    counts = np.bincount(ids, minlength=size)
    assert len(counts) == size
    assert np.abs(counts - number * probs_V).max() <= 1.01


def test_random_streams_give_the_exact_frequencies() -> None:
    """Chi-square over 20000 draws with fixed seeds: within four standard deviations of its mean."""
    probs = np.array([0.5, 0.25, 0.125, 0.1, 0.025])
    uniforms = [float(u) for seed in range(20) for u in random_stream(Sampling(max_new_tokens=1000, seed=(seed, 7)))]
    ids, _ = sample(torch.from_numpy(np.log(probs)).float().expand(len(uniforms), -1), [request()] * len(uniforms), uniforms)
    wanted = probs * len(uniforms)
    chi2 = float(((np.bincount(ids, minlength=5) - wanted) ** 2 / wanted).sum())
    assert chi2 < 4 + 4 * math.sqrt(8)


@pytest.mark.parametrize("uniform", [0.0, 1e-300, 0.5, LAST])
@pytest.mark.parametrize("size", [3, 255, 256, 257, 700])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_token_of_probability_0_is_never_drawn(uniform: float, size: int, place: str) -> None:
    only = {"first": 0, "middle": size // 2, "last": size - 1}[place]
    scores_V = torch.full((size,), -torch.inf)
    scores_V[only] = -3.0
    assert draw(scores_V, uniform) == (only, 0.0)
    scores_V[:] = -200.0  # e^-197 is 0 in float32
    scores_V[only] = -3.0
    assert draw(scores_V, uniform)[0] == only


def test_log_probs_are_those_of_the_scaled_distribution() -> None:
    """Bug-log row 49: two tokens whose scores differ by ln 3; at temperature 0.5 the odds are 9 to 1."""
    scores_V = torch.tensor([math.log(3.0), 0.0])
    assert draw(scores_V, 0.89, temperature=0.5) == (0, pytest.approx(math.log(0.9), abs=1e-6))
    assert draw(scores_V, 0.91, temperature=0.5) == (1, pytest.approx(math.log(0.1), abs=1e-6))
    assert draw(scores_V, 0.74) == (0, pytest.approx(math.log(0.75), abs=1e-6))
    assert draw(scores_V, 0.76) == (1, pytest.approx(math.log(0.25), abs=1e-6))


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300, 1e30])
def test_extreme_temperatures_give_the_limits_and_nothing_infinite(temperature: float) -> None:
    scores_V = torch.tensor([500.0, 80.0, 499.0, -60.0])
    token, logprob = draw(scores_V, 0.6, temperature=temperature)
    assert (token, logprob) == ((0, 0.0) if temperature < 1 else (2, pytest.approx(math.log(0.25))))


def test_temperature_0_takes_the_best_token_of_its_row_only() -> None:
    scores_BV = torch.tensor([[0.0, 1.0, 0.5], [0.0, 1.0, 0.5]])
    ids, logprobs = sample(scores_BV, [request(temperature=0.0), request(temperature=1.0)], [0.0, 0.0])
    assert ids == [1, 0]
    assert logprobs == [0.0, pytest.approx(-math.log(1 + math.e + math.exp(0.5)), abs=1e-6)]


PROBS = np.array([0.05, 0.4, 0.1, 0.25, 0.2])  # in order: 1 (0.4), 3 (0.25), 4 (0.2), 2 (0.1), 0 (0.05)


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (1, 1.0, [1]),
        (2, 1.0, [1, 3]),
        (5, 1.0, [0, 1, 2, 3, 4]),
        (99, 1.0, [0, 1, 2, 3, 4]),
        (0, 0.3, [1]),  # at least one
        (0, 0.39, [1]),
        (0, 0.41, [1, 3]),
        (0, 0.66, [1, 3, 4]),
        (0, 0.999, [0, 1, 2, 3, 4]),
        (3, 0.7, [1, 3]),  # of the three best, now at 0.47, 0.29, 0.24; of all five, 0.7 would take three
        (3, 0.77, [1, 3, 4]),  # 0.47 + 0.29 = 0.765 is not enough
        (2, 0.9, [1, 3]),
    ],
)
def test_truncation_keeps_the_smallest_set_and_its_log_probs_sum_to_1(top_k: int, top_p: float, kept: list[int]) -> None:
    scores_V = torch.from_numpy(np.log(PROBS)).float()
    seen = {}
    for uniform in [*np.linspace(0, 1, 200, endpoint=False).tolist(), LAST]:
        token, logprob = draw(scores_V, uniform, top_k=top_k, top_p=top_p)
        seen[token] = logprob
    assert sorted(seen) == kept
    for token, logprob in seen.items():
        assert logprob == pytest.approx(math.log(PROBS[token] / PROBS[kept].sum()), abs=1e-5)
    assert sum(map(math.exp, seen.values())) == pytest.approx(1, abs=1e-5)


def test_top_k_alone_keeps_a_token_however_improbable() -> None:
    """Without top-p nothing may be cut because earlier probabilities round up to 1."""
    scores_V = torch.tensor([0.0, -20.0, -30.0])
    token, logprob = draw(scores_V, LAST, top_k=2)
    assert (token, logprob) == (1, pytest.approx(-20.0, abs=1e-5))


def test_a_set_that_reaches_top_p_exactly_is_enough() -> None:
    assert {draw(torch.zeros(4), u, top_p=0.5)[0] for u in (0.0, 0.3, 0.6, LAST)} == {0, 1}


def test_ties_at_the_edge_of_top_k_go_to_the_lower_id() -> None:
    scores_V = torch.zeros(6)
    assert {draw(scores_V, u, top_k=2)[0] for u in (0.0, 0.3, 0.6, LAST)} == {0, 1}


def test_each_row_of_a_batch_follows_its_own_request() -> None:
    number = 40
    generator = np.random.default_rng(3)
    scores_BV = torch.stack([scores_of(300, seed) for seed in range(number)])
    requests = [
        request(
            temperature=float(generator.choice([0.0, 0.5, 1.0, 2.0])),
            top_k=int(generator.choice([0, 3, 50])),
            top_p=float(generator.choice([1.0, 0.5])),
        )
        for _ in range(number)
    ]
    uniforms = generator.random(number).tolist()
    before = scores_BV.clone()
    ids, logprobs = sample(scores_BV, requests, uniforms)
    assert torch.equal(scores_BV, before)
    for row in range(number):
        alone = sample(scores_BV[row : row + 1], requests[row : row + 1], uniforms[row : row + 1])
        assert alone == ([ids[row]], [pytest.approx(logprobs[row], abs=1e-6)])


def test_a_stream_is_a_function_of_the_seed_alone_and_a_shorter_one_is_its_beginning() -> None:
    long = random_stream(Sampling(max_new_tokens=100, seed=(1, 2, 3)))
    assert random_stream(Sampling(max_new_tokens=10, seed=(1, 2, 3), temperature=0.1)).tolist() == long[:10].tolist()
    others = [(1, 2), (1, 2, 4), (3, 2, 1), (1, 2, 3, 1), (2**70, 2, 3)]
    assert len({random_stream(Sampling(max_new_tokens=3, seed=seed)).tobytes() for seed in [*others, (1, 2, 3)]}) == 6
    assert ((long >= 0) & (long < 1)).all()


def test_what_cannot_be_sampled_with_is_refused_by_name() -> None:
    check(Sampling(max_new_tokens=1, temperature=0.0, top_p=1e-9, top_k=0))
    for field, value in [("max_new_tokens", 0), ("temperature", -1.0), ("temperature", math.nan), ("top_p", 0.0), ("top_k", -2)]:
        with pytest.raises(ValueError, match=rf"sampling\.{field}={value}: must be "):
            check(Sampling(**({"max_new_tokens": 1} | {field: value})))  # type: ignore[arg-type]
