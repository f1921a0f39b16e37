"""Markers: routed to leaders, tried again until they are written, and no transaction waits for another."""

import asyncio

import pytest

from distributedlog.broker.coordination.marker_sender import (
    IN_FLIGHT_MAX,
    PARTITIONS_MAX,
    RETRY_MS_MAX,
    MarkerJob,
)
from distributedlog.client.connection import connect
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import SendMarkers
from tests.unit.broker.partition_stage import OTHER
from tests.unit.broker.transaction_stage import TOPIC_NUMBER, TransactionStage
from tests.unit.client.stage import ScriptedBroker, run

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
RETRIABLE = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


class Sending(TransactionStage):
    """Sends markers, and notes which transactions are done."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[int] = []

    def send(self, producer_id: int, *partitions: TopicPartition) -> MarkerJob:
        markers = SendMarkers("x", Producer(producer_id, 3), True, frozenset(partitions), 7, 2)
        return self.sender.send(markers, lambda: self.done.append(producer_id))


def test_a_marker_says_everything_that_was_decided() -> None:
    async def story() -> None:
        stage = Sending()
        stage.send(1, T0, T1)
        assert not stage.done
        await stage.settle()
        (request,) = stage.leaders.requests
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (1, 3, 7)
        assert (marker.transaction_result, marker.transaction_version) == (True, 2)
        assert stage.done == [1]

    asyncio.run(story())


def test_what_comes_in_one_turn_goes_in_one_request() -> None:
    async def story() -> None:
        stage = Sending()
        for number in range(10):
            stage.send(number, T0)
        await stage.settle()
        assert [len(each.markers) for each in stage.leaders.requests] == [10]
        assert stage.done == list(range(10))

    asyncio.run(story())


@pytest.mark.parametrize("code", RETRIABLE, ids=str)
def test_what_is_refused_is_tried_again_alone(code: ErrorCode) -> None:
    async def story() -> None:
        stage = Sending()
        stage.leaders.decide = lambda partition: code if partition == T1 else ErrorCode.NONE
        stage.send(1, T0, T1)
        await stage.advance(RETRY_MS_MAX)
        assert not stage.done
        assert len(stage.leaders.requests) > 2
        assert {marker[4] for marker in stage.leaders.written[2:]} == {1}
        assert len(stage.leaders.requests) < 20, "later each time"
        stage.leaders.decide = lambda partition: ErrorCode.NONE
        await stage.advance(2 * RETRY_MS_MAX)
        assert stage.done == [1]

    asyncio.run(story())


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_VERSION], ids=str)
def test_where_nothing_is_open_no_marker_is_needed(code: ErrorCode) -> None:
    async def story() -> None:
        stage = Sending()
        stage.leaders.decide = lambda partition: code
        stage.send(1, T0)
        await stage.settle()
        assert stage.done == [1]

    asyncio.run(story())


def test_partitions_of_a_deleted_topic_are_done() -> None:
    async def story() -> None:
        stage = Sending()
        stage.leaders.is_reachable = False
        stage.send(1, T0)
        await stage.settle()
        stage.metadata.remove(TOPIC_NUMBER)
        await stage.advance(RETRY_MS_MAX)
        assert stage.done == [1]
        stage.send(2, TopicPartition("never", 0))
        await stage.settle()
        assert stage.done == [1, 2]
        assert not stage.leaders.written

    asyncio.run(story())


def test_a_partition_without_a_leader_is_waited_for_and_then_followed() -> None:
    async def story() -> None:
        stage = Sending()
        stage.metadata.change(TOPIC_NUMBER, leader=-1)
        stage.send(1, T0, T1)
        await stage.advance(1_000)
        assert {marker[4] for marker in stage.leaders.written} == {1}
        assert stage.sender.waiting_count == 1
        stage.metadata.change(TOPIC_NUMBER, leader=1)
        await stage.advance(RETRY_MS_MAX)
        assert stage.done == [1]

    asyncio.run(story())


def test_an_unreachable_leader_holds_up_its_own_transactions_alone() -> None:
    async def story() -> None:
        stage = Sending()
        stage.register(OTHER)
        stage.metadata.change(TOPIC_NUMBER, leader=OTHER)
        for number in range(3):
            stage.send(number, T0, T1)
            stage.send(100 + number, T1)
        await stage.advance(3_000)
        assert sorted(stage.done) == [100, 101, 102]
        assert stage.sender.waiting_count == 3
        stage.metadata.change(TOPIC_NUMBER, leader=1)
        await stage.advance(2 * RETRY_MS_MAX)
        assert sorted(stage.done) == [0, 1, 2, 100, 101, 102]

    asyncio.run(story())


@pytest.mark.parametrize("frozen_at", [ApiKey.API_VERSIONS, ApiKey.WRITE_TXN_MARKERS])
def test_a_fenced_leader_is_waited_for_no_longer(frozen_at: ApiKey) -> None:
    """It accepts connections and says nothing: for half an hour, if that were all we went by."""
    count = 1 if frozen_at is ApiKey.API_VERSIONS else IN_FLIGHT_MAX
    frozen = ScriptedBroker({frozen_at: lambda *_: None}, versions={ApiKey.WRITE_TXN_MARKERS: (1, 2)})

    async def story() -> None:
        stage = Sending()
        stage.sender._timeout_ms = 30 * 60_000
        address = frozen.address
        stage.sender._connect = lambda broker_id: connect(address.host, address.port, timeout_ms=30 * 60_000)
        stage.register(OTHER)
        stage.metadata.change(TOPIC_NUMBER, leader=OTHER)
        sent = range(IN_FLIGHT_MAX + 2)  # some wait behind those that are in flight
        for number in sent:
            stage.send(number, T0)
            await stage.settle()
        while frozen.count(frozen_at) < count:
            await asyncio.sleep(0.01)
        stage.coordinators.brokers_changed()
        await stage.advance(RETRY_MS_MAX)
        assert not stage.done, "nothing has happened to it"
        stage.register(OTHER, fenced=True)
        stage.metadata.change(TOPIC_NUMBER, leader=1)
        stage.coordinators.brokers_changed()
        for _ in range(10):
            await stage.advance(RETRY_MS_MAX)
        assert sorted(stage.done) == list(sent)

    with frozen.running():
        run(story())


def test_a_slow_answer_holds_up_nobody_and_requests_are_bounded() -> None:
    async def story() -> None:
        stage = Sending()
        gate, slow = asyncio.Event(), stage.leaders.write
        running = 0
        most = 0

        async def write(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            if request.markers[0].producer_id == 0:
                await gate.wait()
            running -= 1
            return await slow(request)

        stage.sender._write_here = write
        stage.send(0, T0)
        await stage.settle()
        for number in range(1, 20):
            stage.send(number, T0)
            await stage.settle()
        assert stage.done == list(range(1, 20))
        gate.set()
        await stage.settle()
        assert stage.done == [*range(1, 20), 0]
        assert most <= IN_FLIGHT_MAX

    asyncio.run(story())


def test_a_request_has_a_bounded_number_of_markers() -> None:
    async def story() -> None:
        stage = Sending()
        for number in range(PARTITIONS_MAX):
            stage.send(number, T0, T1)
        await stage.settle()
        counts = [sum(len(m.topics[0].partition_indexes) for m in r.markers) for r in stage.leaders.requests]
        assert max(counts) <= PARTITIONS_MAX
        assert sum(counts) == 2 * PARTITIONS_MAX
        assert len(stage.done) == PARTITIONS_MAX

    asyncio.run(story())


def test_a_cancelled_job_is_neither_sent_nor_done() -> None:
    async def story() -> None:
        stage = Sending()
        stage.leaders.is_reachable = False
        job = stage.send(1, T0)
        await stage.settle()
        stage.sender.cancel([job])
        stage.leaders.is_reachable = True
        await stage.advance(RETRY_MS_MAX)
        assert not stage.leaders.written
        assert not stage.done
        stage.sender.close()

    asyncio.run(story())
