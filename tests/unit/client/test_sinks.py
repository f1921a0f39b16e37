"""The client's half of a sink: what it asks, whom, and what it makes of the answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from distributedlog.client.accumulator import Identity
from distributedlog.client.metadata import Cluster
from distributedlog.client.producer import Producer, ProducerOptions
from distributedlog.client.sinks import Sink, SinkLease, offers_sinks
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DlogError,
    InvalidTransactionStateError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorResponse,
)
from distributedlog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from distributedlog.protocol.messages.sink_transaction import (
    SinkOperation,
    SinkTransactionRequest,
    SinkTransactionResponse,
)
from distributedlog.records.batch import read_header
from distributedlog.records.record import Record
from tests.unit.client.stage import QUICK, ScriptedBroker, run

SINK_ID = "dlog.sink/q"
PATIENCE_MS = 200


def begin(broker: ScriptedBroker, *responses: SinkTransactionResponse) -> list[SinkTransactionRequest]:
    """Has the broker coordinate sinks, and answer with these, one after the other."""
    asked: list[SinkTransactionRequest] = []
    left = list(responses)

    def answer(request: Any, _version: int) -> SinkTransactionResponse:
        asked.append(request)
        return left.pop(0)

    def find(request: Any, _version: int) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        assert key == SINK_ID
        host, port = broker.address
        here = Coordinator(key=key, node_id=0, host=host, port=port, error_message=None)
        return FindCoordinatorResponse(coordinators=[here])

    broker.versions |= {ApiKey.SINK_TRANSACTION: (0, 0), ApiKey.FIND_COORDINATOR: (0, 6)}
    broker.answers |= {ApiKey.SINK_TRANSACTION: answer, ApiKey.FIND_COORDINATOR: find}
    return asked


def tell(story: Callable[[ScriptedBroker, Cluster], Awaitable[None]]) -> None:
    with ScriptedBroker().running() as broker:

        async def told() -> None:
            async with Cluster([broker.address], QUICK) as cluster:
                await story(broker, cluster)

        run(told())


def response(code: ErrorCode = ErrorCode.NONE, **fields: Any) -> SinkTransactionResponse:
    return SinkTransactionResponse(error_code=code, attempts=[], **fields)


def test_a_join_is_sent_again_while_the_batch_before_is_ended() -> None:
    async def story(broker: ScriptedBroker, cluster: Cluster) -> None:
        asked = begin(
            broker,
            response(ErrorCode.CONCURRENT_TRANSACTIONS),
            response(ErrorCode.NOT_COORDINATOR),
            response(transactional_id="dlog.sink/q", producer_id=4, producer_epoch=2),
            response(is_skipped=True),
        )
        sink = Sink(cluster, "q")
        assert await sink.join(1, 2, "0-0") == SinkLease("dlog.sink/q", 4, 2)
        assert await sink.join(1, 2, "0-1") is None
        assert [each.operation for each in asked] == [SinkOperation.JOIN] * 4
        assert broker.count(ApiKey.FIND_COORDINATOR) == 3, "after each error it is looked for again"

    tell(story)


def test_errors_have_the_classes_that_a_sink_knows() -> None:
    async def story(broker: ScriptedBroker, cluster: Cluster) -> None:
        begin(
            broker,
            response(ErrorCode.PRODUCER_FENCED, error_message="another driver"),
            response(ErrorCode.INVALID_TXN_STATE, error_message="the checkpoint is older"),
        )
        sink = Sink(cluster, "q")
        with pytest.raises(ProducerFencedError, match="another driver"):
            await sink.end(1, 2, [(4, 2)])
        with pytest.raises(InvalidTransactionStateError, match="older"):
            await sink.join(1, 2, "0-0")

    tell(story)


def test_a_broker_without_sinks_is_told_apart() -> None:
    async def story(broker: ScriptedBroker, cluster: Cluster) -> None:
        assert not await offers_sinks(cluster)
        with pytest.raises(UnsupportedVersionError, match="does not serve SINK_TRANSACTION"):
            await Sink(cluster, "q").token()

    tell(story)


def test_heartbeats_outlast_a_coordinator_that_is_away_for_longer_than_a_call_takes() -> None:
    async def story(broker: ScriptedBroker, _: Cluster) -> None:
        begin(broker)
        away_until = asyncio.get_running_loop().time() + 3 * PATIENCE_MS / 1000
        is_heard = asyncio.Event()

        def answer(_request: Any, _version: int) -> SinkTransactionResponse:
            if asyncio.get_running_loop().time() < away_until:
                return response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            is_heard.set()
            return response()

        broker.answers[ApiKey.SINK_TRANSACTION] = answer
        options = replace(QUICK, call_timeout_ms=PATIENCE_MS)
        async with (
            Cluster([broker.address], options) as cluster,
            Sink(cluster, "q").heartbeats(5, 0, timeout_ms=60_000) as beating,
        ):
            heard = asyncio.create_task(is_heard.wait())
            await asyncio.wait({heard, beating}, return_when=asyncio.FIRST_COMPLETED)
            assert not beating.done(), beating.exception()
            assert heard.done()

    tell(story)


def test_a_lease_is_for_a_producer_that_has_nothing_else() -> None:
    async def story(broker: ScriptedBroker, cluster: Cluster) -> None:
        for options in (ProducerOptions(acks=1), ProducerOptions(transactional_id="t")):
            async with Producer(cluster, options) as producer:
                with pytest.raises(InvalidTransactionStateError):
                    producer.lease("dlog.sink/q", 4, 2)
        async with Producer(cluster, ProducerOptions()) as producer:
            producer.lease("dlog.sink/q", 4, 2)
            assert producer._accumulator.identity == Identity(4, 2)

    tell(story)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_a_leased_producer_writes_in_its_transaction_and_never_takes_another_epoch(code: ErrorCode) -> None:
    async def story(broker: ScriptedBroker, cluster: Cluster) -> None:
        seen: list[tuple[str | None, int, int, bool]] = []

        def refuse(request: Any, _version: int) -> ProduceResponse:
            (topic,) = request.topic_data
            (data,) = topic.partition_data
            header = read_header(bytearray(data.records))
            producer = header.producer_id, header.producer_epoch, header.is_transactional
            seen.append((request.transactional_id, *producer))
            told = PartitionProduceResponse(index=0, error_code=code, base_offset=-1)
            return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[told])])

        broker.topics["t"] = 1
        broker.versions[ApiKey.PRODUCE] = (3, 12)
        broker.answers[ApiKey.PRODUCE] = refuse
        async with Producer(cluster, ProducerOptions(linger_ms=0)) as producer:
            producer.lease(SINK_ID, 4, 2)
            for _ in range(2):
                delivery = await producer.send("t", Record(b"row"), 0)
                await producer.flush()
                with pytest.raises(DlogError):
                    await delivery.wait()
        assert set(seen) == {(SINK_ID, 4, 2, True)}

    tell(story)
