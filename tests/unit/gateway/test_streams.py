"""Fetch through the gateway: every record once, from where it was asked, for as long as it is read."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from distributedlog.client.offset_specs import Isolation
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.budget import ByteBudget
from distributedlog.gateway.fetching import PartitionFetcher
from distributedlog.gateway.reading import SECTION_BYTES_MAX
from distributedlog.gateway.streams import POSITIONS_MAX, RESPONSE_BYTES, FetchStream
from distributedlog.model.config import KIB, MIB
from tests.unit.gateway.stage import GatewayStage, failure_in, run


def test_a_stream_begins_where_it_is_told(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            for n in range(5):
                await stage.produce(stage.record(b"%d" % n, timestamp_ms=n * 100))
            values = [b"0", b"1", b"2", b"3", b"4"]
            expected: list[tuple[dict[str, Any], list[bytes]]] = [
                ({}, values),
                ({"edge": pb.EARLIEST}, values),
                ({"edge": pb.LATEST}, []),
                ({"offset": 3}, values[3:]),
                ({"offset": 5}, []),
                ({"timestamp_ms": 150}, values[2:]),
                ({"timestamp_ms": 200}, values[2:]),
                ({"timestamp_ms": 0}, values),
                ({"timestamp_ms": 401}, []),
            ]
            for start, found in expected:
                assert await stage.values(stage.position(**start), until_end=True) == found, start

    run(story)


def test_a_stream_follows_what_comes(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(2)
            await stage.produce(stage.record(b"before", partition=0))
            stream = stage.stream(stage.position(offset=1), stage.position(1))
            for number, partition_id in enumerate([0, 1, 1, 0]):
                await stage.produce(stage.record(b"%d" % number, partition=partition_id))
                response = await stream.read()
                found = response.partition, [each.value for each in response.records]
                assert found == (partition_id, [b"%d" % number])
            stream.cancel()

    run(story)


def test_a_caller_that_goes_away_leaves_no_stream(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(3)
            streams = [stage.stream(*(stage.position(at) for at in range(3))) for _ in range(5)]
            await stage.until(lambda: stage.service.stream_count == 5)
            for stream in streams:
                stream.cancel()
            await stage.until(lambda: stage.service.stream_count == 0)

    run(story)


def test_a_stream_ends_at_its_bounds(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(2)
            values = [b"%02d" % n for n in range(20)]
            for partition_id in range(2):
                await stage.produce(*(stage.record(value, partition=partition_id) for value in values))
            assert await stage.values(stage.position(), records_max=7) == values[:7]
            assert await stage.values(stage.position(offset=3), bytes_max=7) == values[3:7]
            assert await stage.values(stage.position(offset=15), max_wait_ms=50) == values[15:]
            both = await stage.values(stage.position(), stage.position(1), records_max=30)
            assert len(both) == 30
            (response,) = await stage.fetch(stage.position(), records_max=4)
            assert response.next_offset == 4

    run(story)


def test_a_stream_ends_where_the_partition_ended_when_it_began(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            await stage.produce(*(stage.record(bytes(100 * KIB)) for _ in range(40)))
            stream = stage.stream(stage.position(), until_end=True)
            first = await stream.read()
            await stage.produce(stage.record(b"late"))
            rest = await stage.read(stream)
            offsets = [each.offset for response in [first, *rest] for each in response.records]
            assert offsets == list(range(40))

    run(story)


def test_responses_are_small_whatever_is_stored(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(compression_type="zstd")
            await stage.produce(*(stage.record(bytes(KIB)) for _ in range(4_000)))
            responses = await stage.fetch(stage.position(), until_end=True)
            assert sum(len(each.records) for each in responses) == 4_000
            assert max(each.ByteSize() for each in responses) <= RESPONSE_BYTES + 8 * KIB

    run(story)


@pytest.mark.parametrize(
    ("starts", "fields", "status", "name"),
    [
        ([], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([{}] * 2, {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([{"offset": -1}], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([{"offset": -(2**63)}], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([{"timestamp_ms": -2}], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([{"edge": 9}], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([{"partition": -1}], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([{}], {"isolation": 9}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        (
            [{"partition": at} for at in range(POSITIONS_MAX + 1)],
            {},
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_REQUEST",
        ),
        ([{"topic": "absent"}], {}, grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([{"topic": "a b"}], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
        ([{"partition": 1}], {}, grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([{"offset": 1}], {}, grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
        ([{"offset": 2**63 - 1}], {}, grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_a_stream_that_cannot_be_read_fails(
    bootstrap: str, starts: list[dict[str, Any]], fields: dict[str, int], status: grpc.StatusCode, name: str
) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stage.fetch(*(stage.position(**start) for start in starts), **fields)
            assert failed.value.code() is status
            assert failure_in(failed.value).name == name
            await stage.until(lambda: stage.service.stream_count == 0)

    run(story)


def test_one_partition_fails_and_the_others_are_read(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            await stage.produce(stage.record())
            asked = stage.position(topic="absent"), stage.position(), stage.position(1)
            responses = await stage.fetch(*asked, until_end=True)
            found = {(each.topic, each.partition): each for each in responses}
            assert found["absent", 0].failure.name == "UNKNOWN_TOPIC_OR_PARTITION"
            assert found[stage.topic, 1].failure.name == "UNKNOWN_TOPIC_OR_PARTITION"
            assert len(found[stage.topic, 0].records) == 1

    run(story)


def test_a_topic_that_is_deleted_ends_its_streams(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            await stage.produce(stage.record())
            stream = stage.stream(stage.position())
            assert len((await stream.read()).records) == 1
            await stage.admin.delete_topics([stage.topic])
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stage.read(stream)
            assert failed.value.code() is grpc.StatusCode.NOT_FOUND

    run(story)


# --- slow readers ------------------------------------------------------------------------------


def test_a_slow_reader_holds_little_and_loses_nothing(bootstrap: str) -> None:
    """It stops reading; what was read ahead for it is dropped; then it reads on and gets all."""

    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(compression_type="lz4")
            values = [b"%04d" % n + bytes(KIB) for n in range(2_000)]
            await stage.produce(*(stage.record(value) for value in values))
            budget = ByteBudget(2 * SECTION_BYTES_MAX)
            room = asyncio.Event()
            held_bytes = []
            seen: list[pb.FetchedRecord] = []

            async def write(data: bytes) -> None:
                held_bytes.append(budget.total_bytes - budget.free_bytes)
                await room.wait()
                seen.extend(pb.FetchResponse.FromString(data).records)

            fetcher = PartitionFetcher(stage.clients.stream_cluster("slow"), Isolation.READ_COMMITTED)
            with ThreadPoolExecutor(1) as threads:
                request = pb.FetchRequest(positions=[stage.position()], until_end=True)
                stream = FetchStream(
                    request, fetcher, write, stage.clock, budget=budget, threads=threads, stall_s=0.01
                )
                running = asyncio.ensure_future(stream.run())
                await stage.until(lambda: bool(held_bytes))
                assert held_bytes[0] > 500 * KIB  # its batch is open when the reader stops
                await stage.until(lambda: budget.free_bytes == budget.total_bytes)
                assert not running.done()
                room.set()
                assert await running is None
            assert [each.value for each in seen] == values

    run(story)


def test_a_reader_that_pauses_gets_everything_once(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap, stall_s=0) as stage:
            await stage.create(compression_type="lz4")
            values = [b"%05d" % n + bytes(KIB) for n in range(6_000)]
            await stage.produce(*(stage.record(value) for value in values))
            responses = await stage.fetch(stage.position(), until_end=True)
            assert [each.value for response in responses for each in response.records] == values

    run(story)


def test_a_reader_that_does_not_read_at_all_is_cut_off(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap, stall_s=0.01, write_timeout_s=0.05) as stage:
            await stage.create()
            for _ in range(2):
                await stage.produce(*(stage.record(bytes(MIB - 200)) for _ in range(10)))
            stream = stage.stream(stage.position())
            await stage.until(lambda: stage.service.stream_count == 1)
            await stage.until(lambda: stage.service.stream_count == 0)
            with pytest.raises(grpc.aio.AioRpcError) as cut:
                await stage.read(stream)
            assert cut.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(story)


def test_streams_beyond_the_limit_are_refused_and_find_room_later(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap, streams_max=2) as stage:
            await stage.create()
            streams = [stage.stream(stage.position()) for _ in range(2)]
            await stage.until(lambda: stage.service.stream_count == 2)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.fetch(stage.position())
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            streams[0].cancel()
            await stage.until(lambda: stage.service.stream_count == 1)
            assert await stage.values(stage.position(), until_end=True) == []
            streams[1].cancel()

    run(story)
