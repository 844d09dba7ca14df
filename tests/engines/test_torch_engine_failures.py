"""A step of the engine that fails: who is begun again, who is lost, who goes on, and that a bug stays a bug."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from ragen.engines.config import EngineConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import EngineFailure
from ragen.models.policy import Policy
from ragen.records import Completion, Sampling
from tests.support.architectures import architecture, plain_model
from tests.support.models import tiny_tokenizer
from tests.support.talks import DEADLINE_S, Said, Talk, ask, assert_exact, crowd, greedy, ids_of, play, play_all, prompt_of

SHORTAGE = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 64"
TALKS = [Talk(prompt=prompt_of(6, i), seed=i, lengths=(2, 4), answers=((9,),)) for i in range(5)]


def fail(
    monkeypatch: pytest.MonkeyPatch,
    policy: Policy,
    error: Exception,
    when: Callable[[int, int], bool],
    *,
    part: str = "quick_hidden",
) -> None:
    """Let a part of `policy` raise where `when` says so of the number of its call and of the tokens, or rows, it is given."""
    honest = getattr(policy, part)
    calls = iter(range(10**6))

    def failing(first: torch.Tensor, *rest: Any) -> torch.Tensor:
        if when(next(calls), len(first)):
            raise error
        return honest(first, *rest)

    monkeypatch.setattr(policy, part, failing)


def outcomes(engine: TorchEngine, talks: list[Talk]) -> list[list[Said] | BaseException]:
    async def everyone() -> list[list[Said] | BaseException]:
        jobs = [play(engine, talk) for talk in talks]
        return await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), DEADLINE_S)

    return asyncio.run(everyone())


@pytest.mark.parametrize("failing_call", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("bug", [TypeError("no such argument"), AssertionError("3 != 4"), NotImplementedError("not written")])
def test_a_bug_in_the_forward_pass_reaches_every_caller_as_it_is(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, failing_call: int, bug: Exception
) -> None:
    """Also those that are just being let in: neither waiting any more nor running yet. Afterwards the engine works."""
    fail(monkeypatch, policy, bug, lambda call, _: call == failing_call)
    engine = TorchEngine(policy, EngineConfig(max_rows=3))
    assert all(answer is bug for answer in outcomes(engine, TALKS))
    assert ids_of(play_all(engine, TALKS)) == ids_of(play_all(TorchEngine(policy), TALKS))


@pytest.mark.parametrize("failing_call", [0, 1, 2, 3, 4])
def test_a_step_that_fails_costs_the_replies_that_it_sampled_and_no_other(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing_call: int
) -> None:
    """At most three of five are in a step, so at least two wait and are answered as if nothing had happened."""
    undisturbed = play_all(TorchEngine(policy), TALKS)
    fail(monkeypatch, policy, RuntimeError("cuDNN error"), lambda call, _: call == failing_call)
    engine = TorchEngine(policy, EngineConfig(max_rows=3))
    with caplog.at_level(logging.WARNING, logger="ragen"):
        answers = outcomes(engine, TALKS)
    lost = [answer for answer in answers if isinstance(answer, BaseException)]
    assert 1 <= len(lost) <= 3
    assert {(type(error), str(error)) for error in lost} == {
        (EngineFailure, "a step of the engine failed: RuntimeError: cuDNN error")
    }
    for expected, answer in zip(undisturbed, answers, strict=True):
        if not isinstance(answer, BaseException):
            assert ids_of([answer]) == ids_of([expected])
    assert engine.row_limit.rows == 3
    (record,) = caplog.records
    assert record.exc_info is not None  # the stack, for the log


@pytest.mark.parametrize("failing_call", [0, 1, 3, 9, 14])
@pytest.mark.parametrize("shortage", [RuntimeError(SHORTAGE), MemoryError()])
def test_out_of_memory_loses_nothing_and_changes_nothing(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, failing_call: int, shortage: Exception
) -> None:
    """In a prompt's encoding, in a first token, in the middle of a reply, in a second turn."""
    fail(monkeypatch, policy, shortage, lambda call, _: call == failing_call)
    talks = crowd()
    engine = TorchEngine(policy)
    found = play_all(engine, talks)
    model = plain_model(architecture("llama"))
    for talk, said in zip(talks, found, strict=True):
        assert_exact(model, talk, said)
    assert engine.row_limit.take_count() == 1
    monkeypatch.undo()
    assert ids_of(found) == ids_of(play_all(TorchEngine(policy), talks))


