"""When balancing that goes on stands down, and what is worth a move."""

import asyncio

import pytest

from distributedlog.cli.cluster.balancing.loads import ClusterLoad, PartitionLoad, Site
from distributedlog.cli.cluster.balancing.steady import find_fault, find_strangers, is_worth_it, run_unless
from distributedlog.client.view import NO_NODE, PartitionView, TopicView
from distributedlog.model.ids import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
WHOLE = PartitionView(0, 1, 0, (1, 2), (1, 2))
LACKING = PartitionView(1, 1, 0, (1, 2, 3), (1, 2))
LEADERLESS = PartitionView(1, NO_NODE, 0, (1,), (1,))
MIB = 1024.0 * 1024


def topics(*partitions: PartitionView) -> list[TopicView]:
    return [TopicView("orders", partitions)]


def test_it_stands_down_for_what_lacks_replicas_unless_its_own_moves_bring_them() -> None:
    assert find_fault(topics(WHOLE), ()) is None
    assert find_fault(topics(WHOLE, LACKING), ()) == "replicas are not in sync: orders-1"
    assert find_fault(topics(WHOLE, LACKING), (), {P0}) == "replicas are not in sync: orders-1"
    assert find_fault(topics(WHOLE, LACKING), (), {P1}) is None
    assert find_fault(topics(WHOLE, LEADERLESS), ()) is not None
    assert find_fault(topics(WHOLE), (4, 3)) == "brokers are fenced: 3, 4"


def test_it_stands_down_for_moves_of_somebody_else() -> None:
    assert find_strangers({P0}, {P0}) is None
    assert find_strangers({P0, P1}, {P0}) == "somebody else moves 1 partitions"


def test_a_little_beyond_the_tolerance_is_not_worth_a_move() -> None:
    def load(first: float, second: float) -> ClusterLoad:
        partitions = {P0: PartitionLoad((1,), first * MIB), P1: PartitionLoad((2,), second * MIB)}
        return ClusterLoad({1: Site(), 2: Site()}, partitions)

    assert not is_worth_it(load(88, 112), 0.1)
    assert is_worth_it(load(84, 116), 0.1)


def test_what_handles_its_cancellation_with_an_error_and_goes_on_is_ended_too() -> None:
    tries = 0

    async def never_ends() -> None:
        nonlocal tries
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                tries += 1
                if tries == 2:
                    raise

    async def check() -> None:
        told_to_end = asyncio.Event()
        asyncio.get_running_loop().call_soon(told_to_end.set)
        async with asyncio.timeout(30):
            assert not await run_unless(told_to_end, never_ends())

    asyncio.run(check())
    assert tries == 2


def test_what_ends_before_the_event_tells_how() -> None:
    async def fail() -> None:
        raise ValueError("it failed")

    async def check() -> None:
        assert await run_unless(asyncio.Event(), asyncio.sleep(0))
        with pytest.raises(ValueError, match="it failed"):
            await run_unless(asyncio.Event(), fail())

    asyncio.run(check())
