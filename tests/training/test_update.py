from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragen.algorithms.config import KlConfig
from ragen.credit.config import AdvantageConfig
from ragen.credit.samples import make_samples
from ragen.engines.torch_engine import TorchEngine
from ragen.metrics import find
from ragen.models.policy import Policy
from ragen.records import Group, Sample, Sampling
from ragen.training import scoring
from ragen.training.packing import pack
from ragen.training.update import Learner
from tests.support.gradients import gradient, stir
from tests.support.learners import make_learner, on_policy, random_samples, same_tensors, small_policy, weights
from tests.support.samples import make_sample, make_trajectory

TUNINGS = ["full", "lora"]
PROMPT = [5, 6, 7, 8]


@pytest.fixture(params=TUNINGS)
def policy(request: pytest.FixtureRequest) -> Policy:
    made = small_policy(request.param)
    if made.uses_adapters:
        stir(made)
    return made


def sample_from(policy: Policy, *, count: int = 8, seed: int = 0, **sampling: Any) -> list[Sample]:
    """What the engine samples from the policy after one prompt, advantages 1 and -1 in turn."""
    engine = TorchEngine(policy)

    async def generate() -> list[Any]:
        requests = [Sampling(max_new_tokens=10, seed=(seed, i), **sampling) for i in range(count)]
        return await asyncio.gather(*(engine.generate(PROMPT, request) for request in requests))

    replies = asyncio.run(generate())
    return [
        make_sample(PROMPT, reply.ids, logprobs=reply.logprobs, advantage=(-1.0) ** i, member=i)
        for i, reply in enumerate(replies)
    ]


def mean_logprob(learner: Learner, samples: Sequence[Sample]) -> float:
    with torch.no_grad():
        return torch.cat([learner.score(p)[0] for p in pack(samples, max_tokens=4096, device="cpu")]).mean().item()


def mean_entropy(learner: Learner, samples: Sequence[Sample]) -> float:
    with torch.no_grad():
        return torch.cat([learner.score(p)[1] for p in pack(samples, max_tokens=4096, device="cpu")]).mean().item()


# -- one denominator ---------------------------------------------------------------------------------------------------------


