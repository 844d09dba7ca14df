"""What replies have cost, and when the next one is not asked for any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ragen.engines.budget import Budget, most_tokens
from ragen.engines.server_config import ServerConfig
from ragen.errors import BudgetSpent
from ragen.records import ChatMessage, Counted

# A prompt token costs 1, a sampled one 10: in millionths of the currency, so that sums are whole.
PRICES: dict[str, Any] = {"price_per_million_prompt_tokens": 1e6, "price_per_million_sampled_tokens": 10e6}
MOST = Counted(num_prompt=40, num_sampled=6)  # at most 100
USED = Counted(num_prompt=20, num_sampled=1)  # 30 in the end


async def ask(budget: Budget, *, used: Counted = USED, until: asyncio.Event | None = None) -> None:
    async with budget.room_for(MOST):
        await (until.wait() if until else asyncio.sleep(0))
        budget.pay(used)


def test_replies_are_asked_for_until_the_next_may_cost_too_much() -> None:
    """Three replies of 30 each are 90; a fourth may cost 100, and 190 is above 189."""
    budget = Budget(ServerConfig(**PRICES, max_cost=189.0))

    async def ask_all() -> None:
        for _ in range(3):
            await ask(budget)
        await ask(budget)

    with pytest.raises(
        BudgetSpent, match=r"^server\.max_cost=189: 90 is spent and the next reply may cost 100; raise it to go on$"
    ):
        asyncio.run(ask_all())
    assert (budget.usage.num_requests, budget.usage.cost) == (3, 90.0)


def test_up_to_the_bound_itself_may_be_spent() -> None:
    budget = Budget(ServerConfig(**PRICES, max_cost=190.0))

    async def ask_all() -> None:
        for _ in range(4):
            await ask(budget, used=USED)

    asyncio.run(ask_all())
    assert budget.usage.cost == 120.0


def test_a_request_that_does_not_fit_beside_others_waits_for_their_bills() -> None:
    """Two set 200 of 250 aside. The third goes when one of them has cost 30 only: 30 + 100 + 100 fits."""
    budget = Budget(ServerConfig(**PRICES, max_cost=250.0))
    begun: list[int] = []

    async def ask_all() -> None:
        ends = [asyncio.Event() for _ in range(3)]

        async def numbered(number: int) -> None:
            async with budget.room_for(MOST):
                begun.append(number)
                await ends[number].wait()
                budget.pay(USED)

        tasks = [asyncio.create_task(numbered(number)) for number in range(3)]
        await asyncio.sleep(0.01)
        assert begun == [0, 1]
        ends[1].set()
        await asyncio.sleep(0.01)
        assert begun == [0, 1, 2]
        ends[0].set()
        ends[2].set()
        await asyncio.gather(*tasks)

    asyncio.run(ask_all())
    assert budget.usage.cost == 90.0


def test_a_request_that_fails_gives_its_place_back_and_costs_nothing() -> None:
    budget = Budget(ServerConfig(**PRICES, max_cost=100.0))

    async def ask_twice() -> None:
        with pytest.raises(TimeoutError):
            async with budget.room_for(MOST):
                raise TimeoutError
        await ask(budget)

    asyncio.run(ask_twice())
    assert (budget.usage.num_requests, budget.usage.cost) == (1, 30.0)


def test_what_an_earlier_part_has_paid_counts_and_each_further_reply_is_told() -> None:
    told: list[Counted] = []
    budget = Budget(ServerConfig(**PRICES, max_cost=150.0), paid=[USED, USED], on_paid=told.append)
    with pytest.raises(BudgetSpent, match="60 is spent"):
        asyncio.run(ask(budget))
    roomy = Budget(ServerConfig(**PRICES, max_cost=160.0), paid=[USED, USED], on_paid=told.append)
    asyncio.run(ask(roomy))
    assert (told, roomy.usage.cost) == ([USED], 90.0)


def test_without_a_bound_everything_goes_and_is_counted() -> None:
    budget = Budget(ServerConfig())
    asyncio.run(ask(budget))
    assert budget.usage.line() == "1 requests, 20 prompt tokens, 1 sampled"


@pytest.mark.parametrize("text", ["Where to?", "日本語", "", "  \n\t"])
def test_no_tokenizer_can_count_more_than_what_is_set_aside(text: str) -> None:
    """A byte a token, and 28 for the marks of a chat: SmolLM2's template with its own system prompt writes 27 around one."""
    most = most_tokens([ChatMessage(role="user", content=text)], 6)
    assert most.num_prompt >= len(text.encode()) + 28
    assert most.num_sampled == 6