def test_rows_are_halved_until_they_fit(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps of more than two rows never fit: of nine 9, 4 and then 2 are tried together."""
    talks = [Talk(prompt=prompt_of(2, i), seed=i, lengths=(5,)) for i in range(9)]
    undisturbed = play_all(TorchEngine(policy), talks)
    fail(monkeypatch, policy, RuntimeError(SHORTAGE), lambda _, num_rows: num_rows > 2, part="logits")
    engine = TorchEngine(policy)
    with caplog.at_level(logging.WARNING, logger="ragen"):
        found = play_all(engine, talks)
    assert ids_of(found) == ids_of(undisturbed)
    assert engine.row_limit.rows == 2
    assert [message.partition("): ")[2] for message in caplog.messages] == [
        "replies to be sampled again: 9; together from here on: 4 at most",
        "replies to be sampled again: 4; together from here on: 2 at most",
    ]
    assert engine.row_limit.take_count() == 2


def test_a_reply_that_does_not_fit_alone_is_lost_and_the_others_are_not(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    talks = [Talk(prompt=prompt_of(length, length), seed=length, lengths=(3,)) for length in (4, 40, 5, 6)]
    undisturbed = play_all(TorchEngine(policy), talks)
    fail(monkeypatch, policy, RuntimeError(SHORTAGE), lambda _, num_tokens: num_tokens >= 40)
    engine = TorchEngine(policy)
    first, lost, *others = outcomes(engine, talks)
    assert isinstance(lost, EngineFailure)
    assert str(lost).startswith("out of memory, twice, while one reply was sampled alone (RuntimeError: [enforce fail")
    assert "a smaller rollout.context.max_context_tokens or model" in str(lost)
    assert ids_of([first, *others]) == ids_of([undisturbed[0], *undisturbed[2:]])  # type: ignore[list-item]


def test_a_reply_that_is_begun_again_has_forgotten_the_half_of_a_stop_text(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop text begins with the last character before the shortage and ends with the first one of the reply."""
    tokenizer, prompt, engine = tiny_tokenizer(), prompt_of(9), TorchEngine(policy)
    for seed in range(100):
        sampling = Sampling(max_new_tokens=30, seed=(seed,))
        free = ask(engine, prompt, sampling)
        pieces = [tokenizer.decode(i) for i in free.ids]
        halves = [(i, pieces[i][-1] + pieces[0][0]) for i in range(1, 29) if (pieces[i] + pieces[0]).isascii()]
        found = next(((i, text) for i, text in halves if text not in tokenizer.decode(free.ids)), None)
        if found:
            break
    assert found is not None
    last, text = found
    sampling = replace(sampling, stop_texts=(text,))
    # The shortage comes behind token `last`; the first call draws token 0.
    fail(monkeypatch, policy, MemoryError(), lambda call, _: call == 1 + last, part="logits")
    engine = TorchEngine(policy)

    async def both() -> list[Completion]:
        jobs = [engine.generate(prompt, sampling), engine.generate(prompt_of(5), greedy(30))]
        return await asyncio.wait_for(asyncio.gather(*jobs), DEADLINE_S)

    assert asyncio.run(both())[0].ids == free.ids
    assert engine.row_limit.take_count() == 1


def test_a_caller_that_is_gone_is_not_begun_again(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, policy, MemoryError(), lambda call, _: call == 5)
    engine = TorchEngine(policy)

    async def scene() -> list[Any]:
        tasks = [asyncio.create_task(engine.generate(prompt_of(5, i), Sampling(max_new_tokens=9, seed=(i,)))) for i in range(3)]
        for _ in range(8):
            await asyncio.sleep(0)
        tasks[1].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE_S)

    first, gone, third = asyncio.run(scene())
    assert (len(first.ids), len(third.ids)) == (9, 9)
    assert isinstance(gone, asyncio.CancelledError)
    assert engine.row_limit.rows == 1  # two were sampled together
