from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PeftModel

from ragen.engines.base import Engine
from ragen.engines.config import EngineConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import ConfigError, EngineFailure
from ragen.models.attention import PackedView
from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.records import Completion, FinishReason, Sampling
from tests.support.architectures import (
    ARCHITECTURES,
    MAX_POSITIONS,
    architecture,
    load,
    plain_logits,
    plain_logprobs,
    plain_model,
)
from tests.support.models import SMALL_VOCAB, build_tiny_llama, tiny_tokenizer

EXACT = 1e-4  # float32: what the engine promises about its log-probs
DEADLINE_S = 60.0  # a request that nobody answers fails by name instead of hanging the run


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A conversation: its first prompt, and per turn how many ids to sample and what the environment says afterwards."""

    prompt: tuple[int, ...]
    seed: int
    lengths: tuple[int, ...]  # max_new_tokens per turn
    answers: tuple[tuple[int, ...], ...] = ()  # new ids between the turns
    temperature: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Said:
    prompt: tuple[int, ...]
    completion: Completion


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(np.random.default_rng((length, seed)).integers(3, SMALL_VOCAB, length).tolist())


async def play(engine: Engine, talk: Talk) -> list[Said]:
    said: list[Said] = []
    prompt = talk.prompt
    for turn, length in enumerate(talk.lengths):
        sampling = Sampling(max_new_tokens=length, temperature=talk.temperature, seed=(talk.seed, turn))
        completion = await engine.generate(prompt, sampling)
        said.append(Said(prompt=prompt, completion=completion))
        prompt = (*prompt, *completion.ids, *(talk.answers[turn] if turn < len(talk.answers) else ()))
    return said


def play_all(engine: Engine, talks: Sequence[Talk]) -> list[list[Said]]:
    async def together() -> list[list[Said]]:
        return await asyncio.wait_for(asyncio.gather(*(play(engine, talk) for talk in talks)), DEADLINE_S)

    return asyncio.run(together())


def ask(engine: Engine, prompt: Sequence[int], sampling: Sampling) -> Completion:
    return asyncio.run(asyncio.wait_for(engine.generate(prompt, sampling), DEADLINE_S))


def assert_exact(model: torch.nn.Module, talk: Talk, said: Sequence[Said], *, bound: float = EXACT) -> None:
    for one in said:
        completion = one.completion
        expected = plain_logprobs(model, one.prompt, completion.ids, temperature=talk.temperature)
        assert completion.logprobs == pytest.approx(expected, abs=bound)


def ids_of(conversations: Sequence[Sequence[Said]]) -> list[list[tuple[int, ...]]]:
    return [[one.completion.ids for one in said] for said in conversations]


def crowd() -> list[Talk]:
    """Nine conversations of one to four turns: a group of four, prompts of 1 to 30 ids, turns of one id, an empty answer."""
    shared = prompt_of(17)
    return [
        *(Talk(prompt=shared, seed=i, lengths=(5 + i, 1, 9), answers=((40, 41), (50,) * (i + 1))) for i in range(4)),
        Talk(prompt=(7,), seed=10, lengths=(12, 3, 2, 6), answers=((9,), prompt_of(11), (5, 6))),
        Talk(prompt=prompt_of(30), seed=11, lengths=(1, 8), answers=((),)),
        Talk(prompt=prompt_of(9), seed=12, lengths=(20,), temperature=0.6),
        Talk(prompt=prompt_of(4), seed=13, lengths=(2, 2, 2), answers=(prompt_of(20), (3,)), temperature=1.7),
        Talk(prompt=shared[:16], seed=14, lengths=(6, 6), answers=((8,),)),
    ]


@pytest.fixture
def policy() -> Policy:
    return load("llama")


@pytest.fixture
def fed(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each forward pass of `policy` was given."""
    counts: list[int] = []
    hidden = policy.hidden

    def counted(ids_L: torch.Tensor, *rest: Any) -> torch.Tensor:
        counts.append(len(ids_L))
        return hidden(ids_L, *rest)

    monkeypatch.setattr(policy, "hidden", counted)
    return counts


