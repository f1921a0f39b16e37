"""Fetch through the gateway: every record once, from where it was asked, for as long as it is read."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from distributedlog.broker.addresses import Endpoint as Address
from distributedlog.broker.gateway.budget import ByteBudget
from distributedlog.broker.gateway.charging import Caller
from distributedlog.broker.gateway.reading import SECTION_BYTES_MAX, SLICE_RECORDS
from distributedlog.broker.gateway.streams import POSITIONS_MAX, RESPONSE_BYTES, FetchStream
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.model.config import KIB, MIB
from distributedlog.records.compression import Codec
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.append import Origin
from tests.unit.broker.gateway.stage import GatewayStage, failure_in, position, record, run
from tests.unit.broker.partition_stage import ME, OTHER


def batch(*values: bytes, codec: Codec = Codec.NONE, at_ms: int | None = None) -> bytearray:
    records = [Record(value, timestamp_ms=-1 if at_ms is None else at_ms) for value in values]
    return encode_batch(records, codec=codec, default_timestamp_ms=1_000)


@pytest.mark.parametrize("codec", Codec)
def test_what_kafkas_clients_wrote_is_read_whatever_it_is_compressed_with(
    tmp_path: Path, codec: Codec
) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            values = [b"%d " % n * 50 for n in range(2 * SLICE_RECORDS)]
            await stage.append("t", batch(*values[:7], codec=codec), batch(*values[7:], codec=codec))
            assert await stage.values(position(), until_end=True) == values
            assert await stage.values(position(offset=900), until_end=True) == values[900:]

    run(story)


def test_a_stream_begins_where_it_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.append("t", *(batch(b"%d" % n, at_ms=n * 100) for n in range(5)))
            values = [b"0", b"1", b"2", b"3", b"4"]
            expected = [
                (position(), values),
                (position(edge=pb.EARLIEST), values),
                (position(edge=pb.LATEST), []),
                (position(offset=3), values[3:]),
                (position(offset=5), []),
                (position(timestamp_ms=150), values[2:]),
                (position(timestamp_ms=200), values[2:]),
                (position(timestamp_ms=0), values),
                (position(timestamp_ms=401), []),
            ]
            for asked, found in expected:
                assert await stage.values(asked, until_end=True) == found, asked

    run(story)


def test_a_stream_follows_what_comes(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", 2)
            await stage.produce(record(value=b"before", partition=0))
            stream = stage.stream(position(edge=pb.LATEST), position(partition=1, timestamp_ms=2**60))
            await stage.until(lambda: stage.delayed.parked_count == 1)
            for number, partition_id in enumerate([0, 1, 1, 0]):
                await stage.produce(record(value=b"%d" % number, partition=partition_id))
                response = await stream.read()
                assert (response.partition, [each.value for each in response.records]) == (
                    partition_id,
                    [b"%d" % number],
                )
            stream.cancel()

    run(story)


def test_a_caller_that_goes_away_leaves_nothing_parked_and_no_stream(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", 3)
            streams = [stage.stream(*(position(partition=at) for at in range(3))) for _ in range(10)]
            await stage.until(lambda: stage.delayed.parked_count == 10)
            assert stage.service.stream_count == 10
            for stream in streams:
                stream.cancel()
            await stage.until(lambda: stage.delayed.parked_count == 0 and stage.service.stream_count == 0)

    run(story)


def test_a_stream_ends_at_its_bounds(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", 2)
            values = [b"%02d" % n for n in range(20)]
            for partition_id in range(2):
                await stage.append("t", *(batch(value) for value in values), partition_id=partition_id)
            assert await stage.values(position(), records_max=7) == values[:7]
            assert await stage.values(position(offset=3), bytes_max=7) == values[3:7]
            assert await stage.values(position(offset=15), max_wait_ms=50) == values[15:]
            both = await stage.values(position(), position(partition=1), records_max=30)
            assert len(both) == 30
            (response,) = await stage.fetch(position(), records_max=4)
            assert response.next_offset == 4
            assert stage.delayed.parked_count == 0

    run(story)


def test_where_nobody_can_be_parked_a_stream_does_not_ask_without_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path, parked_max=0) as stage:
            await stage.create("t")
            asked = 0
            fetch = stage.bridge.fetch

            async def counted(*arguments: Any) -> Any:
                nonlocal asked
                asked += 1
                return await fetch(*arguments)

            monkeypatch.setattr(stage.bridge, "fetch", counted)
            assert await stage.values(position(), max_wait_ms=100) == []
            assert 1 <= asked <= 6

    run(story)


def test_a_stream_ends_where_the_partition_ended_when_it_began(tmp_path: Path) -> None:
    """What comes while it is read is not its concern, also within one batch of another client."""

    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.append("t", *(batch(bytes(100 * KIB)) for _ in range(40)))
            stream = stage.stream(position(), until_end=True)
            first = await stream.read()
            await stage.append("t", batch(b"late"))
            rest = await stage.read(stream)
            offsets = [each.offset for response in [first, *rest] for each in response.records]
            assert offsets == list(range(40))

    run(story)


def test_responses_are_small_whatever_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.append("t", batch(*[bytes(KIB)] * 4_000, codec=Codec.ZSTD))
            responses = await stage.fetch(position(), until_end=True)
            assert sum(len(each.records) for each in responses) == 4_000
            assert max(each.ByteSize() for each in responses) <= RESPONSE_BYTES + 8 * KIB

    run(story)


def test_aborted_transactions_are_shown_only_to_who_asks_for_them(tmp_path: Path) -> None:
    def transaction(value: bytes, sequence: int) -> bytearray:
        return encode_batch(
            [Record(value)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
            default_timestamp_ms=1_000,
        )

    def marker(kind: ControlType) -> bytearray:
        return encode_end_marker_batch(
            EndMarker(kind, 0), producer_id=7, producer_epoch=0, timestamp_ms=1_000
        )

    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.append("t", transaction(b"aborted", 0))
            await stage.append("t", marker(ControlType.ABORT), origin=Origin.COORDINATOR)
            assert await stage.values(position(), until_end=True) == []
            await stage.append("t", transaction(b"committed", 1))
            await stage.append("t", marker(ControlType.COMMIT), origin=Origin.COORDINATOR)
            await stage.append("t", transaction(b"open", 2))
            assert await stage.values(position(), until_end=True) == [b"committed"]
            everything = await stage.values(position(), until_end=True, isolation=pb.READ_UNCOMMITTED)
            assert everything == [b"aborted", b"committed", b"open"]

    run(story)


@pytest.mark.parametrize(
    ("asked", "fields", "status", "name"),
    [
        ([], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([position()] * 2, {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([position(offset=-1)], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([position(offset=-(2**63))], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([position(timestamp_ms=-2)], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([position(edge=9)], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([position(partition=-1)], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ([position()], {"isolation": 9}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        (
            [position(partition=at) for at in range(POSITIONS_MAX + 1)],
            {},
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_REQUEST",
        ),
        ([position("absent")], {}, grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([position("a b")], {}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
        ([position(partition=1)], {}, grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([position(offset=1)], {}, grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
        ([position(offset=2**63 - 1)], {}, grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_a_stream_that_cannot_be_read_fails(
    tmp_path: Path, asked: list[pb.FetchPosition], fields: dict[str, int], status: grpc.StatusCode, name: str
) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stage.fetch(*asked, **fields)
            assert failed.value.code() is status
            assert failure_in(failed.value).name == name
            await stage.until(lambda: stage.service.stream_count == 0)

    run(story)


def test_one_partition_fails_and_the_others_are_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.produce(record())
            responses = await stage.fetch(position("absent"), position(), position("t", 1), until_end=True)
            told = {(each.topic, each.partition): each for each in responses}
            assert told["absent", 0].failure.name == "UNKNOWN_TOPIC_OR_PARTITION"
            assert told["t", 1].failure.name == "UNKNOWN_TOPIC_OR_PARTITION"
            assert len(told["t", 0].records) == 1

    run(story)


def test_a_partition_that_is_led_elsewhere_says_where(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.register(OTHER, Address("elsewhere", 9094))
            await stage.create("t", replicas=(OTHER,), leader=OTHER, epoch=6)
            for asked in (position(), position(offset=0)):
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await stage.fetch(asked)
                assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                leader = pb.Leader(broker_id=OTHER, leader_epoch=6, gateway="elsewhere:9094")
                assert failure_in(failed.value).leader == leader

    run(story)


def test_a_topic_that_is_deleted_ends_its_streams(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            stream = stage.stream(position())
            await stage.until(lambda: stage.delayed.parked_count == 1)
            await stage.remove("t")
            await stage.create("other")
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stage.read(stream)
            assert failure_in(failed.value).name == "UNKNOWN_TOPIC_ID"
            assert failed.value.code() is grpc.StatusCode.NOT_FOUND

    run(story)


def test_a_leader_that_is_deposed_still_reads_what_is_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", replicas=(ME, OTHER))
            await stage.change("t", isr=[ME])
            stream = stage.stream(position())
            await stage.produce(record(value=b"committed"))
            assert [each.value for each in (await stream.read()).records] == [b"committed"]
            await stage.change("t", leader=OTHER)
            assert await stage.values(position(offset=0), records_max=1) == [b"committed"]
            stream.cancel()

    run(story)


def test_damage_on_the_disk_is_told_and_not_passed_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.append("t", batch(b"sound"), batch(b"damaged"))
            path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
            content = path.read_bytes()
            path.write_bytes(content[:-2] + b"!" + content[-1:])
            stream = stage.stream(position(), until_end=True)
            assert [each.value for each in (await stream.read()).records] == [b"sound"]
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stage.read(stream)
            assert failed.value.code() is grpc.StatusCode.DATA_LOSS

    run(story)


def test_a_record_larger_than_a_message_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.append("t", batch(bytes(17 * MIB), codec=Codec.ZSTD))
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stage.fetch(position(), until_end=True)
            assert failure_in(failed.value).name == "MESSAGE_TOO_LARGE"

    run(story)


# --- slow readers ------------------------------------------------------------------------------


def test_a_slow_reader_holds_little_and_loses_nothing(tmp_path: Path) -> None:
    """It stops reading; what was read ahead for it is dropped; then it reads on and gets all."""

    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            values = [b"%04d" % n + bytes(KIB) for n in range(2_000)]
            await stage.append("t", batch(*values[:1_000], codec=Codec.LZ4), batch(*values[1_000:]))
            budget = ByteBudget(2 * SECTION_BYTES_MAX)
            room = asyncio.Event()
            held_bytes = []
            seen: list[pb.FetchedRecord] = []

            async def write(data: bytes) -> None:
                held_bytes.append(budget.total_bytes - budget.free_bytes)
                await room.wait()
                seen.extend(pb.FetchResponse.FromString(data).records)

            with ThreadPoolExecutor(1) as threads:
                request = pb.FetchRequest(positions=[position()], until_end=True)
                stream = FetchStream(
                    request, stage.bridge, write, Caller(""), budget=budget, threads=threads, stall_s=0.01
                )
                running = asyncio.ensure_future(stream.run())
                await stage.until(lambda: bool(held_bytes))
                assert held_bytes[0] > 1_000 * KIB  # its batch is open when the reader stops
                await stage.until(lambda: budget.free_bytes == budget.total_bytes)
                assert not running.done()
                room.set()
                assert await running is None
            assert [each.value for each in seen] == values

    run(story)


def test_a_reader_that_pauses_gets_everything_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path, stall_s=0) as stage:
            await stage.create("t")
            values = [b"%05d" % n + bytes(KIB) for n in range(6_000)]
            await stage.append(
                "t", *(batch(*values[at : at + 1_000], codec=Codec.LZ4) for at in range(0, 6_000, 1_000))
            )
            responses = await stage.fetch(position(), until_end=True)
            assert [each.value for response in responses for each in response.records] == values

    run(story)


def test_a_reader_that_does_not_read_at_all_is_cut_off(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path, stall_s=0.01, write_timeout_s=0.05) as stage:
            await stage.create("t")
            await stage.append("t", *(batch(bytes(MIB - 200)) for _ in range(20)))
            stream = stage.stream(position())
            await stage.until(lambda: stage.service.stream_count == 1)
            await stage.until(lambda: stage.service.stream_count == 0)
            with pytest.raises(grpc.aio.AioRpcError) as cut:
                await stage.read(stream)
            assert cut.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(story)


def test_streams_beyond_the_limit_are_refused_and_find_room_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path, streams_max=2) as stage:
            await stage.create("t")
            streams = [stage.stream(position()) for _ in range(2)]
            await stage.until(lambda: stage.service.stream_count == 2)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.fetch(position())
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            streams[0].cancel()
            await stage.until(lambda: stage.service.stream_count == 1)
            assert await stage.values(position(), until_end=True) == []
            streams[1].cancel()

    run(story)