def test_the_gradient_does_not_depend_on_how_the_rows_are_split(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 71: 8 rows of lengths 1 and 100 as 1 x 8, 2 x 4 and 8 x 1; a mean of means would differ by half."""
    stir(policy, seed=1)
    rows = [make_sample(PROMPT, [9 + i] * (1 if i % 2 else 100), advantage=2.0 - i % 3, member=i) for i in range(8)]
    learner = make_learner(policy, entropy_coef=0.01, kl=KlConfig(coef=0.1 if policy.uses_adapters else 0.0))
    sizes = {8: 8 * 100, 4: 4 * 100, 1: 1}
    counts = {n: [len(p.samples) for p in pack(rows, max_tokens=t, device="cpu")] for n, t in sizes.items()}
    assert counts == {8: [8], 4: [4, 4], 1: [1] * 8}
    whole, halves, single = (gradient(learner, rows, monkeypatch, max_tokens=t) for t in sizes.values())
    assert len(whole) == len(policy.trainable())
    assert max(g.abs().max().item() for g in whole.values()) > 1e-3
    for name, expected in whole.items():
        for other in (halves[name], single[name]):
            torch.testing.assert_close(other, expected, atol=1e-6, rtol=0)


def test_the_loss_of_a_step_is_the_mean_over_all_its_tokens() -> None:
    """Ratios are 1: per token the loss is minus the advantage. 1 token of 3 and 4 tokens of -1: (-3 + 4) / 5."""
    samples = on_policy(make_sample(PROMPT, [9], advantage=3.0), make_sample(PROMPT, [10, 11, 12, 13], advantage=-1.0))
    metrics = make_learner(small_policy()).update(samples, step=0).metrics
    assert metrics["update/policy_loss"] == pytest.approx(0.2, abs=1e-4)
    assert metrics["update/tokens"] == 5


def test_two_prompts_share_the_denominator(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a step is the token-weighted mean of those of its packs."""
    first = on_policy(make_sample([5, 6], [9], advantage=1.0))
    second = on_policy(make_sample([7], [10, 11, 12], advantage=-2.0))
    learner = make_learner(policy)
    one, other, both = (gradient(learner, s, monkeypatch, max_tokens=99) for s in (first, second, [*first, *second]))
    for name, found in both.items():
        torch.testing.assert_close(found, one[name] / 4 + other[name] * 3 / 4, atol=1e-6, rtol=1e-3)


# -- on-policy ratios --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.0])
def test_ratios_are_one_on_the_first_pass_at_any_temperature(policy: Policy, temperature: float) -> None:
    """Bug-log rows 49 and 68: the same temperature on both sides and no dropout."""
    samples = sample_from(policy, temperature=temperature)
    metrics = make_learner(policy, temperature=temperature).update(samples, step=0).metrics
    assert metrics["update/ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert metrics["update/ratio_max"] == pytest.approx(1, abs=1e-4)
    assert metrics["update/engine_gap_max"] < 1e-4
    assert (metrics["update/clip_low_frac"], metrics["update/clip_high_frac"]) == (0, 0)


@pytest.mark.parametrize("cut", [{"top_p": 0.7}, {"top_k": 5}, {"temperature": 0.6, "top_p": 0.9, "top_k": 50}])
def test_ratios_are_one_also_when_the_rollout_was_sampled_from_a_cut_distribution(cut: dict[str, Any]) -> None:
    """Kin of bug-log row 49: the engine's log-probs are of the cut distribution, the learner's of the whole one. Unless that is
    taken care of, ratios start near top_p, below 1 - clip_low, and no bad reply is ever made rarer."""
    policy = small_policy()
    samples = sample_from(policy, **cut)
    temperature = cut.get("temperature", 1.0)
    naive = make_learner(small_policy(), temperature=temperature).update(samples, step=0).metrics
    assert naive["update/ratio_max"] < 0.95
    metrics = make_learner(policy, temperature=temperature, truncated=True).update(samples, step=0).metrics
    assert metrics["update/ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert "update/engine_gap_max" not in metrics  # two different distributions: their gap says nothing of the engine
    assert [s.logprobs.tolist() for s in samples] == [s.logprobs.tolist() for s in sample_from(small_policy(), **cut)]


def test_ratios_leave_one_only_after_the_first_optimiser_step() -> None:
    policy = small_policy()
    samples = sample_from(policy)
    metrics = make_learner(policy, num_epochs=2, lr=1e-2).update(samples, step=0).metrics
    assert metrics["update/engine_gap_max"] < 1e-4  # of the first pass alone
    assert abs(metrics["update/ratio_max"] - 1) > 1e-2
    assert metrics["update/tokens"] == 2 * sum(s.trajectory.num_sampled for s in samples)


def test_nothing_is_in_training_mode_and_nothing_is_dropped(policy: Policy) -> None:
    """Bug-log row 68: also after updates and after the adapters have been switched off and on."""
    samples = sample_from(policy)
    make_learner(policy, kl=KlConfig(coef=0.1 if policy.uses_adapters else 0.0)).update(samples, step=0)
    assert not any(m.training for m in policy.module.modules())


# -- directions --------------------------------------------------------------------------------------------------------------


def test_a_step_makes_good_replies_likelier_and_bad_ones_rarer(policy: Policy) -> None:
    good = [make_sample(PROMPT, [20 + i, 30, 40], advantage=1.0, member=i) for i in range(3)]
    bad = [make_sample(PROMPT, [60 + i, 70, 80], advantage=-1.0, member=3 + i) for i in range(3)]
    learner = make_learner(policy)
    good, bad = scored(learner, good), scored(learner, bad)
    before = mean_logprob(learner, good), mean_logprob(learner, bad)
    learner.update([*good, *bad], step=0)
    assert mean_logprob(learner, good) > before[0]
    assert mean_logprob(learner, bad) < before[1]


def scored(learner: Learner, samples: Sequence[Sample]) -> list[Sample]:
    """The same samples with the learner's own log-probs as the old ones."""
    made = []
    for sample in samples:
        (part,) = pack([sample], max_tokens=4096, device="cpu")
        values = np.zeros(len(sample.ids), dtype=np.float32)
        with torch.no_grad():
            values[sample.mask] = learner.score(part)[0].numpy()
        made.append(sample.with_logprobs(values))
    return made


def test_the_entropy_bonus_raises_entropy(policy: Policy) -> None:
    """Bug-log row 70: with no advantage to follow, entropy rises over some updates; without the bonus nothing moves."""
    learner = make_learner(policy, entropy_coef=1.0, lr=3e-3, temperature=0.3)  # which leaves room for entropy to grow
    samples = scored(learner, [make_sample(PROMPT, [20 + i, 30, 40], advantage=0.0, member=i) for i in range(4)])
    before = mean_entropy(learner, samples)
    for step in range(10):
        learner.update(samples, step=step)
    assert mean_entropy(learner, samples) > before + 0.05


@pytest.mark.parametrize("estimator", ["k2", "k3", "unbiased"])
@pytest.mark.parametrize("tuning", TUNINGS)
def test_the_kl_term_leads_back_to_the_start(tuning: str, estimator: str) -> None:
    """Bug-log row 70: constant reward, policy different from its start; KL falls over 20 updates."""
    policy = small_policy(tuning, with_reference=True)
    stir(policy, 0.1, seed=3)
    learner = make_learner(policy, kl=KlConfig(coef=1.0, estimator=estimator), lr=1e-2)
    kl = []
    for step in range(20):
        samples = [replace(s, advantages=np.zeros_like(s.advantages)) for s in sample_from(policy, seed=step, count=24)]
        kl.append(learner.update(samples, step=step, kl_groups=1).metrics["update/kl_start"])
    assert kl[0] > 0.1
    assert sum(kl[-3:]) / 3 < 0.6 * kl[0]


@pytest.mark.parametrize("tuning", TUNINGS)
def test_the_kl_to_the_start_is_zero_at_the_start_and_positive_after(tuning: str) -> None:
    policy = small_policy(tuning, with_reference=True)
    samples = sample_from(policy)
    learner = make_learner(policy, lr=1e-2)
    first, second = (learner.update(samples, step=step, kl_groups=1).metrics["update/kl_start"] for step in (0, 1))
    assert first == pytest.approx(0, abs=1e-9)
    assert second > 1e-4


def test_the_kl_to_the_start_is_over_whole_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the packs: the first two of three prompts, all their members."""
    policy = small_policy(with_reference=True)
    stir(policy)
    samples = random_samples(9, prompts=3)
    learner = make_learner(policy)
    expected = learner._kl_to_start([s for s in samples if s.trajectory.key.group < 2], 99)
    assert learner._kl_to_start(samples, 2) == pytest.approx(expected, rel=1e-6)
    monkeypatch.setattr(learner.pack_size, "tokens", 1)
    assert learner._kl_to_start(samples, 2) == pytest.approx(expected, rel=1e-4)
    assert learner._kl_to_start(samples, 0) is None


def test_measuring_the_kl_changes_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters are switched off and on between the forward and the backward pass."""
    policy = small_policy("lora")
    stir(policy)
    samples = random_samples(6)
    plain = gradient(make_learner(policy), samples, monkeypatch, max_tokens=99)
    nearly = gradient(make_learner(policy, kl=KlConfig(coef=1e-12)), samples, monkeypatch, max_tokens=99)
    assert plain.keys() == nearly.keys() == policy.trainable().keys()
    for name, expected in plain.items():
        torch.testing.assert_close(nearly[name], expected, atol=1e-7, rtol=0)


def play(policy: Policy, prompt: Sequence[int], *, group: int, step: int, count: int = 16) -> Group:
    """Replies of six tokens; the return is the share of ids below 100, a quarter of the vocabulary."""
    engine = TorchEngine(policy)

    async def generate() -> list[Any]:
        requests = [Sampling(max_new_tokens=6, seed=(step, group, i)) for i in range(count)]
        return await asyncio.gather(*(engine.generate(prompt, request) for request in requests))

    made = []
    for member, reply in enumerate(asyncio.run(generate())):
        reward = sum(i < 100 for i in reply.ids) / len(reply.ids)
        made.append(make_trajectory(prompt, reply.ids, logprobs=reply.logprobs, rewards=[reward], group=group, member=member))
    return Group(trajectories=tuple(made))


@pytest.mark.parametrize(
    ("advantage", "lr"),
    [
        (AdvantageConfig(), 0.03),
        (AdvantageConfig(estimator="brpo", method="mean"), 0.03),
        (AdvantageConfig(estimator="arpo"), 0.05),
        (AdvantageConfig(estimator="rloo"), 0.03),
        (AdvantageConfig(estimator="reinforce_pp"), 0.03),
    ],
    ids=lambda value: value.estimator if isinstance(value, AdvantageConfig) else str(value),
)
def test_a_random_model_learns_what_pays(advantage: AdvantageConfig, lr: float) -> None:
    """Engine, credit, packing and update together, from about a quarter at the start."""
    policy = small_policy()
    learner = make_learner(policy, lr=lr, num_minibatches=2)
    shares = []
    for step in range(12):
        groups = [play(policy, prompt, group=g, step=step) for g, prompt in enumerate(([5, 6, 7, 8], [300, 301]))]
        shares.append(float(np.mean([t.return_ for group in groups for t in group.trajectories])))
        learner.update(make_samples(groups, advantage), step=step)
    assert 0.1 < shares[0] < 0.4
    assert shares[-1] > 0.6


# -- nothing to learn, nothing changes ---------------------------------------------------------------------------------------


def test_zero_advantages_without_bonus_change_no_weight(policy: Policy) -> None:
    samples = [replace(s, advantages=np.zeros_like(s.advantages)) for s in random_samples(6)]
    before = weights(policy)
    result = make_learner(policy, num_minibatches=2).update(samples, step=0)
    assert result.num_applied == 2
    assert result.metrics["update/grad_norm"] == 0
    assert result.metrics["update/advantage_std"] == 0
    assert same_tensors(before, weights(policy))


def test_only_what_is_trained_changes(policy: Policy) -> None:
    before = weights(policy)
    make_learner(policy).update(random_samples(6), step=0)
    changed = {name for name, value in weights(policy).items() if not torch.equal(value, before[name])}
    assert changed == policy.trainable().keys()
    if policy.uses_adapters:
        assert all(".lora_" in name for name in changed)


# -- what is not finite ------------------------------------------------------------------------------------------------------


def spoil_logprob(sample: Sample) -> Sample:
    values = sample.logprobs.copy()
    values[sample.mask.nonzero()[0][-1]] = math.nan
    return sample.with_logprobs(values)


def spoil_advantage(sample: Sample) -> Sample:
    return replace(sample, advantages=np.full_like(sample.advantages, math.inf))


def trained_once(policy: Policy) -> Learner:
    """A learner whose optimiser has a state that could be lost."""
    learner = make_learner(policy)
    learner.update(random_samples(4), step=0)
    return learner


@pytest.mark.parametrize("spoil", [spoil_logprob, spoil_advantage])
def test_a_loss_that_is_not_finite_changes_nothing_and_names_its_sample(
    policy: Policy, spoil: Callable[[Sample], Sample]
) -> None:
    """Bug-log rows 63, 64 and 19: weights, optimiser state and version stay as they are, bit for bit."""
    learner = trained_once(policy)
    before = weights(policy), learner.optimizer_state(), policy.version, learner.num_optimizer_steps
    before = (before[0], {k: v.clone() for k, v in before[1].items()}, *before[2:])
    samples = random_samples(6, seed=5)
    samples[3] = spoil(samples[3])
    result = learner.update(samples, step=1)
    assert result.culprits == ["loss of corridor group 1 member 3 (task seed 101)"]
    assert result.num_applied == 0
    assert same_tensors(before[0], weights(policy))
    assert same_tensors(before[1], learner.optimizer_state())
    assert (policy.version, learner.num_optimizer_steps) == before[2:]
    assert all(p.grad is None for p in policy.trainable().values())


def test_a_skipped_update_logs_no_invented_numbers(policy: Policy) -> None:
    """An entropy or ratio of 0 would be a lie: what was not measured is absent (invariant I4)."""
    samples = [spoil_logprob(s) for s in random_samples(4)]
    metrics = make_learner(policy).update(samples, step=0).metrics
    assert metrics == {
        "update/tokens": 0,
        "update/skipped": 1,
        "update/out_of_memory": 0,
        "update/version_lag_mean": 0,
        "update/version_lag_max": 0,
        "update/advantage_std": pytest.approx(np.std([s.advantages[0] for s in samples])),
    }


def test_a_gradient_that_is_not_finite_changes_nothing(policy: Policy) -> None:
    """Bug-log row 64: one infinite gradient, of a loss that is finite."""
    learner = trained_once(policy)
    before, state = weights(policy), {k: v.clone() for k, v in learner.optimizer_state().items()}
    name, parameter = next(iter(policy.trainable().items()))
    hook = parameter.register_hook(lambda grad: torch.where(torch.arange(grad.numel()).view(grad.shape) == 0, math.inf, grad))
    samples = on_policy(make_sample(PROMPT, [9, 10], group=2, member=7))
    result = learner.update(samples, step=1)
    hook.remove()
    assert result.culprits == ["gradient of corridor group 2 member 7 (task seed 102)"], name
    assert same_tensors(before, weights(policy))
    assert same_tensors(state, learner.optimizer_state())


def test_a_gradient_norm_that_overflows_changes_nothing(policy: Policy) -> None:
    """Every entry finite, the root of the sum of squares not."""
    learner = trained_once(policy)
    before, state = weights(policy), {k: v.clone() for k, v in learner.optimizer_state().items()}
    hooks = [p.register_hook(lambda grad: torch.full_like(grad, 1e30)) for p in policy.trainable().values()]
    result = learner.update(random_samples(6), step=1)
    for hook in hooks:
        hook.remove()
    assert len(result.culprits) == 1
    assert result.culprits[0].startswith("gradient norm inf over corridor group")
    assert result.culprits[0].endswith("and 2 more")
    assert same_tensors(before, weights(policy))
    assert same_tensors(state, learner.optimizer_state())


def test_the_other_minibatch_is_still_applied(policy: Policy) -> None:
    """One bad sample costs its own optimiser step: the result is that of the good minibatch alone, bit for bit."""
    samples = random_samples(8, prompts=2)
    learner = make_learner(policy, num_minibatches=2)
    start = weights(policy)
    first, second = learner._minibatches(samples, 0, 0)
    make_learner(policy).update(second, step=0)
    expected = weights(policy)
    assert not same_tensors(start, expected)
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            parameter.copy_(start[name])
    bad = first[-1].trajectory.key
    spoiled = [spoil_logprob(s) if s.trajectory.key == bad else s for s in samples]
    version = policy.version
    result = make_learner(policy, num_minibatches=2).update(spoiled, step=0)
    assert (result.num_applied, len(result.culprits), policy.version) == (1, 1, version + 1)
    assert f"member {bad.member} " in result.culprits[0]
    assert same_tensors(expected, weights(policy))
    assert result.metrics["update/tokens"] == sum(s.trajectory.num_sampled for s in second)
    assert math.isfinite(result.metrics["update/loss"])


def test_a_bad_kl_term_of_one_minibatch_does_not_hide_the_loss_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = small_policy(with_reference=True)
    learner = make_learner(policy, num_minibatches=2, kl=KlConfig(coef=0.1))
    calls: list[int] = []
    honest = learner._reference_logprobs

    def dishonest(part: Any) -> Tensor:
        calls.append(1)
        return honest(part) * (math.nan if len(calls) == 1 else 1.0)

    monkeypatch.setattr(learner, "_reference_logprobs", dishonest)
    metrics = learner.update(random_samples(8), step=0).metrics
    assert metrics["update/skipped"] == 1
    assert "update/loss" in metrics


# -- minibatches, epochs, schedule -------------------------------------------------------------------------------------------


def members(parts: list[list[Sample]]) -> list[list[int]]:
    return [[s.trajectory.key.member for s in part] for part in parts]


def test_the_order_of_minibatches_is_a_function_of_seed_step_and_epoch() -> None:
    policy = small_policy()
    samples = random_samples(24, prompts=6)

    def order(seed: int, step: int, epoch: int) -> list[list[int]]:
        return members(make_learner(policy, num_minibatches=3, run_seed=seed)._minibatches(samples, step, epoch))

    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert [order(*place) for place in places] == [order(*place) for place in places]
    assert len({str(order(*place)) for place in places}) == 4
    torch.manual_seed(9)
    np.random.seed(9)
    assert order(0, 0, 0) == order(0, 0, 0)


@pytest.mark.parametrize("count", [1, 2, 5, 24])
@pytest.mark.parametrize("num_minibatches", [1, 2, 3, 7])
def test_minibatches_hold_every_sample_once_in_near_equal_parts(count: int, num_minibatches: int) -> None:
    """Any count works (bug-log row 101); more minibatches than samples gives one a sample."""
    samples = random_samples(count, prompts=4)
    parts = members(make_learner(small_policy(), num_minibatches=num_minibatches)._minibatches(samples, 0, 0))
    assert sorted(m for part in parts for m in part) == list(range(count))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == min(count, num_minibatches)


def test_members_of_a_prompt_stay_together_where_the_cut_allows_it() -> None:
    samples = random_samples(16, prompts=4)
    parts = make_learner(small_policy(), num_minibatches=2)._minibatches(samples, 0, 0)
    groups = [{s.trajectory.key.group for s in part} for part in parts]
    assert [len(group) for group in groups] == [2, 2]
    assert not groups[0] & groups[1]


def test_each_minibatch_of_each_epoch_is_one_optimiser_step_and_one_policy_version() -> None:
    policy = small_policy()
    learner = make_learner(policy, num_minibatches=3, num_epochs=2)
    seen: list[int] = []
    result = learner.update(random_samples(9), step=0, on_progress=seen.append)
    assert (result.num_applied, learner.num_optimizer_steps, policy.version) == (6, 6, 6)
    assert sum(seen) == 9 * learner.num_epochs


def test_the_learning_rate_warms_up_over_optimiser_steps() -> None:
    learner = make_learner(small_policy(), lr=0.01, warmup_steps=4)
    samples = random_samples(3)
    rates = [learner.update(samples, step=step).metrics["update/learning_rate"] for step in range(6)]
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])


def test_a_skipped_step_does_not_move_the_warm_up() -> None:
    learner = make_learner(small_policy(), lr=0.01, warmup_steps=4)
    samples = random_samples(3)
    learner.update([spoil_logprob(s) for s in samples], step=0)
    assert learner.update(samples, step=1).metrics["update/learning_rate"] == pytest.approx(0.0025)


def test_the_first_step_moves_a_weight_by_the_learning_rate(policy: Policy) -> None:
    """Adam's first step is lr times the sign of the gradient, wherever the gradient is well above its epsilon."""
    before = weights(policy)
    make_learner(policy, lr=1e-3).update(random_samples(6), step=0)
    moved = max((value - before[name]).abs().max().item() for name, value in weights(policy).items())
    assert moved == pytest.approx(1e-3, rel=0.01)


def test_a_large_gradient_is_clipped_and_logged_as_it_was() -> None:
    """Adam forgets the scale of a constant gradient, so the clip shows in the moments: their norm is (1 - beta1) * grad_clip."""
    learner = make_learner(small_policy())
    samples = [replace(s, advantages=s.advantages * 1000) for s in random_samples(6)]
    metrics = learner.update(samples, step=0).metrics
    assert metrics["update/grad_norm"] > 10
    moments = [v for name, v in learner.optimizer_state().items() if name.endswith("/exp_avg")]
    assert torch.cat([m.flatten() for m in moments]).norm().item() == pytest.approx(0.1 * 1.0, rel=1e-3)


# -- metrics and state -------------------------------------------------------------------------------------------------------


def test_every_metric_is_finite_and_defined() -> None:
    learner = make_learner(small_policy(with_reference=True), num_minibatches=2, entropy_coef=0.01, kl=KlConfig(coef=0.1))
    metrics = learner.update(random_samples(8), step=0, kl_groups=1).metrics
    assert [key for key in metrics if find(key) is None] == []
    assert all(math.isfinite(value) for value in metrics.values())
    expected = metrics["update/policy_loss"] - 0.01 * metrics["update/entropy"]
    assert metrics["update/loss"] == pytest.approx(expected, abs=0.1 * 0.1)
    assert len(metrics) == 21


def test_clip_fractions_count_each_side() -> None:
    """Old log-probs 1 above or below the policy's: ratios e and 1/e, beyond both bounds; half of the tokens are hit each."""
    policy = small_policy()
    high, low = on_policy(make_sample(PROMPT, [9, 10], advantage=1.0), make_sample(PROMPT, [11, 12], advantage=-1.0, member=1))
    shifted = [s.with_logprobs(s.logprobs + np.float32(shift) * s.mask) for s, shift in ((high, -1.0), (low, 1.0))]
    metrics = make_learner(policy).update(shifted, step=0).metrics
    assert (metrics["update/clip_low_frac"], metrics["update/clip_high_frac"]) == (0.5, 0.5)
    assert metrics["update/ratio_max"] == pytest.approx(math.e, rel=1e-3)
    assert metrics["update/ratio_mean"] == pytest.approx((math.e + 1 / math.e) / 2, rel=1e-3)
    assert metrics["update/engine_gap_mean"] == pytest.approx(1, abs=1e-3)
    assert metrics["update/grad_norm"] == 0  # all four tokens are clipped


def test_a_learner_goes_on_from_its_saved_state_bit_for_bit(policy: Policy) -> None:
    """Bug-log row 77: two updates in one go, or one, a copy of weights and optimiser, and the other."""
    learner = make_learner(policy, num_minibatches=2, warmup_steps=5)
    samples = random_samples(6)
    learner.update(samples, step=0)
    saved, state, steps = weights(policy), learner.optimizer_state(), learner.num_optimizer_steps
    state = {name: value.clone() for name, value in state.items()}
    learner.update(samples, step=1)
    expected = weights(policy)
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            parameter.copy_(saved[name])
    resumed = make_learner(policy, num_minibatches=2, warmup_steps=5)
    resumed.load_optimizer_state(state, num_optimizer_steps=steps)
    resumed.update(samples, step=1)
    assert same_tensors(expected, weights(policy))


def test_two_learners_with_the_same_seed_do_the_same(policy: Policy) -> None:
    """Invariant I5, whatever the global generators hold."""
    samples = random_samples(8)
    start = weights(policy)
    ends = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with torch.no_grad():
            for name, parameter in policy.module.named_parameters():
                parameter.copy_(start[name])
        make_learner(policy, num_minibatches=2, num_epochs=2).update(samples, step=3)
        ends.append(weights(policy))
    assert same_tensors(*ends)


def test_scores_of_all_tokens_never_exist_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log rows 104 and 105: in chunks, of positions that predict a sampled token; the same numbers come out."""
    policy = small_policy(with_reference=True)
    samples = random_samples(6)
    (part, _) = pack(samples, max_tokens=4096, device="cpu")
    learner = make_learner(policy)
    with torch.no_grad():
        expected = [*learner.score(part), learner._reference_logprobs(part)]
    sizes: list[int] = []
    monkeypatch.setitem(scoring.CHUNK_SCORES, "cpu", 3 * policy.num_ids)
    for one in (policy, policy.start_policy):
        honest = one.logits  # type: ignore[union-attr]
        monkeypatch.setattr(one, "logits", lambda rows, honest=honest: (sizes.append(len(rows)), honest(rows))[1])
    with torch.no_grad():
        found = [*learner.score(part), learner._reference_logprobs(part)]
    assert max(sizes) == 3
    assert sum(sizes) == 2 * part.num_trained < 2 * len(part.ids_L)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