# -- what is recorded is what a plain forward pass says ------------------------------------------------------------------


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


# -- what the caller asks for is what is done, and nothing else ----------------------------------------------------------


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (0, 0.4), (20, 0.7), (1, 1.0), (1000, 1.0)])
def test_truncated_log_probs_are_of_the_distribution_that_was_drawn_from(top_k: int, top_p: float) -> None:
    """The kept set is worked out here, from the plain model's scores, by adding up the largest probabilities."""
    prompt, temperature = prompt_of(8), 0.5
    sampling = Sampling(max_new_tokens=10, temperature=temperature, top_k=top_k, top_p=top_p, seed=(3,))
    reply = ask(TorchEngine(load("llama")), prompt, sampling)
    scores_TV = plain_logits(plain_model(architecture("llama")), [*prompt, *reply.ids])[len(prompt) - 1 : -1].double()
    for token, logprob, scores_V in zip(reply.ids, reply.logprobs, scores_TV.numpy() / temperature, strict=True):
        kept = np.sort(scores_V)[::-1][: top_k or None]
        probs = np.exp(kept - kept.max()) / np.exp(kept - kept.max()).sum()
        kept = kept[: np.searchsorted(probs.cumsum(), top_p) + 1] if top_p < 1 else kept
        assert scores_V[token] >= kept[-1] - 1e-5  # nothing outside is ever drawn
        assert logprob == pytest.approx(scores_V[token] - kept.max() - np.log(np.exp(kept - kept.max()).sum()), abs=EXACT)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3"])
def test_temperature_0_writes_what_transformers_own_greedy_search_writes(name: str) -> None:
    prompt = prompt_of(9)
    reply = ask(TorchEngine(load(name)), prompt, Sampling(max_new_tokens=12, temperature=0.0))
    model = plain_model(architecture(name))
    settings_ = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, 9, dtype=torch.long), **settings_)
    assert reply.ids == tuple(expected[0, 9:].tolist())
    assert reply.logprobs == (0.0,) * 12


def test_a_checkpoints_own_sampling_settings_have_no_effect(tmp_path: Path) -> None:
    """Bug-log row 48: top_k 1 would make all replies equal, a repetition penalty would change every log-prob."""
    policy = load("llama")
    policy.save(tmp_path / "own")
    (tmp_path / "own" / "generation_config.json").write_text(
        '{"do_sample": true, "top_k": 1, "temperature": 0.1, "repetition_penalty": 1.3, "max_new_tokens": 2}'
    )
    engine = TorchEngine(load_policy(ModelConfig(name=str(tmp_path / "own"), tuning="full")))
    talks = [Talk(prompt=prompt_of(7), seed=i, lengths=(8,)) for i in range(16)]
    conversations = play_all(engine, talks)
    assert len({said[0].completion.ids for said in conversations}) == 16
    model = plain_model(architecture("llama"))
    for talk, said in zip(talks, conversations, strict=True):
        assert_exact(model, talk, said)


def greedy(length: int, **more: Any) -> Sampling:
    return Sampling(max_new_tokens=length, temperature=0.0, **more)


def test_a_stop_id_ends_the_reply_and_belongs_to_it(policy: Policy) -> None:
    """Bug-log row 50: the end-of-turn id comes third, whatever end id the tokenizer names."""
    engine = TorchEngine(policy)
    prompt = prompt_of(9)
    free = ask(engine, prompt, greedy(12))
    assert free.finish_reason is FinishReason.LENGTH
    end = free.ids[2]
    assert end not in free.ids[:2]
    stopped = ask(engine, prompt, greedy(12, stop_ids=(1, end)))
    assert (stopped.ids, stopped.finish_reason) == (free.ids[:3], FinishReason.STOP)
    assert ask(engine, prompt, greedy(2, stop_ids=(end,))).finish_reason is FinishReason.LENGTH
    assert ask(engine, prompt, greedy(3, stop_ids=(end,))).finish_reason is FinishReason.STOP  # both at once


