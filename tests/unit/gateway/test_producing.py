"""Produce through the gateway: into the same logs, by the same rules, as Kafka's clients."""

import asyncio
from typing import Any

import grpc
import pytest

from distributedlog.client.partitioner import partition_of
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.failures import STATUS_DETAILS_KEY
from distributedlog.gateway.options import MESSAGE_BYTES_MAX
from distributedlog.model.error_codes import ErrorCode
from tests.unit.gateway.stage import GatewayStage, failure_in, run


def test_records_are_read_back_as_they_were_produced(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            asked = [
                stage.record(b"value", key=b"key", timestamp_ms=1_700_000_000_000),
                stage.record(b"", key=b""),
                stage.record(None, key=b"gone"),
                stage.record(b"no key"),
                stage.record(
                    b"headers",
                    headers=[
                        pb.RecordHeader(key="a", value=b""),
                        pb.RecordHeader(key="a"),
                        pb.RecordHeader(key="ü"),
                    ],
                ),
            ]
            results = await stage.produce(*asked)
            assert [(each.partition, each.offset) for each in results] == [(0, at) for at in range(5)]
            assert results[0].timestamp_ms == 1_700_000_000_000
            (response,) = await stage.fetch(stage.position(), until_end=True)
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
    bootstrap: str, acks: pb.Acks
) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(3)
            keys = [b"%d" % n for n in range(30)]
            results = await stage.produce(*(stage.record(key=key) for key in keys), acks=acks)
            assert [each.partition for each in results] == [partition_of(key, 3) for key in keys]
            for partition_id in range(3):
                offsets = [each.offset for each in results if each.partition == partition_id]
                assert offsets == list(range(len(offsets)))

    run(story)


def test_a_call_larger_than_the_topic_takes_in_one_batch_keeps_its_order(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(max_message_bytes="1000")
            asked = [b"%03d" % n + bytes(200) for n in range(50)]
            results = await stage.produce(*(stage.record(value) for value in asked))
            assert [each.offset for each in results] == list(range(50))
            assert await stage.values(stage.position(), until_end=True) == asked

    run(story)


def test_one_record_that_is_too_large_is_refused_alone(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(max_message_bytes="1000")
            records = stage.record(), stage.record(bytes(2000)), stage.record()
            small, large, last = await stage.produce(*records)
            assert (small.offset, last.offset) == (0, 1)
            assert not small.HasField("failure")
            assert large.failure.name == "MESSAGE_TOO_LARGE"
            assert not large.failure.outcome_unknown
            assert large.offset == -1

    run(story)


def test_topics_fail_each_for_itself(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            good, absent, bad, beyond = await stage.produce(
                stage.record(),
                stage.record(topic="absent"),
                stage.record(topic="a/b"),
                stage.record(partition=1),
            )
            assert not good.HasField("failure")
            assert absent.failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert bad.failure.code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert beyond.failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story)


@pytest.mark.parametrize(
    ("fields", "status", "name"),
    [
        ({"topic": "absent"}, grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": ""}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": "x" * 250}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": ".."}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TOPIC_EXCEPTION"),
        ({"partition": -1}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ({"partition": 2**31 - 1}, grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"timestamp_ms": -5}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ({"timestamp_ms": 2**62}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TIMESTAMP"),
        ({"value": bytes(2 << 20)}, grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE"),
    ],
)
def test_a_call_that_failed_as_a_whole_says_so_by_its_status(
    bootstrap: str, fields: dict[str, Any], status: grpc.StatusCode, name: str
) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            asked = stage.record(**fields)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stage.produce(asked, asked)
            assert failed.value.code() is status
            assert str(failed.value.details()).startswith(f"{name} (")
            failure = failure_in(failed.value)
            assert failure.name == name
            details = pb.StatusDetails.FromString(dict(failed.value.trailing_metadata())[STATUS_DETAILS_KEY])
            assert details.code == status.value[0]
            assert pb.Failure.FromString(details.details[0].value) == failure
            assert await stage.values(stage.position(), until_end=True) == []

    run(story)


def test_bytes_that_are_no_message_and_messages_that_are_too_large_are_refused(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            raw: Any = stage.channel.unary_unary("/dlog.v1.BrokerService/Produce")
            with pytest.raises(grpc.aio.AioRpcError) as garbled:
                await raw(b"\xff" * 20)
            assert garbled.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError) as oversize:
                await raw(bytes(MESSAGE_BYTES_MAX + 1))
            assert oversize.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(story)


def test_an_acknowledgement_that_does_not_come_leaves_the_outcome_open(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            await stage.throttle(f"greedy-{stage.topic}")
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await stage.produce(stage.record(), timeout_ms=50, client_id=f"greedy-{stage.topic}")
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            failure = failure_in(late.value)
            assert (failure.name, failure.outcome_unknown) == ("REQUEST_TIMED_OUT", True)
            # A client that is throttled slows nobody else down.
            (result,) = await stage.produce(stage.record(), client_id="modest")
            assert result.offset == 1

    run(story)


def test_more_than_may_be_in_flight_is_refused(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap, produce_bytes_max=250_000) as stage:
            await stage.create()
            greedy = f"greedy-{stage.topic}"
            await stage.throttle(greedy)
            waiting = asyncio.ensure_future(stage.produce(stage.record(bytes(150_000)), client_id=greedy))
            await stage.until(lambda: stage.clients.call_count == 1)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.produce(stage.record(bytes(150_000)))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert failure_in(refused.value).retriable
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await stage.until(lambda: stage.clients.call_count == 0)
            assert [each.offset for each in await stage.produce(stage.record(bytes(150_000)))] == [1]

    run(story)


def test_client_ids_that_are_connected_are_bounded(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap, clients_max=2) as stage:
            await stage.create()
            for name in ("a", "b", "c"):
                await stage.produce(stage.record(), client_id=name)
            assert len(stage.clients) == 2
            greedy = [f"{name}-{stage.topic}" for name in ("x", "y")]
            for name in greedy:
                await stage.throttle(name)
            busy = [asyncio.ensure_future(stage.produce(stage.record(), client_id=name)) for name in greedy]
            await stage.until(lambda: stage.clients.call_count == 2)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.produce(stage.record(), client_id="d")
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            for each in busy:
                each.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            await stage.until(lambda: stage.clients.call_count == 0)
            assert (await stage.produce(stage.record(), client_id="d"))[0].offset == 5

    run(story)


def test_a_topic_that_stamps_records_itself_says_when(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create(message_timestamp_type="LogAppendTime")
            before_ms = stage.clock.wall_ms()
            (result,) = await stage.produce(stage.record(timestamp_ms=5))
            assert result.timestamp_ms >= before_ms
            (response,) = await stage.fetch(stage.position(), until_end=True)
            assert response.records[0].timestamp_ms == result.timestamp_ms

    run(story)
