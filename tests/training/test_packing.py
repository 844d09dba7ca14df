from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.records import Sample
from ragen.training.packing import Pack, minibatches, named, pack
from ragen.training.update import Learner
from tests.support.learners import make_learner, on_policy, small_policy, stock_logprobs
from tests.support.samples import make_sample


def packed(*samples: Sample, max_tokens: int = 1000) -> list[Pack]:
    return pack(samples, max_tokens=max_tokens, device="cpu")


def only(packs: list[Pack]) -> Pack:
    assert len(packs) == 1
    return packs[0]


def test_one_turn() -> None:
    """Prompt at 0 and 1; the reply's first id is predicted by the prompt's last, its last id is predicted but never fed."""
    made = only(packed(make_sample([10, 11], [20, 21, 22], logprobs=[-1, -2, -3], advantage=0.5)))
    assert made.ids_L.tolist() == [10, 11, 20, 21]
    assert made.positions_L.tolist() == [0, 1, 2, 3]
    assert (made.prompt_length, made.lengths) == (2, (2,))
    assert made.predictor_M.tolist() == [1, 2, 3]
    assert made.target_M.tolist() == [20, 21, 22]
    assert made.old_logprob_M.tolist() == [-1, -2, -3]
    assert made.advantage_M.tolist() == [0.5] * 3
    assert made.sample_M.tolist() == [0, 0, 0]


def test_two_turns() -> None:
    """The observation is fed but not trained; its last id predicts the second reply's first."""
    made = only(packed(make_sample([10, 11], [20, 21], [30, 31], [40, 41], logprobs=[-1, -2, -3, -4])))
    assert made.ids_L.tolist() == [10, 11, 20, 21, 30, 31, 40]
    assert made.positions_L.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert made.predictor_M.tolist() == [1, 2, 5, 6]
    assert made.target_M.tolist() == [20, 21, 40, 41]
    assert made.old_logprob_M.tolist() == [-1, -2, -3, -4]


def test_an_observation_at_the_end_is_not_even_fed() -> None:
    made = only(packed(make_sample([10], [20, 21], [30, 31])))
    assert made.ids_L.tolist() == [10, 20]
    assert made.predictor_M.tolist() == [0, 1]


def test_a_reply_of_one_token_needs_nothing_but_the_prompt() -> None:
    made = only(packed(make_sample([10, 11], [20])))
    assert made.ids_L.tolist() == [10, 11]
    assert made.lengths == ()
    assert (made.predictor_M.tolist(), made.target_M.tolist()) == ([1], [20])


def test_samples_of_one_prompt_stand_behind_it_one_after_another() -> None:
    """The middle one has a single token, so nothing of it is fed; the third begins where the first ended."""
    first = make_sample([10, 11], [20, 21], advantage=1)
    second = make_sample([10, 11], [30], advantage=2)
    third = make_sample([10, 11], [40, 41, 42], advantage=3)
    made = only(packed(first, second, third))
    assert made.samples == (first, second, third)
    assert made.ids_L.tolist() == [10, 11, 20, 40, 41]
    assert made.positions_L.tolist() == [0, 1, 2, 2, 3]
    assert made.lengths == (1, 2)
    assert made.predictor_M.tolist() == [1, 2, 1, 1, 3, 4]
    assert made.target_M.tolist() == [20, 21, 30, 40, 41, 42]
    assert made.advantage_M.tolist() == [1, 1, 2, 3, 3, 3]
    assert made.sample_M.tolist() == [0, 0, 1, 2, 2, 2]


def test_other_prompts_go_into_other_packs_in_order_of_first_appearance() -> None:
    """A prompt that is the beginning of another is still another prompt."""
    a, b, c, d = (make_sample(prompt, [20 + i, 9]) for i, prompt in enumerate(([10, 11], [10], [10, 11], [12, 11])))
    assert [p.samples for p in packed(a, b, c, d)] == [(a, c), (b,), (d,)]


def test_only_trained_tokens_are_selected() -> None:
    """Bug-log row 67: NaN at a position that was not sampled cannot enter, for it is never read (NaN times 0 is NaN)."""
    clean = make_sample([10, 11], [20, 21], [30], [40])
    values = clean.logprobs.copy()
    values[~clean.mask] = np.nan
    advantages = np.where(clean.mask, clean.advantages, np.inf).astype(np.float32)
    dirty = replace(clean.with_logprobs(values), advantages=advantages)
    expected, found = only(packed(clean)), only(packed(dirty))
    assert torch.equal(found.old_logprob_M, expected.old_logprob_M)
    assert torch.equal(found.advantage_M, expected.advantage_M)


