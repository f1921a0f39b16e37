"""Produce through the gateway: into the same logs, by the same rules, as Kafka's clients."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from distributedlog.broker.addresses import Endpoint as Address
from distributedlog.broker.gateway.failures import STATUS_DETAILS_KEY
from distributedlog.client.partitioner import partition_of
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.control.options import MESSAGE_BYTES_MAX
from distributedlog.model.error_codes import ErrorCode
from tests.unit.broker.gateway.stage import GatewayStage, failure_in, position, record, run
from tests.unit.broker.partition_stage import ME, OTHER


def test_records_are_read_back_as_they_were_produced(tmp_path: Path) -> None:
    asked = [
        record(value=b"value", key=b"key", timestamp_ms=1_700_000_000_000),
        record(value=b"", key=b""),
        record(value=None, key=b"gone"),
        record(value=b"no key"),
        record(
            value=b"headers",
            headers=[pb.RecordHeader(key="a", value=b""), pb.RecordHeader(key="a"), pb.RecordHeader(key="ü")],
        ),
    ]

    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            results = await stage.produce(*asked)
            assert [(each.partition, each.offset) for each in results] == [(0, at) for at in range(5)]
            assert results[0].timestamp_ms == 1_700_000_000_000
            (response,) = await stage.fetch(position(), until_end=True)
            assert response.high_watermark == response.next_offset == 5
            for wanted, got, result in zip(asked, response.records, results, strict=True):
                for name in ("key", "value"):
                    assert got.HasField(name) == wanted.HasField(name)
                    assert getattr(got, name) == getattr(wanted, name)
                assert list(got.headers) == list(wanted.headers)
                assert (got.offset, got.timestamp_ms) == (result.offset, result.timestamp_ms)

    run(story)


@pytest.mark.parametrize("acks", [pb.ACKS_ALL, pb.ACKS_LEADER])
def test_a_key_has_its_partition_and_results_stand_in_the_order_of_records(
    tmp_path: Path, acks: pb.Acks
) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", 3)
            keys = [b"%d" % n for n in range(30)]
            results = await stage.produce(*(record(key=key) for key in keys), acks=acks)
            assert [each.partition for each in results] == [partition_of(key, 3) for key in keys]
            for partition_id in range(3):
                offsets = [each.offset for each in results if each.partition == partition_id]
                assert offsets == list(range(len(offsets)))

    run(story)


def test_a_call_larger_than_a_batch_may_be_keeps_its_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.configure("t", "max.message.bytes", "1000")
            asked = [b"%03d" % n + bytes(200) for n in range(50)]
            results = await stage.produce(*(record(value=value) for value in asked))
            assert [each.offset for each in results] == list(range(50))
            assert await stage.values(position(), until_end=True) == asked

    run(story)


def test_one_record_that_is_too_large_is_refused_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.configure("t", "max.message.bytes", "1000")
            small, large, last = await stage.produce(record(), record(value=bytes(2000)), record())
            assert (small.offset, last.offset) == (0, 1)
            assert not small.HasField("failure")
            assert large.failure.name == "MESSAGE_TOO_LARGE"
            assert not large.failure.outcome_unknown
            assert large.offset == -1

    run(story)


def test_topics_fail_each_for_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            good, absent, bad, beyond = await stage.produce(
                record(), record("absent"), record("a/b"), record(partition=1)
            )
            assert not good.HasField("failure")
            assert absent.failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert bad.failure.code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert beyond.failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story)


@pytest.mark.parametrize(
    ("asked", "status", "name"),
    [
        (record("absent"), grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        (record(""), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
        (record("x" * 250), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
        (record(".."), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
        (record(partition=-1), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        (record(partition=2**31 - 1), grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        (record(timestamp_ms=-5), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        (record(timestamp_ms=2**62), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TIMESTAMP"),
        (record(value=bytes(2 << 20)), grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE"),
        (record("__consumer_offsets"), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_a_call_that_failed_as_a_whole_says_so_by_its_status(
    tmp_path: Path, asked: pb.ProduceRecord, status: grpc.StatusCode, name: str
) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.create("__consumer_offsets")
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stage.produce(asked, asked)
            assert failed.value.code() is status
            assert str(failed.value.details()).startswith(f"{name} (")
            told = failure_in(failed.value)
            assert told.name == name
            details = pb.StatusDetails.FromString(dict(failed.value.trailing_metadata())[STATUS_DETAILS_KEY])
            assert details.code == status.value[0]
            assert pb.Failure.FromString(details.details[0].value) == told
            assert stage.partition("t").log_end_offset == 0

    run(story)


def test_bytes_that_are_no_message_and_messages_that_are_too_large_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            raw: Any = stage.channel.unary_unary("/dlog.v1.BrokerService/Produce")
            with pytest.raises(grpc.aio.AioRpcError) as garbled:
                await raw(b"\xff" * 20)
            assert garbled.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError) as oversize:
                await raw(bytes(MESSAGE_BYTES_MAX + 1))
            assert oversize.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(story)


def test_a_partition_that_is_led_elsewhere_says_where(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.register(OTHER, Address("elsewhere", 9094))
            await stage.create("replica", replicas=(ME, OTHER), leader=OTHER, epoch=4)
            await stage.create("stranger", replicas=(OTHER,), leader=OTHER, epoch=6)
            for topic, epoch in (("replica", 4), ("stranger", 6)):
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await stage.produce(record(topic))
                assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                told = failure_in(failed.value)
                assert told.name == "NOT_LEADER_OR_FOLLOWER"
                assert told.leader == pb.Leader(broker_id=OTHER, leader_epoch=epoch, gateway="elsewhere:9094")

    run(story)


def test_records_without_a_key_go_to_partitions_that_are_led_here(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", 2)
            await stage.change("t", leader=OTHER, replicas=[ME, OTHER], isr=[ME, OTHER])
            results = await stage.produce(*(record(value=bytes(10_000)) for _ in range(10)))
            assert {each.partition for each in results} == {1}

    run(story)


def test_an_acknowledgement_that_does_not_come_leaves_the_outcome_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", replicas=(ME, OTHER))
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await stage.produce(record(), timeout_ms=50)
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            told = failure_in(late.value)
            assert (told.name, told.outcome_unknown) == ("REQUEST_TIMED_OUT", True)
            assert stage.partition("t").log_end_offset == 1
            # The leader's word is enough for who asks for no more.
            (result,) = await stage.produce(record(), acks=pb.ACKS_LEADER)
            assert result.offset == 1

    run(story)


def test_a_leader_that_is_deposed_while_a_call_waits_leaves_its_outcome_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", replicas=(ME, OTHER))
            call = asyncio.ensure_future(stage.produce(record()))
            await stage.until(lambda: stage.delayed.parked_count == 1)
            await stage.change("t", leader=OTHER)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            told = failure_in(failed.value)
            assert (told.name, told.outcome_unknown) == ("NOT_LEADER_OR_FOLLOWER", True)
            assert told.leader.broker_id == OTHER

    run(story)


def test_a_caller_that_goes_away_leaves_nothing_parked(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t", 2, replicas=(ME, OTHER))
            await stage.configure("t", "max.message.bytes", "200")
            two_batches = [record(partition=0, value=bytes(100))] * 2
            calls = [stage.call_produce(pb.ProduceRequest(records=two_batches)) for _ in range(5)]
            await stage.until(lambda: stage.delayed.parked_count == 10)
            for call in calls:
                call.cancel()
            await stage.until(lambda: stage.delayed.parked_count == 0)
            # The same by a deadline.
            late = stage.call_produce(pb.ProduceRequest(records=[record(partition=0)]), timeout=0.05)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await late
            assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await stage.until(lambda: stage.delayed.parked_count == 0)

    run(story)


def test_more_than_may_be_under_way_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path, produce_bytes_max=1000) as stage:
            await stage.create("t", replicas=(ME, OTHER))
            waiting = asyncio.ensure_future(stage.produce(record(value=bytes(600))))
            await stage.until(lambda: stage.delayed.parked_count == 1)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.produce(record(value=bytes(600)))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert failure_in(refused.value).retriable
            await stage.change("t", isr=[ME])
            assert [each.offset for each in await waiting] == [0]
            (after,) = await stage.produce(record(value=bytes(600)))
            assert after.offset == 1

    run(story)


def test_a_topic_that_stamps_records_itself_says_when(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.configure("t", "message.timestamp.type", "LogAppendTime")
            before_ms = stage.clock.wall_ms()
            (result,) = await stage.produce(record(timestamp_ms=5))
            assert result.timestamp_ms >= before_ms
            (response,) = await stage.fetch(position(), until_end=True)
            assert response.records[0].timestamp_ms == result.timestamp_ms

    run(story)


def test_calls_are_counted_like_requests(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await stage.produce(record(), record())
            await stage.fetch(position(), until_end=True)
            with pytest.raises(grpc.aio.AioRpcError):
                await stage.produce(record("absent"))

            def now() -> dict[tuple[str, ...], object]:
                return {
                    (family.name, *sample.labels.values()): sample.value
                    for family in stage.metrics.families()
                    for sample in family.samples
                }

            # A call is counted once it is answered, on the other loop.
            await stage.until(lambda: now().get(("dlog_requests", "GatewayProduce")) == 2)
            await stage.until(lambda: now().get(("dlog_requests", "GatewayFetch")) == 1)
            counted = now()
            assert counted["dlog_requests", "GatewayFetch"] == 1
            assert counted["dlog_request_errors", "GatewayProduce", "3"] == 1
            assert counted["dlog_topic_records_in", "t"] == 2

    run(story)
