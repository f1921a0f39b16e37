"""Places become offsets."""

from dataclasses import replace

import pytest

from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import (
    BEGINNING,
    EARLIEST,
    END,
    LATEST,
    Ago,
    AtOffset,
    AtTime,
    Isolation,
    LastRecords,
    OffsetSpec,
)
from distributedlog.client.offsets import list_offsets, resolve
from distributedlog.model.errors import UnknownTopicError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from distributedlog.records.record import Record, encode_batch
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import QUICK, run

HERE = TopicPartition("t", 0)
NOW_MS = 1_000_000


class FixedClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


def ledger() -> Ledger:
    """Offsets 3 to 7, at the times 100 to 500."""
    made = Ledger({"t": 2}, start_offsets={HERE: 3})
    for number in range(1, 6):
        made.append(HERE, encode_batch([Record(b"x", timestamp_ms=number * 100)]))
    return made


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (BEGINNING, 3),
        (END, 8),
        (AtOffset(5), 5),
        (AtOffset(99), 99),
        (AtTime(0), 3),
        (AtTime(101), 4),
        (AtTime(500), 7),
        (AtTime(501), 8),
        (Ago(NOW_MS - 101), 4),
        (Ago(NOW_MS - 501), 8),
        (Ago(2**62), 3),
        (LastRecords(2), 6),
        (LastRecords(99), 3),
        (LastRecords(0), 8),
    ],
    ids=str,
)
def test_a_place_means_an_offset(place: OffsetSpec, offset: int) -> None:
    async def story() -> None:
        async with Cluster([broker.address], QUICK, clock=FixedClock()) as cluster:
            assert await resolve(cluster, {HERE: place}) == {HERE: offset}

    with (broker := ledger().broker()).running():
        run(story())


def test_different_places_of_several_partitions_are_found_together() -> None:
    other = TopicPartition("t", 1)

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            assert await resolve(cluster, {HERE: AtTime(501), other: LastRecords(3)}) == {HERE: 8, other: 0}
            assert await resolve(cluster, {}) == {}

    with (broker := ledger().broker()).running():
        run(story())


def test_a_partition_whose_leader_moves_is_asked_for_again_and_the_others_are_not() -> None:
    asked: list[list[int]] = []
    refused = iter([6, 0])

    def answer(request: ListOffsetsRequest, _version: int) -> ListOffsetsResponse:
        (topic,) = request.topics
        asked.append([each.partition_index for each in topic.partitions])
        told = [
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=next(refused) if each.partition_index == 1 else 0,
                offset=each.partition_index * 10,
            )
            for each in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=told)])

    broker = ledger().broker()
    broker.answers[ApiKey.LIST_OFFSETS] = answer

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            wanted = {TopicPartition("t", index): LATEST for index in range(2)}
            found = await list_offsets(cluster, wanted)
            assert [found[each].offset for each in sorted(found)] == [0, 10]

    with broker.running():
        run(story())
    assert asked == [[0, 1], [1]]


def test_the_isolation_is_passed_on() -> None:
    levels: list[int] = []
    kept = ledger()

    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        levels.append(request.isolation_level)
        return kept.list_offsets(request, version)

    broker = kept.broker()
    broker.answers[ApiKey.LIST_OFFSETS] = answer

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            await list_offsets(cluster, {HERE: EARLIEST}, Isolation.READ_COMMITTED)
            await list_offsets(cluster, {HERE: EARLIEST})

    with broker.running():
        run(story())
    assert levels == [1, 0]


def test_a_topic_that_is_not_there_is_told_when_the_time_is_over() -> None:
    async def story() -> None:
        async with Cluster([broker.address], replace(QUICK, call_timeout_ms=20)) as cluster:
            await list_offsets(cluster, {TopicPartition("nothing", 0): LATEST})

    with (broker := ledger().broker()).running(), pytest.raises(UnknownTopicError):
        run(story())