def test_a_pack_is_as_large_as_it_would_be_padded() -> None:
    """Continuations of 2, 2 and 5: padded to the longest, the first two take 4 places, all three 15."""
    samples = [make_sample([10], [20] * n) for n in (2, 2, 5)]
    assert [len(p.samples) for p in packed(*samples, max_tokens=15)] == [3]
    assert [len(p.samples) for p in packed(*samples, max_tokens=14)] == [2, 1]
    assert [len(p.samples) for p in packed(*samples, max_tokens=4)] == [2, 1]
    assert [len(p.samples) for p in packed(*samples, max_tokens=1)] == [1, 1, 1]


def test_nothing_to_pack_gives_no_pack() -> None:
    assert packed() == []


def test_a_message_names_four_samples_and_counts_the_rest() -> None:
    samples = [make_sample([10], [20], group=1, member=m) for m in range(6)]
    assert named(samples[:1]) == "corridor group 1 member 0 (task seed 101)"
    assert named(samples).count("member") == 4
    assert named(samples).endswith("member 3 (task seed 101) and 2 more")


@given(count=st.integers(1, 12), num_samples=st.integers(0, 9), seed=st.integers(0, 9))
def test_minibatches_are_near_equal_parts_of_all_samples_in_an_order_of_the_seed(count: int, num_samples: int, seed: int) -> None:
    """Bug-log row 101: any count works."""
    samples = [make_sample([10 + m % 3], [20], member=m) for m in range(num_samples)]
    parts = minibatches(samples, count, seed=(seed, 0))
    assert sorted(s.trajectory.key.member for part in parts for s in part) == list(range(num_samples))
    assert len(parts) == min(count, num_samples)
    sizes = [len(part) for part in parts]
    assert not sizes or (min(sizes) > 0 and max(sizes) - min(sizes) <= 1)
    assert minibatches(samples, count, seed=(seed, 0)) == parts


IDS = st.integers(3, 399)
SEGMENT = st.lists(IDS, min_size=1, max_size=5)
TAIL = st.lists(st.tuples(SEGMENT, SEGMENT), max_size=2).map(lambda pairs: [part for pair in pairs for part in pair])
CONTINUATION = st.tuples(SEGMENT, TAIL).map(lambda parts: [parts[0], *parts[1]])
PROMPTS = st.lists(st.lists(IDS, min_size=1, max_size=4), min_size=1, max_size=3)


@functools.cache
def learner(temperature: float) -> Learner:
    return make_learner(small_policy(), temperature=temperature)


@settings(max_examples=25)
@given(
    prompts=PROMPTS,
    continuations=st.lists(CONTINUATION, min_size=1, max_size=6),
    max_tokens=st.integers(1, 40),
    temperature=st.sampled_from([1.0, 0.6]),
)
def test_log_probs_over_packs_equal_a_plain_pass_over_each_whole_sequence(
    prompts: list[list[int]], continuations: list[list[list[int]]], max_tokens: int, temperature: float
) -> None:
    """Against stock transformers, one sequence at a time; however the samples are split, every sampled token once."""
    samples = [make_sample(prompts[i % len(prompts)], *parts, member=i) for i, parts in enumerate(continuations)]
    samples = on_policy(*samples, temperature=temperature)
    packs = pack(samples, max_tokens=max_tokens, device="cpu")
    assert sum(p.num_trained for p in packs) == sum(s.trajectory.num_sampled for s in samples)
    assert sorted(s.trajectory.key.member for p in packs for s in p.samples) == list(range(len(samples)))
    for part in packs:
        with torch.no_grad():
            logprobs_M, entropy_M = learner(temperature).score(part)
        torch.testing.assert_close(logprobs_M, part.old_logprob_M, atol=1e-4, rtol=0)
        assert len(entropy_M) == part.num_trained
        for index, sample in enumerate(part.samples):
            trained = sample.mask
            own = part.sample_M == index
            assert part.target_M[own].tolist() == sample.ids[trained].tolist()
            expected = stock_logprobs(sample.ids.tolist(), temperature)[trained]
            np.testing.assert_allclose(logprobs_M[own].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("max_tokens", [1, 7, 1000])
def test_the_entropy_is_that_of_the_distribution_sampled_from(max_tokens: int) -> None:
    """Flattening the distribution with a higher temperature raises it; log of the vocabulary is its upper bound."""
    samples = on_policy(*(make_sample([5, 6], [7 + i, 8, 9]) for i in range(3)))
    means = []
    for temperature in (0.3, 1.0, 100.0):
        with torch.no_grad():
            parts = [learner(temperature).score(p)[1] for p in pack(samples, max_tokens=max_tokens, device="cpu")]
        means.append(torch.cat(parts).mean().item())
    assert means == sorted(means)
    assert means[-1] == pytest.approx(np.log(400), abs=1e-3)
