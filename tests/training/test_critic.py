from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from ragen.algorithms.critic_config import CriticConfig
from ragen.credit.config import AdvantageConfig
from ragen.credit.samples import CriticSample, assign_credit
from ragen.errors import ModelError, StorageError, TrainingError
from ragen.metrics import find
from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.models.tiny import build_tokenizer
from ragen.records import EndReason, FinishReason, Group, Sample, Segment, Summary
from ragen.training.checkpoint import load_checkpoint, save_checkpoint
from ragen.training.config import OptimizerConfig
from ragen.training.critic import CRITIC_ADAPTER, Critic, load_critic
from tests.support.learners import make_learner, random_samples, same_tensors
from tests.support.models import build_tiny_llama, tiny_gpt2, tiny_llama
from tests.support.samples import make_sample, make_trajectory

KINDS = ["adapter", "trunk", "model"]
EVERY_KIND = [("lora", "adapter"), ("lora", "trunk"), ("lora", "model"), ("full", "trunk"), ("full", "model")]


def settings_of(tuning: str = "lora", dtype: str = "float32", folder: Path | None = None) -> ModelConfig:
    return ModelConfig(name=str(folder or tiny_llama()), tuning=tuning, dtype=dtype, lora_rank=4, lora_alpha=8)


def build(
    kind: str = "adapter", tuning: str = "lora", *, dtype: str = "float32", checkpoint: Path | None = None, **fields: Any
) -> tuple[Policy, Critic]:
    """A policy and its critic, large steps and no clip unless asked otherwise; both as they were in a checkpoint, if given."""
    model = settings_of(tuning, dtype)
    config = CriticConfig(**{"kind": kind, "lr": 0.01, "clip": 0.0, "num_minibatches": 1, **fields})
    config.check()
    config.check_beside(model)
    policy = load_policy(model, checkpoint=checkpoint)
    return policy, load_critic(config, policy, model, OptimizerConfig(), run_seed=0, checkpoint=checkpoint)


@torch.no_grad()
def stir(parameters: dict[str, torch.nn.Parameter], *, scale: float = 0.1, seed: int = 0) -> None:
    """Move parameters, such as those that begin at zero and would hide what lies behind them."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters.values():
        parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)


def copies(parameters: dict[str, torch.nn.Parameter]) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in parameters.items()}


def everything(policy: Policy, critic: Critic) -> dict[str, Tensor]:
    return copies(dict(policy.module.named_parameters()) | {f"critic.{n}": p for n, p in critic.trainable().items()})


def read(critic: Critic, samples: Sequence[Sample]) -> list[np.ndarray]:
    """Per sample [S], all asked for at once."""
    values = critic.values([sample.trajectory for sample in samples])
    return [values[sample.trajectory.key].tokens for sample in samples]


def lessons(critic: Critic, samples: Sequence[Sample], target: float | Sequence[float]) -> list[CriticSample]:
    """One target for all tokens of a sample (or of all samples), beside the critic's present values."""
    made = []
    targets = [target] * len(samples) if isinstance(target, float) else target
    for sample, values, target in zip(samples, read(critic, samples), targets, strict=True):
        old = np.zeros(len(sample.ids), dtype=np.float32)
        old[sample.mask] = values
        made.append(CriticSample(values=old, targets=np.full(len(sample.ids), target, dtype=np.float32)))
    return made


def learn(critic: Critic, samples: Sequence[Sample], target: float | Sequence[float], *, steps: int = 1) -> dict[str, float]:
    """So many updates, each from the values of its own time; the metrics of the last."""
    metrics: dict[str, float] = {}
    for step in range(steps):
        metrics = critic.update(samples, lessons(critic, samples, target), step=step).metrics
    return metrics


def plain_values(model: torch.nn.Module, critic: Critic, ids: Sequence[int]) -> Tensor:
    """[T] by transformers' own forward pass over one whole sequence: the value read at each token, so of the state after it."""
    with torch.no_grad():
        out = model(input_ids=torch.tensor([list(ids)]), output_hidden_states=True, use_cache=False)
    head = critic.head
    return (out.hidden_states[-1][0].float() @ head.weight[0] + head.bias).detach()