def test_a_stop_text_that_spans_two_tokens_ends_the_reply(policy: Policy) -> None:
    engine = TorchEngine(policy)
    tokenizer = tiny_tokenizer()
    prompt = prompt_of(9)
    free = ask(engine, prompt, Sampling(max_new_tokens=30, seed=(4,))).ids
    spot = next(
        i for i in range(2, 29) if all(tokenizer.decode(free[j]).isascii() and free[j] > 2 for j in (i, i + 1))
    )  # two neighbours that are plain text
    text = tokenizer.decode(free[spot])[-1] + tokenizer.decode(free[spot + 1])[0]
    first = next(i for i in range(1, 31) if text in tokenizer.decode(free[:i]))
    assert first <= spot + 2
    stopped = ask(engine, prompt, Sampling(max_new_tokens=30, seed=(4,), stop_texts=(text,)))
    assert (stopped.ids, stopped.finish_reason) == (free[:first], FinishReason.STOP)


def test_a_stop_text_in_the_prompt_stops_nothing(policy: Policy) -> None:
    prompt = tuple(tiny_tokenizer()("a</answer>", add_special_tokens=False)["input_ids"])
    reply = ask(TorchEngine(policy), prompt, greedy(6, stop_texts=("</answer>",)))
    assert reply.finish_reason is FinishReason.LENGTH


def test_a_reply_of_nothing_but_the_end_id_can_be_continued_exactly() -> None:
    """Bug-log row 62: every id is a stop id, so each reply is one id; three turns of that."""
    engine = TorchEngine(load("gpt2"))
    model = plain_model(architecture("gpt2"))

    async def talk() -> None:
        prompt = prompt_of(6)
        for turn in range(3):
            sampling = Sampling(max_new_tokens=9, stop_ids=tuple(range(SMALL_VOCAB)), seed=(turn,))
            reply = await engine.generate(prompt, sampling)
            assert len(reply.ids) == 1
            assert reply.finish_reason is FinishReason.STOP
            assert reply.logprobs == pytest.approx(plain_logprobs(model, prompt, reply.ids), abs=EXACT)
            prompt = (*prompt, *reply.ids, 30 + turn)

    asyncio.run(talk())


# -- nothing is computed twice, and nothing stale is used ----------------------------------------------------------------


def test_a_group_encodes_its_prompt_once_and_a_later_turn_only_what_is_new(policy: Policy, fed: list[int]) -> None:
    talks = [Talk(prompt=prompt_of(20), seed=i, lengths=(5, 3), answers=((8, 9),)) for i in range(4)]
    play_all(TorchEngine(policy), talks)
    # the prompt; four decode steps of four rows; the last sampled id and two new ones of each; two decode steps
    assert fed == [20, 4, 4, 4, 4, 4 * 3, 4, 4]


def test_members_that_said_the_same_go_on_independently(policy: Policy) -> None:
    """Greedy members of a group have one and the same conversation; only their second turns differ."""
    engine = TorchEngine(policy)
    model = plain_model(architecture("llama"))

    async def member(answer: int) -> None:
        first = await engine.generate(prompt_of(11), greedy(4))
        prompt = (*prompt_of(11), *first.ids, answer)
        second = await engine.generate(prompt, Sampling(max_new_tokens=6, seed=(answer,)))
        assert second.logprobs == pytest.approx(plain_logprobs(model, prompt, second.ids), abs=EXACT)

    async def group() -> None:
        await asyncio.gather(*(member(answer) for answer in (20, 21, 22)))

    asyncio.run(group())


