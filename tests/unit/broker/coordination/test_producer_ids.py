"""Producer ids: each is given once, the next block is asked for in time, and a refusal ends nothing."""

import asyncio
import logging

import pytest

from distributedlog.broker.coordination.producer_ids import ProducerIdentity, ProducerIds
from distributedlog.controller.requests import ProducerIdBlock
from distributedlog.model.errors import ConsensusError, RequestTimedOutError


class Controller:
    """Gives blocks of ten, once it is let."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.asked = 0
        self.allowed = asyncio.Event()
        self.allowed.set()
        self.refusals: list[Exception] = []

    async def give(self) -> ProducerIdBlock:
        self.asked += 1
        first = (self.asked - 1) * self.size
        await self.allowed.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        return ProducerIdBlock(first, self.size)


def test_ids_rise_over_the_blocks_and_none_is_given_twice() -> None:
    async def run() -> None:
        controller = Controller()
        ids = ProducerIds(controller.give)
        given = [await ids.new_producer() for _ in range(35)]
        assert given == [ProducerIdentity(number, 0) for number in range(35)]

    asyncio.run(run())


def test_the_next_block_is_asked_for_before_the_last_id_is_given() -> None:
    async def run() -> None:
        controller = Controller()
        ids = ProducerIds(controller.give)
        for _ in range(8):
            await ids.new_producer()
        await asyncio.sleep(0)
        assert controller.asked == 1
        await ids.new_producer()
        await asyncio.sleep(0)
        assert controller.asked == 2
        await asyncio.sleep(0)
        controller.allowed.clear()
        assert (await ids.new_producer()).producer_id == 9
        assert (await ids.new_producer()).producer_id == 10, "nobody waits for the controller"

    asyncio.run(run())


def test_many_that_wait_share_one_question() -> None:
    async def run() -> None:
        controller = Controller(size=1_000)
        ids = ProducerIds(controller.give)
        given = await asyncio.gather(*(ids.new_producer() for _ in range(100)))
        assert sorted(each.producer_id for each in given) == list(range(100))
        assert controller.asked == 1

    asyncio.run(run())


def test_a_refusal_is_told_to_those_who_wait_and_the_next_may_try_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        controller = Controller()
        controller.refusals = [RequestTimedOutError("no controller")]
        ids = ProducerIds(controller.give)
        outcomes = await asyncio.gather(*(ids.new_producer() for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [RequestTimedOutError] * 3
        assert (await ids.new_producer()).producer_id == 10

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "no controller" in caplog.text


def test_one_that_gives_up_does_not_end_it_for_others() -> None:
    async def run() -> None:
        controller = Controller()
        controller.allowed.clear()
        ids = ProducerIds(controller.give)
        waiting = [asyncio.create_task(ids.new_producer()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        controller.allowed.set()
        assert (await waiting[1]).producer_id == 0
        assert waiting[0].cancelled()

    asyncio.run(run())


@pytest.mark.parametrize(
    "block", [ProducerIdBlock(0, 0), ProducerIdBlock(-5, 10), ProducerIdBlock(2**63 - 1, 5)]
)
def test_a_block_that_cannot_be_is_refused(block: ProducerIdBlock) -> None:
    async def run() -> None:
        async def give() -> ProducerIdBlock:
            return block

        with pytest.raises(ConsensusError):
            await ProducerIds(give).new_producer()

    asyncio.run(run())


def test_ids_that_were_given_already_are_not_taken_again() -> None:
    async def run() -> None:
        async def give() -> ProducerIdBlock:
            return ProducerIdBlock(0, 2)

        ids = ProducerIds(give)
        assert [(await ids.new_producer()).producer_id for _ in range(2)] == [0, 1]
        with pytest.raises(ConsensusError):
            await ids.new_producer()

    asyncio.run(run())


def test_closing_ends_the_asking() -> None:
    async def run() -> None:
        controller = Controller()
        controller.allowed.clear()
        ids = ProducerIds(controller.give)
        waiting = asyncio.create_task(ids.new_producer())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ids.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())


def test_a_token_is_higher_than_every_id_and_token_before_it() -> None:
    async def run() -> None:
        controller = Controller()
        here, there = ProducerIds(controller.give), ProducerIds(controller.give)
        given = [await here.new_token(), await there.new_token(), (await here.new_producer()).producer_id]
        given += [await there.new_token(), await here.new_token()]
        assert given == sorted(set(given))
        refusal = RequestTimedOutError("nobody leads")
        controller.refusals.append(refusal)
        with pytest.raises(RequestTimedOutError):
            await here.new_token()

    asyncio.run(run())