def with_adapter_merged(critic: Critic) -> torch.nn.Module:
    """The stock model with W + (alpha / rank) B A in the place of every W that the critic has an adapter for: scale 8 / 4."""
    model = AutoModelForCausalLM.from_pretrained(tiny_llama(), dtype=torch.float32, attn_implementation="eager").eval()
    weights = dict(model.named_parameters())
    factors = {name: p.detach() for name, p in critic.trainable().items() if ".lora_A." in name}
    assert len(factors) == 2 * 7  # two layers, seven matrices each
    for name, a_RD in factors.items():
        b_DR = critic.trainable()[name.replace(".lora_A.", ".lora_B.")].detach()
        matrix = weights[name.removeprefix("body.base_model.model.").partition(".lora_A.")[0] + ".weight"]
        matrix.data += 2.0 * b_DR @ a_RD
    return model


# -- values ------------------------------------------------------------------------------------------------------------------


@functools.cache
def stirred() -> tuple[Critic, torch.nn.Module]:
    """A critic whose policy has moved, too, and the stock model that it should agree with."""
    policy, critic = build()
    stir(policy.trainable(), seed=1)
    stir(critic.trainable(), seed=2)
    return critic, with_adapter_merged(critic)


IDS = st.lists(st.integers(3, 399), min_size=1, max_size=4)
PARTS = st.lists(IDS, min_size=1, max_size=5).filter(lambda parts: len(parts) % 2 == 1)


@settings(max_examples=20)
@given(
    prompts=st.lists(IDS, min_size=1, max_size=2), replies=st.lists(PARTS, min_size=1, max_size=5), max_tokens=st.integers(1, 30)
)
def test_a_value_is_that_of_the_state_before_the_token_by_a_plain_forward_pass(
    prompts: list[list[int]], replies: list[list[list[int]]], max_tokens: int
) -> None:
    """Against stock transformers over whole sequences with the adapter merged into it, read one place before each sampled id."""
    critic, model = stirred()
    samples = [make_sample(prompts[i % len(prompts)], *parts, member=i) for i, parts in enumerate(replies)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critic.pack_size, "tokens", max_tokens)
        found = read(critic, samples)
    for sample, values in zip(samples, found, strict=True):
        at = sample.mask.nonzero()[0]
        np.testing.assert_allclose(values, plain_values(model, critic, sample.ids.tolist())[at - 1].numpy(), atol=1e-4)


def test_the_trunk_reads_the_policys_own_hidden_states() -> None:
    """A fresh adapter changes nothing, so the stock model speaks for the policy; once that has moved, the values have."""
    policy, critic = build("trunk", init_std=1.0)
    model = AutoModelForCausalLM.from_pretrained(tiny_llama(), dtype=torch.float32, attn_implementation="eager").eval()
    sample = make_sample([5, 6], [7, 8, 9], [10, 11], [12])
    (values,) = read(critic, [sample])
    np.testing.assert_allclose(values, plain_values(model, critic, sample.ids.tolist())[[1, 2, 3, 6]].numpy(), atol=1e-4)
    stir(policy.trainable())
    assert np.abs(read(critic, [sample])[0] - values).max() > 0.01


@pytest.mark.parametrize(("tuning", "kind"), EVERY_KIND)
def test_the_policys_weights_are_off_while_the_critic_reads_with_its_own(tuning: str, kind: str) -> None:
    policy, critic = build(kind, tuning, init_std=1.0)
    samples = random_samples(4)
    before = read(critic, samples)
    stir(policy.trainable())
    moved = [not np.array_equal(a, b) for a, b in zip(before, read(critic, samples), strict=True)]
    assert moved == [kind == "trunk"] * 4


@pytest.mark.parametrize(("tuning", "kind"), EVERY_KIND)
def test_every_value_is_exactly_0_at_the_start(tuning: str, kind: str) -> None:
    _, critic = build(kind, tuning)
    assert all(not values.any() for values in read(critic, random_samples(4)))


def test_first_weights_that_are_not_0_follow_from_the_runs_seed_alone() -> None:
    states = [random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()]
    first, again = (build(init_std=0.5)[1] for _ in range(2))
    assert [random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()] == states
    assert same_tensors(copies(first.trainable()), copies(again.trainable()))
    assert first.head.weight.std().item() == pytest.approx(0.5, rel=0.3)
    policy = load_policy(settings_of())
    other = load_critic(CriticConfig(init_std=0.5), policy, settings_of(), OptimizerConfig(), run_seed=1)
    shared = {name for name, p in other.trainable().items() if torch.equal(p, first.trainable()[name]) and p.any()}
    assert shared == set()