def test_weights_that_changed_in_place_are_used_as_soon_as_the_version_moves(policy: Policy) -> None:
    """A cached prompt and a parked conversation of the old weights must not serve the new ones."""
    engine = TorchEngine(policy)
    talk = Talk(prompt=prompt_of(15), seed=2, lengths=(6, 4), answers=((33,),))
    (before,) = play_all(engine, [talk])
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    policy.version += 1
    model = plain_model(architecture("llama"))
    model.load_state_dict(policy.module.state_dict())

    (after,) = play_all(engine, [talk])
    assert_exact(model, talk, after)
    assert [one.completion.policy_version for one in (*before, *after)] == [0, 0, 1, 1]
    # the old conversation goes on under the new weights: the whole of it has to be encoded again
    prompt = (*before[-1].prompt, *before[-1].completion.ids, 44)
    late = ask(engine, prompt, Sampling(max_new_tokens=5))
    assert late.logprobs == pytest.approx(plain_logprobs(model, prompt, late.ids), abs=EXACT)


def test_weights_that_change_while_replies_are_sampled_are_a_bug_that_every_caller_sees(policy: Policy) -> None:
    engine = TorchEngine(policy)

    async def meddle() -> list[BaseException | Completion]:
        tasks = [asyncio.create_task(engine.generate(prompt_of(5), Sampling(max_new_tokens=40, seed=(i,)))) for i in range(2)]
        for _ in range(6):
            await asyncio.sleep(0)
        policy.version += 1
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE_S)

    answers = asyncio.run(meddle())
    assert [type(answer) for answer in answers] == [AssertionError, AssertionError]
    assert "weights changed" in str(answers[0])


def test_without_room_for_idle_tokens_everything_is_encoded_again_and_nothing_changes(policy: Policy, fed: list[int]) -> None:
    talk = Talk(prompt=prompt_of(20), seed=1, lengths=(1, 3), answers=((8,),))
    (kept,) = play_all(TorchEngine(policy), [talk])
    assert fed == [20, 2, 1, 1]
    fed.clear()
    (dropped,) = play_all(TorchEngine(policy, EngineConfig(max_idle_tokens=0)), [talk])
    assert fed == [20, 22, 1, 1]  # a reply of one id leaves nothing in its row, yet it must not hold on to its prompt
    assert ids_of([kept]) == ids_of([dropped])
    for a, b in zip(kept, dropped, strict=True):
        assert a.completion.logprobs == pytest.approx(b.completion.logprobs, abs=EXACT)


def test_idle_conversations_go_least_recently_used_first(policy: Policy, fed: list[int]) -> None:
    engine = TorchEngine(policy, EngineConfig(max_idle_tokens=50))  # room for two of three: each has 20 + 2 tokens
    said = [play_all(engine, [Talk(prompt=prompt_of(20, i), seed=i, lengths=(3,))])[0][0] for i in range(3)]
    fed.clear()
    for one in said[::-1]:
        ask(engine, (*one.prompt, *one.completion.ids, 5), Sampling(max_new_tokens=1))
    assert fed[:2] == [2, 2]
    assert fed[2] == 20 + 3 + 1


def test_release_forgets_the_conversation_and_unknown_ids_are_harmless(policy: Policy, fed: list[int]) -> None:
    engine = TorchEngine(policy)
    (said,) = play_all(engine, [Talk(prompt=prompt_of(10), seed=0, lengths=(4,))])
    prompt = (*said[0].prompt, *said[0].completion.ids, 7)
    for unknown in ((), (5,), prompt_of(50), (10**9, -4)):
        engine.release(unknown)
    fed.clear()
    engine.release(prompt)
    engine.release(prompt)
    reply = ask(engine, prompt, Sampling(max_new_tokens=2))
    assert fed[0] == len(prompt)  # encoded anew
    assert reply.logprobs == pytest.approx(plain_logprobs(plain_model(architecture("llama")), prompt, reply.ids), abs=EXACT)


