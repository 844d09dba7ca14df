"""The terms of the loss inside the learner: which samples they act on, how they are averaged, and what is not run for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragen.algorithms.config import AGGREGATIONS, KlConfig, LossConfig
from ragen.records import Sample, Segment, Trajectory
from tests.support.gradients import gradient, stir
from tests.support.learners import make_learner, on_policy, random_samples, same_tensors, small_policy, stock_logprobs, weights
from tests.support.samples import make_sample, make_trajectory

PROMPT = [5, 6, 7, 8]
LOSSES = {
    "ppo": LossConfig(dual_clip=3.0),
    "gspo": LossConfig(name="gspo", clip_low=0.01, clip_high=0.01),
    "cispo": LossConfig(name="cispo", clip_low=1.0, clip_high=4.0),
    "sapo": LossConfig(name="sapo"),
}


def off_policy(samples: Sequence[Sample], seed: int = 0) -> list[Sample]:
    """The same samples as if another policy had sampled them: each log-prob moved by up to 0.3."""
    random = np.random.default_rng(seed)
    return [s.with_logprobs((s.logprobs + s.mask * random.uniform(-0.3, 0.3, len(s.ids))).astype(np.float32)) for s in samples]


def shifted(sample: Sample, shift: float) -> Sample:
    return sample.with_logprobs(sample.logprobs + np.float32(shift) * sample.mask)


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], *, atol: float = 1e-6) -> None:
    assert found.keys() == expected.keys() != set()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=atol, rtol=1e-4)


# -- averaging ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token_mean", 0.2), ("seq_mean_token_mean", -1.0), ("seq_mean_token_sum", 0.5), ("constant", 0.05)],
)
def test_the_loss_of_a_step_by_hand(aggregation: str, expected: float) -> None:
    """Ratios are 1: per token the loss is minus the advantage. 1 token of 3 and 4 tokens of -1: (-3 + 4) / 5; (-3 + 1) / 2;
    (-3 + 4) / 2; and the same by 10, the longest episode."""
    samples = on_policy(make_sample(PROMPT, [9], advantage=3.0), make_sample(PROMPT, [10, 11, 12, 13], advantage=-1.0, member=1))
    learner = make_learner(small_policy(), loss=LossConfig(aggregation=aggregation), episode_tokens=10)
    metrics = learner.update(samples, step=0).metrics
    assert metrics["update/loss"] == pytest.approx(expected, abs=1e-4)
    assert metrics["update/policy_loss"] == pytest.approx(0.2, abs=1e-4)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_depends_on_how_the_rows_are_split(name: str, aggregation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 71, for every loss and aggregation, with entropy and KL: one pass for all rows, or one for each."""
    policy = small_policy(with_reference=True)
    stir(policy)
    samples = off_policy(random_samples(8, lengths=(1, 20)))
    settings = {"entropy_coef": 0.01, "kl": KlConfig(coef=0.1, estimator="unbiased"), "episode_tokens": 60}
    learner = make_learner(policy, loss=replace(LOSSES[name], aggregation=aggregation), **settings)
    whole, single = (gradient(learner, samples, monkeypatch, max_tokens=n) for n in (4096, 1))
    assert max(g.abs().max().item() for g in whole.values()) > 1e-3
    assert_close(single, whole)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_trajectory_in_two_segments_weighs_what_it_would_in_one(aggregation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply of two tokens, and the second of them once more as a segment of its own whose prompt holds the first."""
    whole, other = on_policy(make_sample(PROMPT, [9, 10]), make_sample(PROMPT, [11, 12, 13], advantage=-1.0, member=1))
    ids, logprobs = whole.ids, whole.logprobs
    first = Segment(ids=ids[:5], mask=whole.mask[:5], logprobs=logprobs[:5])
    second = Segment(ids=ids, mask=np.array([False] * 5 + [True]), logprobs=logprobs * (np.arange(6) == 5))
    trajectory = replace(whole.trajectory, segments=(first, second))
    parts = [
        Sample(trajectory=trajectory, segment=i, advantages=np.ones(len(s.ids), dtype=np.float32))
        for i, s in enumerate((first, second))
    ]
    learner = make_learner(small_policy(), loss=LossConfig(aggregation=aggregation), entropy_coef=0.01, episode_tokens=7)
    assert_close(gradient(learner, [*parts, other], monkeypatch), gradient(learner, [whole, other], monkeypatch))


def test_length_weights_make_a_token_mean_a_mean_over_trajectories(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, samples = small_policy(), off_policy(random_samples(6))
    by_length = gradient(make_learner(policy, loss=LossConfig(length_weight=True)), samples, monkeypatch)
    by_mean = gradient(make_learner(policy, loss=LossConfig(aggregation="seq_mean_token_mean")), samples, monkeypatch)
    assert_close(by_length, by_mean)


# -- what acts on what -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
def test_zero_advantages_give_a_gradient_of_exactly_zero(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [replace(s, advantages=np.zeros_like(s.advantages)) for s in off_policy(random_samples(6))]
    found = gradient(make_learner(small_policy(), loss=LOSSES[name]), samples, monkeypatch)
    assert all(not g.any() for g in found.values())


def test_entropy_acts_on_zero_advantages_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the switch off, samples without an advantage add nothing but to the number of tokens."""
    policy = small_policy(with_reference=True)
    stir(policy)
    idle = [replace(s, advantages=np.zeros_like(s.advantages)) for s in random_samples(4)]
    (busy,) = on_policy(make_sample([7, 8], [9, 10, 11], member=9))
    settings = {"entropy_coef": 0.5, "kl": KlConfig(coef=0.5)}
    off = make_learner(policy, loss=LossConfig(regularize_zero_advantage=False), **settings)
    on = make_learner(policy, **settings)
    assert all(not g.any() for g in gradient(off, idle, monkeypatch).values())
    assert any(g.any() for g in gradient(on, idle, monkeypatch).values())
    share = 3 / (3 + sum(int(s.mask.sum()) for s in idle))
    alone = gradient(on, [busy], monkeypatch)
    assert_close(gradient(off, [busy, *idle], monkeypatch), {name: share * g for name, g in alone.items()})


def test_without_the_task_term_advantages_have_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = small_policy()
    learner = make_learner(policy, loss=LossConfig(task_term=False), entropy_coef=0.1)
    samples = random_samples(4)
    idle = [replace(s, advantages=np.zeros_like(s.advantages)) for s in samples]
    expected = gradient(make_learner(policy, entropy_coef=0.1), idle, monkeypatch)
    assert any(g.any() for g in expected.values())
    assert_close(gradient(learner, samples, monkeypatch), expected)


def test_an_update_without_samples_does_nothing() -> None:
    policy = small_policy()
    before = weights(policy)
    result = make_learner(policy, kl=KlConfig(coef=0.1), loss=LossConfig(tis_cap=2.0)).update([], step=0, kl_groups=1)
    assert (result.num_applied, result.culprits) == (0, [])
    assert result.metrics == {"update/tokens": 0, "update/skipped": 0, "update/out_of_memory": 0, "update/kl_coef": 0.1}
    assert same_tensors(before, weights(policy))


# -- engine and learner ------------------------------------------------------------------------------------------------------


def test_the_token_cap_weighs_what_the_engine_sampled_too_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's log-probs are log 1.5 and log 4 too low: weights 1.5 and, cut, 2. Ratios are against the learner itself."""
    policy = small_policy()
    one, two = on_policy(make_sample(PROMPT, [9, 10], advantage=1.0), make_sample(PROMPT, [11, 12], advantage=-1.0, member=1))
    learner = make_learner(policy, loss=LossConfig(tis_cap=2.0))
    engine = [shifted(one, -math.log(1.5)), shifted(two, -math.log(4))]
    weighted = [replace(s, advantages=s.advantages * np.float32(w)) for s, w in ((one, 1.5), (two, 2.0))]
    expected = gradient(make_learner(policy), weighted, monkeypatch)
    assert_close(gradient(learner, engine, monkeypatch), expected, atol=1e-5)
    metrics = learner.update(engine, step=0).metrics
    assert metrics["update/ratio_max"] == pytest.approx(1, abs=1e-5)
    assert metrics["update/tis_weight_mean"] == pytest.approx(1.75, abs=1e-3)
    assert metrics["update/tis_capped_frac"] == 0.5
    assert metrics["update/engine_gap_max"] == pytest.approx(math.log(4), abs=1e-3)
    assert metrics["update/engine_gap_mean"] == pytest.approx((math.log(1.5) + math.log(4)) / 2, abs=1e-3)
    assert "update/tis_masked_frac" not in metrics


def test_a_sample_beyond_the_mask_has_no_policy_term(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = small_policy()
    kept, left_out = on_policy(make_sample(PROMPT, [9, 10]), make_sample(PROMPT, [11, 12], member=1))
    learner = make_learner(policy, loss=LossConfig(tis_mask_low=0.99, tis_mask_high=1.01))
    engine = [kept, shifted(left_out, 0.1)]
    expected = gradient(make_learner(policy), [kept], monkeypatch)
    assert_close(gradient(learner, engine, monkeypatch), {name: g / 2 for name, g in expected.items()})
    assert learner.update(engine, step=0).metrics["update/tis_masked_frac"] == 0.5


def test_samples_of_an_older_policy_are_named_as_such() -> None:
    policy = small_policy()
    policy.version = 7
    sample = make_sample(PROMPT, [9, 10, 11], [3], [12])
    first, second = sample.trajectory.turns
    turns = (replace(first, policy_version=7), replace(second, policy_version=3))
    stale = replace(sample, trajectory=replace(sample.trajectory, turns=turns))
    metrics = make_learner(policy).update(on_policy(stale), step=0).metrics
    assert (metrics["update/version_lag_mean"], metrics["update/version_lag_max"]) == (1.0, 4.0)


def test_a_rollout_can_be_used_several_times_against_the_policy_that_sampled_it() -> None:
    """Ratios are against the old policy in every epoch, so they leave 1 and the clip begins to act."""
    samples = random_samples(8)
    result = make_learner(small_policy(), num_epochs=4, lr=1e-2).update(samples, step=0)
    assert result.num_applied == 4
    assert result.metrics["update/tokens"] == 4 * sum(int(s.mask.sum()) for s in samples)
    assert result.metrics["update/clip_high_frac"] > 0


# -- the start policy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tuning", ["full", "lora"])
@pytest.mark.parametrize(("kl", "runs"), [(KlConfig(), False), (KlConfig(coef=0.1), True)])
def test_the_start_policy_is_run_only_where_something_needs_it(
    tuning: str, kl: KlConfig, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = small_policy(tuning, with_reference=True)
    calls: list[int] = []
    honest = policy.reference

    @contextmanager
    def counted() -> Any:
        calls.append(1)
        with honest() as reference:
            yield reference

    monkeypatch.setattr(policy, "reference", counted)
    make_learner(policy, kl=kl).update(random_samples(4), step=0)
    assert bool(calls) == runs


def test_a_full_policy_without_a_kl_term_needs_no_copy() -> None:
    policy = small_policy("full", with_reference=False)
    assert policy.start_policy is None
    assert make_learner(policy).update(random_samples(4), step=0).num_applied == 1


def test_the_weight_of_the_kl_term_follows_its_target() -> None:
    """Far above the target it grows by a fifth of the rate: 0.1 -> 0.102; what was used is what is logged."""
    policy = small_policy(with_reference=True)
    stir(policy, 0.1)
    learner = make_learner(policy, kl=KlConfig(coef=0.1, target=1e-4))
    metrics = learner.update(random_samples(6), step=0).metrics
    assert metrics["update/kl_coef"] == 0.1
    assert metrics["update/kl_loss"] > 1e-4
    assert learner.kl.coef == pytest.approx(0.102)
    resumed = make_learner(policy, kl=KlConfig(coef=0.1, target=1e-4))
    resumed.load_state_dict(learner.state_dict())
    assert resumed.kl.coef == learner.kl.coef


# -- KL in the reward --------------------------------------------------------------------------------------------------------


def price(estimator: str = "k1", **kl: Any) -> KlConfig:
    return KlConfig(place="reward", estimator=estimator, **kl)


def stale_trajectory(*parts: Sequence[int], **details: Any) -> tuple[Trajectory, np.ndarray]:
    """A trajectory whose tokens had log-prob -1 each, and what their start policy says of them."""
    made = make_trajectory(PROMPT, *parts, **details)
    (segment,) = made.segments
    return made, stock_logprobs(segment.ids.tolist())[segment.mask]


def test_every_sampled_token_pays_for_leaving_the_start_policy() -> None:
    """k1: -0.5 (-1 - log reference), over both turns, and no token of what was read."""
    trajectory, start = stale_trajectory([9, 10], [3, 4], [11])
    learner = make_learner(small_policy(with_reference=True), kl=price(coef=0.5))
    found = learner.kl_rewards([trajectory])
    assert [*found] == [trajectory.key]
    np.testing.assert_allclose(found[trajectory.key], -0.5 * (-1 - start), atol=1e-5)


def test_the_price_of_several_trajectories_and_segments_stays_in_order() -> None:
    """Packs go by prompt; the answer goes by trajectory, and inside it by time. A trajectory without a token pays for none."""
    one, start = stale_trajectory([9, 10])
    two, other = stale_trajectory([11, 12, 13], member=1)
    mute = make_trajectory(PROMPT, member=2)
    joined = replace(one, segments=(two.segments[0], one.segments[0]))
    learner = make_learner(small_policy(with_reference=True), kl=price("k2", coef=1.0))
    found = learner.kl_rewards([mute, replace(two, key=one.key, segments=joined.segments)])
    np.testing.assert_allclose(found[one.key], -0.5 * (-1 - np.concatenate([other, start])) ** 2, atol=1e-4)
    assert found[mute.key].shape == (0,)


def test_the_price_is_nothing_where_the_policy_is_its_start() -> None:
    (sample,) = on_policy(make_sample(PROMPT, [9, 10, 11]))
    found = make_learner(small_policy(with_reference=True), kl=price("k3", coef=1.0)).kl_rewards([sample.trajectory])
    np.testing.assert_allclose(found[sample.trajectory.key], 0, atol=1e-6)


def test_the_price_in_the_reward_leaves_the_loss_alone() -> None:
    policy = small_policy(with_reference=True)
    metrics = make_learner(policy, kl=price(coef=0.5)).update(random_samples(4), step=0).metrics
    assert "update/kl_loss" not in metrics
    assert metrics["update/kl_coef"] == 0.5


def test_the_weight_of_the_price_follows_its_target_too() -> None:
    """The update adapts it, not the price: while a critic warms up there is none. What was paid is what is logged."""
    trajectory, start = stale_trajectory([9, 10])
    learner = make_learner(small_policy(with_reference=True), kl=price(coef=0.5, target=1e-3))
    first, again = (learner.kl_rewards([trajectory])[trajectory.key] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    metrics = learner.update([], step=0).metrics
    assert (metrics["update/kl_coef"], metrics["update/kl_loss"]) == (0.5, pytest.approx(float((-1 - start).mean()), rel=1e-4))
    np.testing.assert_allclose(learner.kl_rewards([trajectory])[trajectory.key], first * 1.02, rtol=1e-5)