def test_values_are_those_of_their_trajectory_whoever_is_beside_it() -> None:
    critic, _ = stirred()
    samples = random_samples(6, prompts=3)  # packed prompt by prompt
    found = read(critic, samples)
    assert [len(values) for values in found] == [int(s.mask.sum()) for s in samples]
    for values, sample in zip(found, samples, strict=True):
        np.testing.assert_allclose(values, read(critic, [sample])[0], atol=1e-5)
    assert all(np.array_equal(a, b) for a, b in zip(found, read(critic, samples), strict=True))
    assert critic.values([]) == {}


def test_the_values_of_several_segments_come_one_after_another_and_untrained_summaries_have_none() -> None:
    """Second segment: a summary that is sampled and not trained (21, 22), then a reply (24)."""
    critic, model = stirred()
    one, two = make_trajectory([5, 6], [7, 8]), make_trajectory([20], [21, 22], [23], [24])
    three = make_trajectory([40], [41])
    summary = Summary(
        segment=1, start=1, stop=3, num_turns=1, text="", trained=False, finish_reason=FinishReason.STOP, policy_version=0
    )
    whole = replace(one, segments=(*one.segments, *two.segments, *three.segments), summaries=(summary,))
    values = critic.values([whole])[whole.key]
    first, second, third = (plain_values(model, critic, ids).numpy() for ids in ([5, 6, 7], [20, 21, 22, 23], [40]))
    np.testing.assert_allclose(values.tokens, [first[1], first[2], second[3], third[0]], atol=1e-4)
    assert values.after == 0


def test_a_value_that_is_no_number_stops_the_run_and_names_the_sample() -> None:
    _, critic = build()
    with torch.no_grad():
        critic.head.bias.fill_(math.nan)
    with pytest.raises(TrainingError, match=r"value is not finite for corridor group 3 member 1 \(task seed 103\)"):
        critic.values([make_trajectory([5, 6], [7], group=3, member=1)])


# -- the end of a trajectory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end_reason", [reason for reason in EndReason if not reason.is_infrastructure])
def test_only_what_was_cut_short_has_a_future(end_reason: EndReason) -> None:
    """`truncated` and `context_limit` are bootstrapped with the value read at the last id; the rest is over: exactly 0."""
    critic, model = stirred()
    trajectory = make_trajectory([5, 6], [7, 8], [9], [10, 11, 12], end_reason=end_reason)
    values = critic.values([trajectory])[trajectory.key]
    expected = plain_values(model, critic, [5, 6, 7, 8, 9, 10, 11, 12]).numpy()
    np.testing.assert_allclose(values.tokens, expected[[1, 2, 4, 5, 6]], atol=1e-4)
    assert abs(expected[-1]) > 0.01
    if end_reason in (EndReason.TRUNCATED, EndReason.CONTEXT_LIMIT):
        assert values.after == pytest.approx(expected[-1], abs=1e-4)
    else:
        assert values.after == 0.0


def test_an_observation_at_the_end_belongs_to_the_state_and_others_do_not_disturb() -> None:
    critic, model = stirred()
    trajectories = [
        make_trajectory([5, 6], [7, 8], [9, 10], end_reason=EndReason.TRUNCATED, member=0),
        make_trajectory([5, 6], [30, 31], end_reason=EndReason.SOLVED, member=1),
        make_trajectory([5, 6], [20], end_reason=EndReason.CONTEXT_LIMIT, member=2),
    ]
    found = critic.values(trajectories)
    expected = [plain_values(model, critic, ids)[-1].item() for ids in ([5, 6, 7, 8, 9, 10], [5, 6, 20])]
    assert [found[t.key].after for t in trajectories] == pytest.approx([expected[0], 0.0, expected[1]], abs=1e-4)
    assert [len(found[t.key].tokens) for t in trajectories] == [2, 2, 1]