# -- faults ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A model whose output row 7 is 0, so that id 7 is never among the best three."""
    folder = build_tiny_llama(tmp_path / "healthy", vocab_size=SMALL_VOCAB, tied=False)
    model = plain_model(folder)
    with torch.no_grad():
        model.get_output_embeddings().weight[7] = 0
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def poisoned(healthy: Path) -> Policy:
    """A policy with that model, of which only the embedding of id 7 is not a number."""
    policy = load_policy(ModelConfig(name=str(healthy), tuning="full"))
    with torch.no_grad():
        policy.module.get_input_embeddings().weight[7] = torch.nan
    return policy


def best_three(length: int, *seed: int) -> Sampling:
    return Sampling(max_new_tokens=length, top_k=3, seed=seed)


def clean_prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(i if i != 7 else 8 for i in prompt_of(length, seed))


def assert_exact_of_best_three(model: torch.nn.Module, prompt: Sequence[int], reply: Completion) -> None:
    scores_TV = plain_logits(model, [*prompt, *reply.ids])[len(prompt) - 1 : -1]
    expected_T = scores_TV[range(len(reply.ids)), list(reply.ids)] - scores_TV.topk(3).values.logsumexp(-1)
    assert reply.logprobs == pytest.approx(expected_T.tolist(), abs=EXACT)


def test_scores_that_are_not_numbers_fail_the_requests_they_concern_and_no_other(poisoned: Policy, healthy: Path) -> None:
    """Bug-log row 63. The poison comes in a prompt, and in the new ids of a second turn, in the middle of a changing crowd."""
    model = plain_model(healthy)
    engine = TorchEngine(poisoned, EngineConfig(max_rows=3))

    async def clean(seed: int, turns: int) -> None:
        prompt = clean_prompt(5 + seed, seed)
        for turn in range(turns):
            reply = await engine.generate(prompt, best_three(6, seed, turn))
            assert_exact_of_best_three(model, prompt, reply)
            prompt = (*prompt, *reply.ids, 20)

    async def sick(seed: int, *, at_once: bool) -> None:
        prompt = clean_prompt(9, 50 + seed)
        if not at_once:
            reply = await engine.generate(prompt, best_three(6, seed))
            assert_exact_of_best_three(model, prompt, reply)
            prompt = (*prompt, *reply.ids, *[30] * 12)
        with pytest.raises(EngineFailure, match=r"version 0 .*not finite"):
            await engine.generate((*prompt, 7), best_three(6, seed, 1))

    async def everyone() -> None:
        jobs = [sick(0, at_once=False), clean(0, 3), sick(1, at_once=True), clean(1, 2), sick(2, at_once=False), clean(2, 3)]
        await asyncio.wait_for(asyncio.gather(*jobs), DEADLINE_S)

    asyncio.run(everyone())


def test_a_row_that_inherits_the_place_of_a_poisoned_one_is_clean(poisoned: Policy, healthy: Path) -> None:
    """0 x NaN is NaN: keys and values that the poisoned conversation left behind the new row's own would spoil it."""
    engine = TorchEngine(poisoned, EngineConfig(max_rows=2))
    model = plain_model(healthy)

    async def poison_then_short() -> Completion:
        prompt = clean_prompt(6, 1)
        first = await engine.generate(prompt, best_three(2))
        with pytest.raises(EngineFailure):
            await engine.generate((*prompt, *first.ids, *[40] * 8, 7), best_three(30))
        return await engine.generate(clean_prompt(6, 2), best_three(3))

    async def both() -> tuple[Completion, Completion]:
        return await asyncio.wait_for(
            asyncio.gather(engine.generate(clean_prompt(6, 3), best_three(30)), poison_then_short()), DEADLINE_S
        )

    long, short = asyncio.run(both())
    assert_exact_of_best_three(model, clean_prompt(6, 3), long)
    assert_exact_of_best_three(model, clean_prompt(6, 2), short)


