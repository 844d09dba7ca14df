"""What the caller asks for is what is done, and nothing else: truncation, greedy search, stops, lengths, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragen.engines.config import EngineConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import ConfigError
from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.records import FinishReason, Sampling
from tests.support.architectures import MAX_POSITIONS, architecture, load, plain_logits, plain_logprobs, plain_model
from tests.support.models import SMALL_VOCAB, tiny_tokenizer
from tests.support.talks import DEADLINE_S, EXACT, Said, Talk, ask, assert_exact, greedy, ids_of, play, play_all, prompt_of


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


def test_limits_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"engine\.max_rows=0: must be at least 1"):
        EngineConfig(max_rows=0).check()
    with pytest.raises(ConfigError, match=r"engine\.max_idle_tokens=-1: must be at least 0"):
        EngineConfig(max_idle_tokens=-1).check()
    EngineConfig(max_rows=1, max_idle_tokens=0).check()
