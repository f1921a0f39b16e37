"""Quotas in the gateway: writers are held back, then refused; readers wait; and all of it counts together."""

import asyncio
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from distributedlog.broker.gateway import streams
from distributedlog.broker.gateway.charging import CLIENT_ID, CLIENT_ID_KEY, HOLD_MS_MAX, Caller
from distributedlog.broker.gateway.failures import PUSHBACK_KEY
from distributedlog.broker.handlers.produce import ADMIN_CLIENT_ID
from distributedlog.broker.quotas import BURST_MS
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.controller import quotas
from distributedlog.controller.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from distributedlog.groups.placement import OFFSETS_TOPIC
from distributedlog.model.error_codes import ErrorCode
from tests.unit.broker.gateway.stage import GatewayStage, failure_in, position, record, run

RATE = 10_000.0
BURST_BYTES = int(RATE * BURST_MS / 1000)
"""So much may be used at once."""
ANONYMOUS = "User:ANONYMOUS"


def limit(stage: GatewayStage, key: str, rate: float, client_id: str | None = None) -> None:
    """For one client id, or for each."""
    stage.quotas.follow({((quotas.CLIENT_ID, client_id),): {key: rate}})


async def write(stage: GatewayStage, size_bytes: int, client_id: str = CLIENT_ID, **call: Any) -> None:
    request = pb.ProduceRequest(records=[record(value=bytes(size_bytes))])
    await stage.call_produce(request, metadata=((CLIENT_ID_KEY, client_id),), **call)


def owe(stage: GatewayStage, size_bytes: int) -> None:
    """So much more than may be used at once was written a moment ago."""
    account = stage.quotas.account(ANONYMOUS, CLIENT_ID)
    stage.quotas.charge(account.produced, BURST_BYTES + size_bytes, stage.clock.monotonic_ms())


def end_of(stage: GatewayStage) -> int:
    return stage.partition("t").log_end_offset


def test_a_writer_that_used_up_its_quota_is_refused_and_told_when_to_come_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            limit(stage, PRODUCER_BYTE_RATE, RATE)
            await write(stage, BURST_BYTES + 100_000, "greedy")
            with pytest.raises(grpc.RpcError) as caught:
                await write(stage, 1, "greedy")
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            told = failure_in(caught.value)
            assert (told.code, told.retriable) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True)
            trailing = dict(cast(Any, caught.value).trailing_metadata())
            assert HOLD_MS_MAX < int(trailing[PUSHBACK_KEY]) <= 10_100
            assert end_of(stage) == 1, "what is refused was not done"
            await write(stage, 1, "modest")
            assert end_of(stage) == 2, "it is another client's quota"

    run(story)


def test_a_writer_that_is_a_little_too_fast_only_becomes_slower(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            limit(stage, PRODUCER_BYTE_RATE, RATE, CLIENT_ID)
            began_ms = stage.clock.monotonic_ms()
            owe(stage, 2_000)
            await stage.produce(record())  # without a client id it is the gateway's
            assert stage.clock.monotonic_ms() - began_ms >= 200
            assert end_of(stage) == 1

    run(story)


def test_a_writer_is_not_held_back_longer_than_it_waits(tmp_path: Path) -> None:
    """It would not learn why, and not whether it was done."""

    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            limit(stage, PRODUCER_BYTE_RATE, RATE)
            await write(stage, 1)
            owe(stage, 9_500)
            with pytest.raises(grpc.RpcError) as caught:
                await write(stage, 1, timeout=0.5)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(story)


def test_of_writers_that_wait_together_each_pays_before_the_next_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            limit(stage, PRODUCER_BYTE_RATE, RATE)
            owe(stage, 1_000)
            writing = [write(stage, 20_000) for _ in range(5)]
            refused = [each for each in await asyncio.gather(*writing, return_exceptions=True) if each]
            assert len(refused) == 4
            assert end_of(stage) == 1

    run(story)


def test_what_is_written_to_no_topic_is_charged_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            limit(stage, PRODUCER_BYTE_RATE, RATE)
            astray = pb.ProduceRequest(records=[record("nowhere", bytes(BURST_BYTES + 100_000))])
            for expected in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED):
                with pytest.raises(grpc.RpcError) as caught:
                    await stage.call_produce(astray)
                assert caught.value.code() is expected

    run(story)


def test_what_a_caller_calls_itself_opens_no_internal_topic(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create(OFFSETS_TOPIC)
            request = pb.ProduceRequest(records=[record(OFFSETS_TOPIC)])
            with pytest.raises(grpc.RpcError) as caught:
                await stage.call_produce(request, metadata=((CLIENT_ID_KEY, ADMIN_CLIENT_ID),))
            assert failure_in(caught.value).code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert stage.partition(OFFSETS_TOPIC).log_end_offset == 0

    run(story)


def test_a_client_id_too_long_for_a_quota_has_nobodys(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            longest = "c" * quotas.NAME_LENGTH_MAX
            limit(stage, PRODUCER_BYTE_RATE, 1.0, longest)
            for _ in range(2):
                await write(stage, 1_000, longest + "c")
            await write(stage, 1_000, longest)
            with pytest.raises(grpc.RpcError):
                await write(stage, 1_000, longest)

    run(story)


def test_what_kafkas_protocol_used_counts_here_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            limit(stage, PRODUCER_BYTE_RATE, RATE)
            account = stage.quotas.account(ANONYMOUS, "both")
            stage.quotas.charge(account.produced, 2 * BURST_BYTES, stage.clock.monotonic_ms())
            with pytest.raises(grpc.RpcError):
                await write(stage, 1, "both")

    run(story)


def test_the_time_that_handling_took_is_charged(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            limit(stage, REQUEST_PERCENTAGE, 0.000_001)
            await write(stage, 1, "busy")
            assert stage.quotas.throttled[REQUEST_PERCENTAGE].times == 1
            await stage.values(position(), until_end=True)
            owed_ms = await stage.bridge.pay_to_produce(Caller("here"), 0)
            assert owed_ms > 0, "the reader was the gateway's own"

    run(story)


def test_a_reader_that_used_up_its_quota_waits_until_it_may_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "QUOTA_WAIT_MS_MAX", 10)

    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            for _ in range(3):
                await write(stage, 1_000_000)
            limit(stage, CONSUMER_BYTE_RATE, RATE, "slow")
            stream = stage.stream(position(), until_end=True, max_wait_ms=50, client_id="slow")
            assert len((await stream.read()).records) == 1
            await stage.until(lambda: CONSUMER_BYTE_RATE in stage.quotas.throttled)
            read_on = stage.stream(position(), until_end=True, client_id="other")
            assert len(await stage.read(read_on)) == 3, "others do not wait"
            limit(stage, CONSUMER_BYTE_RATE, 1e9, "slow")
            assert len(await stage.read(stream)) == 2, "the wait was no end of it"

    run(story)


def test_what_a_stream_sent_last_is_charged_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            await write(stage, 2 * BURST_BYTES)
            limit(stage, CONSUMER_BYTE_RATE, RATE)
            assert len(await stage.fetch(position(), until_end=True)) == 1
            await stage.until(lambda: CONSUMER_BYTE_RATE in stage.quotas.throttled)

    run(story)