@pytest.mark.parametrize("failing_call", [0, 1, 2, 4, 7])
def test_an_exception_in_the_forward_pass_reaches_every_caller(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    """Also those that are just being let in: neither waiting any more nor running yet. Afterwards the engine works."""
    hidden = policy.hidden
    calls = iter(range(10**6))

    def broken(*args: Any) -> torch.Tensor:
        if next(calls) == failing_call:
            raise RuntimeError("out of memory")
        return hidden(*args)

    monkeypatch.setattr(policy, "hidden", broken)
    engine = TorchEngine(policy, EngineConfig(max_rows=3))
    talks = [Talk(prompt=prompt_of(6, i), seed=i, lengths=(2, 4), answers=((9,),)) for i in range(5)]

    async def everyone() -> list[BaseException | list[Said]]:
        jobs = [play(engine, talk) for talk in talks]
        return await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), DEADLINE_S)

    answers = asyncio.run(everyone())
    assert [str(answer) for answer in answers] == ["out of memory"] * 5
    assert ids_of(play_all(engine, talks)) == ids_of(play_all(TorchEngine(policy), talks))


BAD: list[tuple[Sequence[int], dict[str, Any], str]] = [
    ((), {}, "prompt_ids is empty"),
    ((5, SMALL_VOCAB), {}, f"prompt_ids hold {SMALL_VOCAB}: the model knows ids from 0 to {SMALL_VOCAB - 1}"),
    ((5, -1, 6), {}, "prompt_ids hold -1"),
    ((5,), {"max_new_tokens": 0}, r"max_new_tokens=0: must be at least 1"),
    ((5,), {"temperature": -0.5}, r"temperature=-0\.5: must be at least 0"),
    ((5,), {"temperature": float("nan")}, "temperature=nan"),
    ((5,), {"temperature": float("inf")}, "temperature=inf"),
    ((5,), {"top_p": 0.0}, r"top_p=0\.0: must be above 0 and at most 1"),
    ((5,), {"top_p": 1.5}, r"top_p=1\.5"),
    ((5,), {"top_k": -1}, r"top_k=-1: must be at least 0"),
    ((5,), {"stop_texts": ("",)}, "empty text"),
    ((5,), {"seed": (-1,)}, "expected non-negative integer"),
]


@pytest.mark.parametrize(("prompt", "change", "message"), BAD)
def test_a_request_that_can_never_be_answered_is_refused_alone(
    policy: Policy, prompt: Sequence[int], change: dict[str, Any], message: str
) -> None:
    engine = TorchEngine(policy)
    good = Talk(prompt=prompt_of(4), seed=0, lengths=(3,))

    async def both() -> list[Said]:
        neighbour = asyncio.create_task(play(engine, good))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match=message):
            await engine.generate(prompt, replace(Sampling(max_new_tokens=3), **change))
        return await asyncio.wait_for(neighbour, DEADLINE_S)

    assert ids_of([asyncio.run(both())]) == ids_of(play_all(TorchEngine(policy), [good]))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_reply_may_fill_the_models_positions_and_not_one_more(name: str) -> None:
    """Bug-log rows 53 and 54: +1, 0 and -1 token; learned positions end there, rotary ones turn to garbage."""
    engine = TorchEngine(load(name))
    model = plain_model(architecture(name))
    for length in (MAX_POSITIONS - 5, MAX_POSITIONS - 4):
        prompt = prompt_of(length)
        reply = ask(engine, prompt, Sampling(max_new_tokens=4, seed=(1,)))
        assert reply.logprobs == pytest.approx(plain_logprobs(model, prompt, reply.ids), abs=EXACT)
    with pytest.raises(ValueError, match=rf"{MAX_POSITIONS - 3} ids and sampling.max_new_tokens=4 .* {MAX_POSITIONS} positions"):
        ask(engine, prompt_of(MAX_POSITIONS - 3), Sampling(max_new_tokens=4))


async def steps(number: int) -> None:
    for _ in range(3 * number):
        await asyncio.sleep(0)


