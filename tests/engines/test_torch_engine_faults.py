"""Scores that are not numbers, exceptions, callers that go away, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen.engines.config import EngineConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import EngineFailure
from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.records import Completion, Sampling
from tests.support.architectures import architecture, plain_logits, plain_model
from tests.support.models import SMALL_VOCAB, build_tiny_llama, tiny_tokenizer
from tests.support.talks import (
    DEADLINE_S,
    EXACT,
    Talk,
    assert_exact,
    crowd,
    ids_of,
    play,
    play_all,
    prompt_of,
    steps,
)


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


def test_a_caller_that_is_gone_when_its_scores_fail_leaves_the_others_their_own_answer(policy: Policy) -> None:
    engine = TorchEngine(policy)

    async def scene() -> list[Any]:
        tasks = [asyncio.create_task(engine.generate(prompt_of(5), Sampling(max_new_tokens=80, seed=(i,)))) for i in range(3)]
        await steps(2)
        with torch.no_grad():
            policy.module.get_input_embeddings().weight.fill_(torch.nan)
        tasks[1].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE_S)

    answers = asyncio.run(scene())
    assert [type(answer) for answer in answers] == [EngineFailure, asyncio.CancelledError, EngineFailure]


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
