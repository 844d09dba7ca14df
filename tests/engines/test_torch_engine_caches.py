"""Nothing is computed twice, and nothing stale is used."""

from __future__ import annotations

import asyncio

import pytest
import torch

from ragen.engines.config import EngineConfig
from ragen.engines.idle_cache import IdleCache, Parked
from ragen.engines.kv_cache import PromptBlock, Room, RowStore
from ragen.engines.torch_engine import TorchEngine
from ragen.models.policy import Policy
from ragen.records import Completion, Sampling
from tests.support.architectures import architecture, plain_logprobs, plain_model
from tests.support.talks import DEADLINE_S, EXACT, Talk, ask, assert_exact, greedy, ids_of, play_all, prompt_of


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


def test_of_many_conversations_no_more_are_under_way_than_run_together(policy: Policy, fed: list[int]) -> None:
    """Twelve of three turns, two rows: each is played to its end before another begins, so little idle room serves them all."""
    talks = [Talk(prompt=prompt_of(20, i), seed=i, lengths=(3, 3, 3), answers=((8, 9), (7,))) for i in range(12)]
    crowd = play_all(TorchEngine(policy, EngineConfig(max_rows=2, max_idle_tokens=100)), talks)
    assert sum(fed) == 12 * (
        20 + 2 + (1 + 2) + 2 + (1 + 1) + 2
    )  # the prompt, and each id behind it but the last of a reply, once
    fed.clear()
    assert ids_of(crowd) == ids_of(play_all(TorchEngine(policy), talks))


def test_what_is_idle_is_never_more_than_allowed_though_all_end_their_turns_at_once(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    park, held = IdleCache.park, list[int]()

    def watched(cache: IdleCache, conversation: tuple[int, ...], parked: Parked) -> None:
        held.append(sum(other.filled + len(other.block) for other in cache._parked.values()))
        park(cache, conversation, parked)

    monkeypatch.setattr(IdleCache, "park", watched)
    talks = [Talk(prompt=prompt_of(20, i), seed=i, lengths=(3, 3), answers=((8, 9),)) for i in range(8)]
    play_all(TorchEngine(policy, EngineConfig(max_idle_tokens=50)), talks)
    assert len(held) == 16
    assert 0 < max(held) <= 50 + 20 + 2  # the block of the row that leaves is not idle yet when it is counted


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


def test_rows_that_would_need_too_much_together_wait_and_say_the_same(policy: Policy) -> None:
    """With room for 60 tokens, three talks behind a prompt of 8 run together; beside the one behind 40 there is room for none."""
    talks = [Talk(prompt=prompt_of(40 if i == 1 else 8), seed=i, lengths=(6, 6)) for i in range(4)]
    tight = TorchEngine(policy, EngineConfig(max_tokens=60))
    cells: list[int] = []
    forward = tight._forward

    def watched() -> object:
        answer = forward()
        cells.append(tight._storage.num_rows)
        return answer

    tight._forward = watched  # type: ignore[assignment, method-assign]
    for ours, theirs in zip(play_all(tight, talks), play_all(TorchEngine(policy), talks), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.completion.ids == b.completion.ids
            assert a.completion.logprobs == pytest.approx(b.completion.logprobs, abs=EXACT)
    assert max(cells) <= 3


def test_a_store_never_holds_more_cells_than_it_may_unless_asked() -> None:
    like = PromptBlock(ids=(1,), kv=[torch.zeros(2, 1, 1, 4)], last_hidden_D=torch.zeros(4))
    store = RowStore(like, max_cells=1000)
    store.reserve(8, 60)
    assert (store.num_rows, store.capacity) == (8, 64)
    store.reserve(2, 400)  # 8 x 448 would be too much, so the other rows, which have left, lose their place
    assert (store.num_rows, store.capacity) == (2, 448)
    store.reserve(12, 60)
    assert (store.num_rows, store.capacity) == (12, 64)
    store.reserve(12, 640)  # asked for
    assert store.num_rows * store.capacity == 12 * 640


def test_room_counts_every_row_as_long_as_the_longest_and_a_prompt_once() -> None:
    room = Room(100)
    assert room.take((1, 2), 1000)  # alone it always fits
    room = Room(100)
    assert room.take((1, 2, 3), 20)
    assert room.take((1, 2, 3), 30)  # 2 x 30 + 3
    assert not room.take((1, 2, 3), 40)  # 3 x 40 + 3
    assert room.take((1, 2, 3), 10)  # 3 x 30 + 3
    assert not room.take((7,), 10)  # 4 x 30


def test_a_store_that_the_system_has_no_memory_for_is_a_memory_error() -> None:
    like = PromptBlock(ids=(1,), kv=[torch.zeros(2, 1, 1, 4)], last_hidden_D=torch.zeros(4))
    with pytest.raises(MemoryError, match="bytes for keys and values"):
        RowStore(like, max_cells=1).reserve(2**30, 2**20)