def test_a_cancelled_request_makes_room_whether_it_waits_or_runs(policy: Policy, fed: list[int]) -> None:
    engine = TorchEngine(policy, EngineConfig(max_rows=1))
    long = Sampling(max_new_tokens=80)

    async def scene() -> Completion:
        running = asyncio.create_task(engine.generate(prompt_of(5), long))
        waiting = asyncio.create_task(engine.generate(prompt_of(6), long))
        last = asyncio.create_task(engine.generate(prompt_of(7), Sampling(max_new_tokens=2)))
        await steps(2)
        waiting.cancel()
        running.cancel()
        answer = await asyncio.wait_for(last, DEADLINE_S)
        assert running.cancelled()
        assert waiting.cancelled()
        return answer

    answer = asyncio.run(scene())
    assert len(answer.ids) == 2
    assert 5 in fed
    assert 6 not in fed  # never admitted
    assert sum(fed) < 30  # the 80 tokens of the cancelled reply were not sampled


def test_cancelling_one_of_a_crowd_leaves_the_others_as_they_were(policy: Policy) -> None:
    talks = crowd()

    async def scene() -> list[Any]:
        engine = TorchEngine(policy, EngineConfig(max_rows=4))
        tasks = [asyncio.create_task(play(engine, talk)) for talk in talks]
        await steps(3)
        tasks[1].cancel()
        await steps(2)
        tasks[4].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE_S)

    answers = asyncio.run(scene())
    assert isinstance(answers[1], asyncio.CancelledError)
    assert isinstance(answers[4], asyncio.CancelledError)
    rest = [i for i in range(len(talks)) if i not in (1, 4)]
    alone = play_all(TorchEngine(policy), [talks[i] for i in rest])
    assert ids_of([answers[i] for i in rest]) == ids_of(alone)


@pytest.mark.parametrize("what_follows", ["reset", "new version"])
def test_rows_of_callers_that_are_gone_do_not_stand_in_the_way_of_what_follows(policy: Policy, what_follows: str) -> None:
    """An event loop that ends, as with Ctrl-C, cancels the callers and the engine's own task before it can take another step."""
    engine = TorchEngine(policy)

    async def leave_in_the_middle() -> asyncio.Task[Completion]:
        task = asyncio.create_task(engine.generate(prompt_of(5), Sampling(max_new_tokens=80)))
        await steps(2)
        return task

    assert asyncio.run(leave_in_the_middle()).cancelled()
    if what_follows == "reset":
        engine.reset()
    else:
        policy.version += 1
    talk = Talk(prompt=prompt_of(5), seed=0, lengths=(4,))
    assert_exact(plain_model(architecture("llama")), talk, play_all(engine, [talk])[0])


def test_reset_while_replies_are_sampled_is_a_bug(policy: Policy) -> None:
    engine = TorchEngine(policy)

    async def scene() -> None:
        task = asyncio.create_task(engine.generate(prompt_of(5), Sampling(max_new_tokens=20)))
        await steps(1)
        with pytest.raises(AssertionError):
            engine.reset()
        assert len((await task).ids) == 20

    asyncio.run(scene())


def test_close_cancels_who_waits_and_leaves_no_task(policy: Policy) -> None:
    engine = TorchEngine(policy, EngineConfig(max_rows=1))

    async def scene() -> None:
        tasks = [asyncio.create_task(engine.generate(prompt_of(5), Sampling(max_new_tokens=80, seed=(i,)))) for i in range(3)]
        await steps(2)
        await engine.close()
        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE_S)
        assert all(isinstance(answer, asyncio.CancelledError) for answer in answers)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await engine.close()

    asyncio.run(scene())
    asyncio.run(engine.close())  # also from another event loop, as at the end of a run


def test_limits_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"engine\.max_rows=0: must be at least 1"):
        EngineConfig(max_rows=0).check()
    with pytest.raises(ConfigError, match=r"engine\.max_idle_tokens=-1: must be at least 0"):
        EngineConfig(max_idle_tokens=-1).check()
    EngineConfig(max_rows=1, max_idle_tokens=0).check()
