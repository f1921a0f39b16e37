"""Bytes that many share: nobody takes what is not there, and nobody is passed over."""

import asyncio

import pytest

from distributedlog.gateway.budget import ByteBudget


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_whoever_asks_first_is_first_also_with_a_larger_wish() -> None:
    async def story() -> None:
        budget = ByteBudget(100)
        order: list[str] = []

        async def want(name: str, wanted_bytes: int) -> None:
            await budget.take(wanted_bytes)
            order.append(name)

        await budget.take(80)
        tasks = [asyncio.create_task(want("large", 90)), asyncio.create_task(want("small", 10))]
        await settle()
        assert order == []
        assert budget.free_bytes == 20
        budget.give_back(80)
        await settle()
        assert order == ["large", "small"]
        assert budget.free_bytes == 0
        await asyncio.gather(*tasks)

    asyncio.run(story())


def test_whoever_goes_away_lets_the_next_one_in() -> None:
    async def story() -> None:
        budget = ByteBudget(100)
        await budget.take(50)
        large = asyncio.create_task(budget.take(100))
        small = asyncio.create_task(budget.take(50))
        await settle()
        large.cancel()
        await settle()
        assert small.done()
        assert budget.free_bytes == 0

    asyncio.run(story())


def test_a_turn_that_comes_as_its_owner_goes_away_is_given_back() -> None:
    async def story() -> None:
        budget = ByteBudget(100)
        await budget.take(100)
        waiting = asyncio.create_task(budget.take(60))
        await settle()
        budget.give_back(100)
        waiting.cancel()
        await settle()
        assert waiting.cancelled()
        assert budget.free_bytes == 100

    asyncio.run(story())


def test_more_than_there_is_cannot_be_wished_for() -> None:
    async def story() -> None:
        with pytest.raises(ValueError, match="more than the 100"):
            await ByteBudget(100).take(101)

    asyncio.run(story())