def test_a_last_segment_in_which_nothing_was_sampled_still_has_an_end() -> None:
    critic, model = stirred()
    unsampled = Segment(
        ids=np.array([5, 6, 7], dtype=np.int32), mask=np.zeros(3, dtype=np.bool_), logprobs=np.zeros(3, dtype=np.float32)
    )
    before = make_trajectory([50, 51], [52, 53], end_reason=EndReason.TRUNCATED)
    for segments in ((*before.segments, unsampled), (unsampled,)):
        trajectory = replace(before, segments=segments)
        values = critic.values([trajectory])[trajectory.key]
        assert len(values.tokens) == 2 * (len(segments) - 1)
        assert values.after == pytest.approx(plain_values(model, critic, [5, 6, 7])[-1].item(), abs=1e-4)
    over = replace(trajectory, end_reason=EndReason.FAILED)
    assert len(critic.values([over])[over.key].tokens) == 0


def test_an_end_beyond_the_models_positions_is_read_at_the_last_one_it_has() -> None:
    """GPT-2 looks positions up in a table of 2048."""
    model = settings_of(folder=tiny_gpt2())
    policy = load_policy(model)
    critic = load_critic(CriticConfig(init_std=1.0), policy, model, OptimizerConfig(), run_seed=0)
    ends = []
    for rest in (47, 48, 100):
        trajectory = make_trajectory([5], [7] * 2000, [9] * rest, end_reason=EndReason.CONTEXT_LIMIT)
        values = critic.values([trajectory])[trajectory.key]
        assert len(values.tokens) == 2000
        ends.append(values.after)
    assert ends[0] == pytest.approx(ends[1], abs=1e-4)
    assert ends[1] == ends[2] != 0


# -- whose weights, whose memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tuning", "kind"), EVERY_KIND)
def test_neither_the_policy_nor_the_base_notices_that_the_critic_learns(tuning: str, kind: str) -> None:
    policy, critic = build(kind, tuning, num_epochs=3)
    stir(policy.trainable())
    samples = random_samples(4)
    own = {id(p) for p in critic.trainable().values()}
    before = everything(policy, critic)
    learn(critic, samples, 1.0, steps=2)
    after = everything(policy, critic)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"critic.{name}" for name in critic.trainable()} | {
        name for name, p in policy.module.named_parameters() if id(p) in own
    }
    assert all(p.grad is None for p in policy.module.parameters())
    assert policy.version == 0


def test_the_critic_does_not_notice_that_the_policy_learns_nor_the_policy_that_there_is_a_critic() -> None:
    samples = random_samples(4)
    alone = load_policy(settings_of())
    make_learner(alone, num_epochs=2).update(samples, step=0)
    policy, critic = build()
    learner = make_learner(policy, num_epochs=2)
    learn(critic, samples, 1.0)
    before = copies(critic.trainable())
    learner.update(samples, step=0)
    assert same_tensors(copies(critic.trainable()), before)
    assert all(p.grad is None for p in critic.trainable().values())
    assert same_tensors(copies(policy.trainable()), copies(alone.trainable()))


def test_a_critic_on_its_own_adapter_shares_every_weight_of_the_base() -> None:
    """One base in memory: the same tensors at the same addresses, and nothing new but adapter and head."""
    policy = load_policy(settings_of())
    before = {name: p.data_ptr() for name, p in policy.module.named_parameters()}
    critic = load_critic(CriticConfig(lora_rank=2), policy, settings_of(), OptimizerConfig(), run_seed=0)
    after = {name: p.data_ptr() for name, p in policy.module.named_parameters()}
    assert before.items() <= after.items()
    added = after.keys() - before.keys()
    assert added == {name.removeprefix("body.") for name in critic.trainable() if name.startswith("body.")}
    assert all(f".{CRITIC_ADAPTER}." in name for name in added)
    assert {p.shape[0] for name, p in critic.trainable().items() if ".lora_A." in name} == {2}  # the rank asked for
    assert critic.head.weight.numel() == policy.width == 32


@pytest.mark.parametrize(("tuning", "kind"), [("lora", "adapter"), ("lora", "model")])
def test_everything_trained_is_float32_over_a_bfloat16_base(tuning: str, kind: str) -> None:
    policy, critic = build(kind, tuning, dtype="bfloat16")
    samples = random_samples(4)
    learn(critic, samples, 1.0, steps=3)
    assert policy.dtype == torch.bfloat16
    assert {p.dtype for p in critic.trainable().values()} == {torch.float32}
    assert {p.dtype for p in policy.trainable().values()} == {torch.float32}
    assert {t.dtype for state in critic._optimizer.state.values() for t in state.values()} == {torch.float32}
    assert all(values.any() for values in read(critic, samples))


