"""Its log-probs are those of a plain forward pass, and nobody's samples depend on the company they keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PeftModel

from ragen.engines.config import EngineConfig
from ragen.engines.sampling import random_stream
from ragen.engines.torch_engine import TorchEngine
from ragen.models.attention import PackedView
from ragen.models.policy import Policy
from ragen.records import Sampling
from tests.support.architectures import ARCHITECTURES, architecture, load, plain_logits, plain_logprobs, plain_model
from tests.support.models import SMALL_VOCAB
from tests.support.talks import EXACT, Talk, ask, assert_exact, crowd, ids_of, play_all, prompt_of


@pytest.mark.parametrize("max_rows", [3, 128])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_log_probs_equal_a_plain_forward_pass_over_several_turns_in_a_changing_crowd(name: str, max_rows: int) -> None:
    """Three rows for nine conversations: they wait, leave and enter in mid-flight. Row 61 is GPT-2's learned positions."""
    talks = crowd()
    conversations = play_all(TorchEngine(load(name), EngineConfig(max_rows=max_rows)), talks)
    model = plain_model(architecture(name))
    for talk, said in zip(talks, conversations, strict=True):
        assert [len(one.completion.ids) for one in said] == list(talk.lengths)
        assert_exact(model, talk, said)


TALKS = st.builds(
    lambda prompt, seed, lengths, answers: Talk(
        prompt=tuple(prompt), seed=seed, lengths=tuple(lengths), answers=tuple(tuple(a) for a in answers)
    ),
    prompt=st.sampled_from([prompt_of(1), prompt_of(5), prompt_of(5, 1), prompt_of(12)]),  # so that groups come about
    seed=st.integers(0, 3),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    answers=st.lists(st.lists(st.integers(3, SMALL_VOCAB - 1), max_size=5), min_size=2, max_size=2),
)


@settings(max_examples=25)
@given(talks=st.lists(TALKS, min_size=1, max_size=6), max_rows=st.integers(1, 4), max_idle=st.sampled_from([0, 20, 10_000]))
def test_any_crowd_gets_the_log_probs_of_a_plain_forward_pass(talks: list[Talk], max_rows: int, max_idle: int) -> None:
    engine = TorchEngine(SHARED.policy, EngineConfig(max_rows=max_rows, max_idle_tokens=max_idle))
    for talk, said in zip(talks, play_all(engine, talks), strict=True):
        assert_exact(SHARED.plain, talk, said)


class _Shared:
    """One window model for the property above: loading it for every example would take most of the time."""

    @property
    def policy(self) -> Policy:
        if not hasattr(self, "_policy"):
            self._policy, self._plain = load("gemma3"), plain_model(architecture("gemma3"))
        return self._policy

    @property
    def plain(self) -> torch.nn.Module:
        return self._plain


SHARED = _Shared()


def test_bfloat16_log_probs_stay_near_those_of_plain_bfloat16() -> None:
    """The bound is for these tiny models: one bfloat16 rounding is 2^-9 of a score, scores reach about 4, two layers."""
    talks = crowd()
    conversations = play_all(TorchEngine(load("llama", dtype="bfloat16")), talks)
    model = plain_model(architecture("llama"), dtype=torch.bfloat16)
    for talk, said in zip(talks, conversations, strict=True):
        assert_exact(model, talk, said, bound=0.06 / min(1.0, talk.temperature))


def test_trained_adapters_take_part_in_sampling(tmp_path: Path) -> None:
    policy = load("llama", tuning="lora")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    talks = crowd()
    conversations = play_all(TorchEngine(policy), talks)
    policy.save(tmp_path / "adapters")
    base = plain_model(architecture("llama"))
    without = plain_logprobs(base, talks[0].prompt, conversations[0][0].completion.ids)
    assert conversations[0][0].completion.logprobs != pytest.approx(without, abs=0.05)
    model = PeftModel.from_pretrained(base, str(tmp_path / "adapters")).eval()
    for talk, said in zip(talks, conversations, strict=True):
        assert_exact(model, talk, said)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_dropout_in_a_model_config_has_no_effect(name: str) -> None:
    """Bug-log row 68: both configs ask for dropout; the plain model is in evaluation mode."""
    policy = load(name)
    assert max(getattr(policy.config, key, 0.0) for key in ("attention_dropout", "attn_pdrop")) > 0
    talk = Talk(prompt=prompt_of(10), seed=1, lengths=(12,))
    first, second = (play_all(TorchEngine(policy), [talk])[0] for _ in range(2))
    assert first == second
    assert_exact(plain_model(architecture(name)), talk, first)


