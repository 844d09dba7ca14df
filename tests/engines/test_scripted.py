from __future__ import annotations

import asyncio

import pytest

from ragen.engines.base import Engine
from ragen.engines.scripted import ScriptedEngine, ScriptedReply
from ragen.errors import EngineFailure
from ragen.records import Completion, FinishReason, Sampling

SAMPLING = Sampling(max_new_tokens=4, seed=(7,))


def ask(engine: Engine, prompt: list[int], sampling: Sampling = SAMPLING) -> Completion:
    return asyncio.run(engine.generate(prompt, sampling))


def test_replies_are_played_in_order_and_the_calls_are_kept() -> None:
    engine = ScriptedEngine([[5, 6], ScriptedReply(ids=(7,), logprobs=(-2.0,))], policy_version=3)
    first, second = ask(engine, [1, 2]), ask(engine, [1, 2, 5, 6, 9])
    assert first == Completion(ids=(5, 6), logprobs=(-0.125, -0.25), finish_reason=FinishReason.STOP, policy_version=3)
    assert (second.ids, second.logprobs) == ((7,), (-2.0,))
    assert [request.prompt_ids for request in engine.requests] == [(1, 2), (1, 2, 5, 6, 9)]
    assert [request.completion for request in engine.requests] == [first, second]
    assert engine.requests[0].sampling is SAMPLING


def test_a_function_answers_from_prompt_and_sampling() -> None:
    engine = ScriptedEngine(lambda prompt, sampling: [len(prompt), *sampling.seed])
    assert ask(engine, [4, 4, 4]).ids == (3, 7)


def test_texts_are_encoded_and_ended() -> None:
    engine = ScriptedEngine.from_texts(["ab"], lambda text: [ord(c) for c in text], end=[0])
    assert ask(engine, [1]).ids == (97, 98, 0)


def test_a_reply_longer_than_allowed_is_cut_as_a_model_would_be() -> None:
    completion = ask(ScriptedEngine([[1, 2, 3, 4, 5]]), [1])
    assert (completion.ids, completion.finish_reason) == ((1, 2, 3, 4), FinishReason.LENGTH)
    assert len(completion.logprobs) == 4


def test_a_chosen_call_fails_and_is_kept_without_a_completion() -> None:
    engine = ScriptedEngine([[1], [2]], fail_at={1})
    assert ask(engine, [1]).ids == (1,)
    with pytest.raises(EngineFailure, match="call 1"):
        ask(engine, [1])
    assert [request.completion is None for request in engine.requests] == [False, True]
    assert ask(engine, [1]).ids == (2,)  # a failed call uses up no reply


@pytest.mark.parametrize(("prompt", "limit"), [([], 4), ([1], 0)])
def test_a_request_that_can_never_be_answered_is_refused(prompt: list[int], limit: int) -> None:
    """Bug-log row 54: an engine asked for 0 tokens says so; the agent is the one that must not ask."""
    with pytest.raises(ValueError, match="at least 1"):
        ask(ScriptedEngine([[1]]), prompt, Sampling(max_new_tokens=limit))


def test_delays_let_a_later_call_overtake_an_earlier_one() -> None:
    engine = ScriptedEngine(lambda prompt, sampling: prompt, delay=lambda call: 5 - 5 * call)
    order: list[int] = []

    async def one(number: int) -> None:
        order.extend((await engine.generate([number], SAMPLING)).ids)

    async def both() -> None:
        await asyncio.gather(one(1), one(2))

    asyncio.run(both())
    assert order == [2, 1]
    assert [request.prompt_ids for request in engine.requests] == [(1,), (2,)]


def test_an_exhausted_script_says_how_long_it_was() -> None:
    with pytest.raises(ValueError, match="holds 0 replies"):
        ask(ScriptedEngine([]), [1])


def test_release_and_close_are_kept() -> None:
    engine = ScriptedEngine([])
    engine.release([1, 2])
    asyncio.run(engine.close())
    assert (engine.released, engine.closed) == ([(1, 2)], True)