def test_a_model_that_reads_other_ids_is_refused(tmp_path: Path) -> None:
    folder = build_tiny_llama(tmp_path / "other", vocab_size=401)
    build_tokenizer(401).save_pretrained(folder)
    with pytest.raises(ModelError, match=r"^algorithm\.critic\.model='.*other': must have the same tokenizer as the policy, "):
        build("model", model=str(folder))


def test_another_model_with_the_same_ids_will_do() -> None:
    policy, critic = build("model", model=str(tiny_gpt2()), init_std=1.0)
    samples = random_samples(2)
    found = read(critic, samples)
    other = read(build("model", init_std=1.0)[1], samples)
    assert all(not np.allclose(a, b) for a, b in zip(found, other, strict=True))
    assert not {id(p) for p in critic.trainable().values()} & {id(p) for p in policy.module.parameters()}


# -- learning ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "lr", "steps"), [("adapter", 0.01, 40), ("trunk", 0.05, 80), ("model", 0.01, 40)])
def test_it_learns_what_a_prompt_is_worth(kind: str, lr: float, steps: int) -> None:
    """Returns -1, 0, 1 and 2 depend on the prompt alone; measured on replies that it was not trained on, too.

    The head on the trunk has no way to make the random model remember the prompt; it finds what of it the hidden states tell.
    """
    worth = {0: -1.0, 1: 0.0, 2: 1.0, 3: 2.0}

    def targets(samples: Sequence[Sample]) -> list[float]:
        return [worth[s.trajectory.key.group] for s in samples]

    prompts = [[5, 90, 300], [17, 8, 250], [33, 21, 44], [120, 121, 122]]
    draw = np.random.default_rng(0)
    replies = [make_sample(prompts[i % 4], draw.integers(3, 400, 4).tolist(), group=i % 4, member=i) for i in range(24)]
    seen, unseen = replies[:16], replies[16:]
    _, critic = build(kind, lr=lr)
    metrics = learn(critic, seen, targets(seen), steps=steps)
    found = learn(critic, unseen, targets(unseen))
    assert metrics["critic/explained_variance"] > 0.9
    assert found["critic/explained_variance"] > (0.3 if kind == "trunk" else 0.9)
    assert metrics["critic/loss"] < 0.1


def test_the_loss_is_the_mean_over_all_tokens_of_the_step() -> None:
    """Values 0; one token of target 3 and four of -1: (9 / 2 + 4 / 2) / 5 = 1.3. The head's bias goes to the mean, -0.2."""
    _, critic = build(lr=1e-3)
    samples = [make_sample([5, 6], [7]), make_sample([5, 6], [8, 9, 10, 11], member=1)]
    metrics = learn(critic, samples, [3.0, -1.0])
    assert metrics["critic/loss"] == pytest.approx(1.3)
    assert metrics["critic/target_mean"] == pytest.approx(-0.2)
    assert (metrics["critic/value_mean"], metrics["critic/explained_variance"], metrics["critic/clip_frac"]) == (0, 0, 0)
    assert critic.head.bias.item() == pytest.approx(-1e-3, rel=1e-3)  # Adam's first step


def test_it_learns_from_what_gae_makes_of_its_values() -> None:
    """Values, credit, update, as in a training step. The first member earns 1 and 2 in its turns, the second 0 and -1.

    From values of 0 the first targets are the returns to go. In the end so are the values; that of the first state, which both
    share, lies between 3 and -1.
    """
    _, critic = build(lr=0.01)
    members = [
        make_trajectory([5, 6], [7, 8], [9], [10], rewards=[1.0, 2.0], member=0),
        make_trajectory([5, 6], [30], [31], [32, 33], rewards=[0.0, -1.0], member=1),
    ]
    groups = [Group(trajectories=tuple(members))]
    config = AdvantageConfig(estimator="gae", whiten=False)
    samples, taught = assign_credit(groups, config, values=critic.values(members))
    assert [lesson.targets[s.mask].tolist() for s, lesson in zip(samples, taught, strict=True)] == [[3, 3, 2], [-1, -1, -1]]
    first = critic.update(samples, taught, step=0).metrics
    assert first["critic/target_mean"] == pytest.approx((3 + 3 + 2 - 3) / 6)
    for step in range(1, 60):
        samples, taught = assign_credit(groups, config, values=critic.values(members))
        metrics = critic.update(samples, taught, step=step).metrics
    assert metrics["critic/explained_variance"] > 0.5
    read_off = read(critic, samples)
    np.testing.assert_allclose(np.concatenate([read_off[0][1:], read_off[1][1:]]), [3, 2, -1, -1], atol=0.3)
    assert read_off[0][0] == read_off[1][0] == pytest.approx(1, abs=0.3)