def test_packed_scoring_of_a_group_gives_the_engines_log_probs(policy: Policy) -> None:
    """What samples is what is trained: the on-policy ratio is 1. Bug-log row 49, at temperature 0.6."""
    prompt = prompt_of(13)
    talks = [Talk(prompt=prompt, seed=i, lengths=(4 + 2 * i,), temperature=0.6) for i in range(3)]
    replies = [said[0].completion for said in play_all(TorchEngine(policy), talks)]
    ids = [i for reply in replies for i in reply.ids]
    at = [*range(13), *(13 + n for reply in replies for n in range(len(reply.ids)))]
    view = PackedView(13, [len(reply.ids) for reply in replies], device="cpu")
    with torch.no_grad():
        hidden = policy.hidden(torch.tensor([*prompt, *ids]), torch.tensor(at), view)
        logprobs = (policy.logits(hidden) / 0.6).log_softmax(-1)
    start = 13
    for reply in replies:
        before = [12, *range(start, start + len(reply.ids) - 1)]
        assert logprobs[before, list(reply.ids)].tolist() == pytest.approx(reply.logprobs, abs=EXACT)
        start += len(reply.ids)


# -- nobody's samples depend on the company they keep --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_conversation_samples_the_same_ids_alone_and_in_a_crowd_in_any_order_of_admission(name: str) -> None:
    policy = load(name)
    talks = crowd()
    alone = [play_all(TorchEngine(policy), [talk])[0] for talk in talks]
    for max_rows in (2, 128):
        together = play_all(TorchEngine(policy, EngineConfig(max_rows=max_rows)), talks)
        backwards = play_all(TorchEngine(policy, EngineConfig(max_rows=max_rows)), talks[::-1])[::-1]
        assert ids_of(together) == ids_of(backwards) == ids_of(alone)


def test_the_same_requests_give_the_same_bits_again(policy: Policy) -> None:
    talks = crowd()
    engine = TorchEngine(policy, EngineConfig(max_rows=3))
    first = play_all(engine, talks)
    engine.reset()
    assert play_all(engine, talks) == first
    assert play_all(TorchEngine(policy, EngineConfig(max_rows=3)), talks) == first


def test_every_request_has_its_own_random_stream(policy: Policy) -> None:
    engine = TorchEngine(policy)
    prompt = prompt_of(6)

    def reply(seed: tuple[int, ...], length: int = 12) -> tuple[int, ...]:
        return ask(engine, prompt, Sampling(max_new_tokens=length, seed=seed)).ids

    assert reply((3, 1)) == reply((3, 1))
    assert len({reply((3, member)) for member in range(8)}) == 8
    assert reply((3, 1), 5) == reply((3, 1))[:5]  # how long a reply may be says nothing about what it begins with


def test_each_id_follows_its_own_number_of_the_stream(policy: Policy) -> None:
    """With all scores equal, number u of the stream gives id floor(u x 400): the next number for every id, over both turns."""
    with torch.no_grad():
        policy.module.get_input_embeddings().weight.zero_()
    (said,) = play_all(TorchEngine(policy), [Talk(prompt=prompt_of(5), seed=6, lengths=(30, 20), answers=((9, 9),))])
    for turn, one in enumerate(said):
        uniforms = random_stream(Sampling(max_new_tokens=30, seed=(6, turn)))
        assert one.completion.ids == tuple(int(u * SMALL_VOCAB) for u in uniforms[: len(one.completion.ids)])
        assert one.completion.logprobs == pytest.approx([-np.log(SMALL_VOCAB)] * len(one.completion.ids))


def test_global_generators_are_neither_read_nor_moved(policy: Policy) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = play_all(TorchEngine(policy), crowd())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert play_all(TorchEngine(policy), crowd()) == first


def test_sampled_frequencies_are_those_of_the_plain_model() -> None:
    """400 members of one group; the expected count of each id comes from transformers alone."""
    prompt, temperature = prompt_of(8), 0.3
    engine = TorchEngine(load("llama"))
    talks = [Talk(prompt=prompt, seed=i, lengths=(1,), temperature=temperature) for i in range(400)]
    counts = np.bincount([said[0].completion.ids[0] for said in play_all(engine, talks)], minlength=SMALL_VOCAB)
    scores = plain_logits(plain_model(architecture("llama")), prompt)[-1].double() / temperature
    expected = 400 * scores.softmax(-1).numpy()
    often = expected >= 5
    observed = [*counts[often], counts[~often].sum()]
    wanted = np.array([*expected[often], expected[~often].sum()])
    chi2 = float((((np.array(observed) - wanted) ** 2) / wanted).sum())
    freedom = len(wanted) - 1
    assert freedom >= 5
    assert chi2 < freedom + 4 * np.sqrt(2 * freedom)  # mean and four standard deviations