def test_the_gradient_does_not_depend_on_how_the_rows_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 71."""
    samples = [make_sample([5, 6], [9 + i] * (1 if i % 2 else 60), member=i) for i in range(6)]
    found = []
    for max_tokens in (6 * 60, 2 * 60, 1):
        _, critic = build()
        stir(critic.trainable(), seed=3)
        kept: dict[str, Tensor] = {}

        def keep(_: Any, __: float, kept: dict[str, Tensor] = kept, critic: Critic = critic) -> Tensor:
            kept.update({name: p.grad.clone() for name, p in critic.trainable().items() if p.grad is not None})
            return torch.tensor(math.nan)

        with monkeypatch.context() as patch:
            patch.setattr(critic.pack_size, "tokens", max_tokens)
            patch.setattr(torch.nn.utils, "clip_grad_norm_", keep)
            learn(critic, samples, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        assert kept.keys() == critic.trainable().keys()
        found.append(kept)
    whole, *others = found
    assert max(g.abs().max().item() for g in whole.values()) > 0.1
    for name, expected in whole.items():
        for other in others:
            torch.testing.assert_close(other[name], expected, atol=1e-5, rtol=1e-4)


def test_values_stop_at_the_clip_within_one_update() -> None:
    """Many epochs towards 10, clip 0.5: a value that is 0.5 up gets no more gradient; the next update goes on from there."""
    _, critic = build("trunk", lr=0.002, clip=0.5, num_epochs=60)
    samples = [make_sample([5, 6], [7])]
    first = learn(critic, samples, 10.0)
    (value,) = read(critic, samples)
    assert 0.5 < value[0] < 1.2  # past the bound by what was left in Adam's moments
    assert 0.5 < first["critic/clip_frac"] < 1
    learn(critic, samples, 10.0)
    assert read(critic, samples)[0][0] > value[0] + 0.4


def test_a_large_gradient_is_clipped_and_logged_as_it_was() -> None:
    """Adam forgets the scale of a gradient, so the clip shows in its moments: their norm is (1 - beta1) * grad_clip."""
    _, critic = build(grad_clip=0.5)
    samples = random_samples(4)
    metrics = learn(critic, samples, 1000.0)
    assert metrics["critic/grad_norm"] > 100
    moments = [state["exp_avg"].flatten() for state in critic._optimizer.state.values()]
    assert torch.cat(moments).norm().item() == pytest.approx(0.1 * 0.5, rel=1e-3)


def test_each_minibatch_of_each_epoch_is_one_optimiser_step() -> None:
    _, critic = build(num_minibatches=3, num_epochs=2)
    samples = random_samples(9)
    seen: list[int] = []
    result = critic.update(samples, lessons(critic, samples, 1.0), step=0, on_progress=seen.append)
    assert (result.num_applied, critic.num_epochs, sum(seen)) == (6, 2, 18)


@pytest.mark.parametrize("spoiled", [math.nan, math.inf, 1e30])
def test_a_target_that_is_no_number_is_skipped_by_name_and_changes_nothing(spoiled: float) -> None:
    """Bug-log rows 19 and 64. The square of 1e30 is infinite in float32."""
    _, critic = build()
    samples = random_samples(3, prompts=1)
    learn(critic, samples, 1.0)
    before = copies(critic.trainable())
    state = [{k: v.clone() for k, v in entry.items()} for entry in critic._optimizer.state.values()]
    taught = lessons(critic, samples, 1.0)
    taught[1].targets[-1] = spoiled
    result = critic.update(samples, taught, step=1)
    assert result.culprits == ["value loss of corridor group 0 member 1 (task seed 100)"]
    assert (result.num_applied, result.metrics["critic/skipped"]) == (0, 1)
    assert "critic/loss" not in result.metrics
    assert all(math.isfinite(value) for value in result.metrics.values())
    assert same_tensors(copies(critic.trainable()), before)
    for old, new in zip(state, critic._optimizer.state.values(), strict=True):
        assert same_tensors(old, new)
    assert learn(critic, samples, 1.0)["critic/grad_norm"] > 0  # and on it goes


def test_every_metric_is_defined() -> None:
    _, critic = build(clip=0.5)
    samples = random_samples(6)
    metrics = learn(critic, samples, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert [key for key in metrics if find(key) is None] == []
    assert len(metrics) == 7


# -- saving and resuming -----------------------------------------------------------------------------------------------------


def save(policy: Policy, critic: Critic, root: Path) -> Path:
    def write(folder: Path) -> None:
        policy.save(folder)
        critic.save(folder)

    return save_checkpoint(root, 1, write_model=write, optimizer={}, state={}, keep=1)


@pytest.mark.parametrize(("tuning", "kind"), EVERY_KIND)
def test_a_resumed_critic_goes_on_bit_for_bit(tuning: str, kind: str, tmp_path: Path) -> None:
    """Bug-log row 77: four updates in one go, or two, a checkpoint, another process' worth of objects, and two."""
    options: dict[str, Any] = {"num_minibatches": 2, "clip": 0.5}
    policy, critic = build(kind, tuning, **options)
    stir(policy.trainable())
    samples = random_samples(6)
    targets = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    learn(critic, samples, targets, steps=2)
    folder = save(policy, critic, tmp_path)
    resumed_policy, resumed = build(kind, tuning, checkpoint=load_checkpoint(folder).folder, **options)
    assert same_tensors(everything(policy, critic), everything(resumed_policy, resumed))
    metrics, again = (learn(each, samples, targets, steps=2) for each in (critic, resumed))
    assert metrics == again
    assert same_tensors(everything(policy, critic), everything(resumed_policy, resumed))
    assert list(critic.trainable()) == list(resumed.trainable())


def test_peft_alone_opens_a_checkpoint_with_a_critic_and_finds_the_policy(tmp_path: Path) -> None:
    policy, critic = build()
    stir(policy.trainable(), seed=1)
    samples = random_samples(4)
    learn(critic, samples, 1.0)
    folder = save(policy, critic, tmp_path / "with")
    load_policy(settings_of()).save(tmp_path / "without")
    plain = {path.name for path in (tmp_path / "without").iterdir()}
    assert {path.name for path in folder.iterdir()} == plain | {"critic", "trainer", "manifest.json"}
    assert {path.name for path in (folder / "critic").iterdir()} == {"weights.safetensors", "optimizer.safetensors"}
    assert not [name for name in load_file(folder / "adapter_model.safetensors") if CRITIC_ADAPTER in name]
    base = AutoModelForCausalLM.from_pretrained(tiny_llama(), dtype=torch.float32)
    opened = PeftModel.from_pretrained(base, str(folder)).eval()
    found = {name: p for name, p in opened.named_parameters() if ".lora_" in name}
    assert same_tensors(copies(found), copies(policy.trainable()))


def test_transformers_alone_opens_a_checkpoint_with_a_critic_in_full(tmp_path: Path) -> None:
    policy, critic = build("model", "full")
    stir(policy.trainable())
    folder = save(policy, critic, tmp_path)
    opened = AutoModelForCausalLM.from_pretrained(folder)
    assert same_tensors(copies(dict(opened.named_parameters())), copies(policy.trainable()))


def test_a_critic_is_not_made_up_where_a_checkpoint_holds_none(tmp_path: Path) -> None:
    policy = load_policy(settings_of())
    policy.save(tmp_path)
    with pytest.raises(StorageError, match="holds no critic"):
        build(checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "trunk"}, r"critic/weights\.safetensors: body\.\S+ has no place in the model to be trained"),
        ({"lora_rank": 2}, r"critic/weights\.safetensors: body\.\S+ has shape \(4, 32\), not \(2, 32\)"),
    ],
)
def test_a_critic_of_other_settings_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = save(*build(), tmp_path)
    with pytest.raises(StorageError, match=message):
        build(**changed, checkpoint=folder)
