"""transaction.version 2 message by message, on a running broker: what is late changes nothing.

No client of this version is at hand that sends these versions, so the messages are sent by hand.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from distributedlog.client.connection import Connection, connect
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from distributedlog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.records.record import Record, encode_batch
from distributedlog.replication.contract import Isolation, OffsetSpec
from tests.system.server_process import ServerProcess

R = TypeVar("R", bound=Message)
TIMEOUT_MS = 60_000
TRY_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("protocol"), {}) as node:
        yield str(node.facts["client"])
        assert node.stop() == 0


class RawProducer:
    """A transactional producer of version 2 that sends what it is told to, wise or not."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name
        self.topic, self.group = f"{name}-topic", f"{name}-group"
        self.producer_id, self.epoch = -1, -1

    async def call(self, request: Message, response: type[R], version: int | None = None) -> R:
        return await self._connection.call(request, response, timeout_ms=TIMEOUT_MS, version=version)

    async def until_available(self, ask: Callable[[], Coroutine[Any, Any, ErrorCode]]) -> ErrorCode:
        """Asks again while the error says that it may be so."""
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while (code := await ask()) in TRY_AGAIN:
                await asyncio.sleep(0.02)
        return code

    async def begin(self) -> None:
        topic = CreatableTopic(
            name=self.topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CreateTopicsResponse)
        for key_type, key in ((1, self.name), (0, self.group)):
            assert await self.until_available(lambda: self._find(key_type, key)) is ErrorCode.NONE  # noqa: B023
        assert await self.until_available(self._init) is ErrorCode.NONE

    async def _find(self, key_type: int, key: str) -> ErrorCode:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        return ErrorCode((await self.call(request, FindCoordinatorResponse)).coordinators[0].error_code)

    async def _init(self) -> ErrorCode:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        response = await self.call(request, InitProducerIdResponse, 5)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    async def produce(self, sequence: int = 0, epoch: int | None = None, version: int = 12) -> ErrorCode:
        async def once() -> ErrorCode:
            records = encode_batch(
                [Record(value=b"v")],
                producer_id=self.producer_id,
                producer_epoch=self.epoch if epoch is None else epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
            data = PartitionProduceData(index=0, records=records)
            request = ProduceRequest(
                transactional_id=self.name,
                acks=-1,
                timeout_ms=TIMEOUT_MS,
                topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
            )
            response = await self.call(request, ProduceResponse, version)
            return ErrorCode(response.responses[0].partition_responses[0].error_code)

        return await self.until_available(once)

    async def commit_offset(self, offset: int, epoch: int | None = None) -> ErrorCode:
        async def once() -> ErrorCode:
            each = TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=None
            )
            request = TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=self.group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch if epoch is None else epoch,
                topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[each])],
            )
            response = await self.call(request, TxnOffsetCommitResponse, 5)
            return ErrorCode(response.topics[0].partitions[0].error_code)

        return await self.until_available(once)

    async def end(self, *, commit: bool, epoch: int | None = None) -> ErrorCode:
        """Ends the transaction, and goes on in the epoch that the response says."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )

        async def once() -> ErrorCode:
            response = await self.call(request, EndTxnResponse, 5)
            if response.error_code == ErrorCode.NONE and response.producer_epoch >= 0:
                self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            return ErrorCode(response.error_code)

        return await self.until_available(once)

    async def write_marker(self, epoch: int, topic: str, *, commit: bool) -> ErrorCode:
        marker = WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=0,
            transaction_version=2,
        )
        request = WriteTxnMarkersRequest(markers=[marker])

        async def once() -> ErrorCode:
            response = await self.call(request, WriteTxnMarkersResponse, 2)
            return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)

        return await self.until_available(once)

    async def list_end(self, isolation: Isolation) -> int:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=OffsetSpec.LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=self.topic, partitions=[wanted])],
        )
        response = await self.call(request, ListOffsetsResponse, 7)
        return response.topics[0].partitions[0].offset

    async def until_stable(self) -> int:
        """The end of the log, once no transaction is open below it."""
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while (end := await self.list_end(Isolation.READ_UNCOMMITTED)) != await self.list_end(
                Isolation.READ_COMMITTED
            ):
                await asyncio.sleep(0.02)
        return end

    async def fetch_offset(self) -> int:
        """The committed offset of the group, once it is stable."""
        topic = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while True:
                response = await self.call(request, OffsetFetchResponse, 9)
                found = response.groups[0].topics[0].partitions[0]
                if found.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    return found.committed_offset
                await asyncio.sleep(0.02)


def run(address: str, name: str, story: Callable[[RawProducer], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        host, _, port = address.rpartition(":")
        connection = await connect(host, int(port), timeout_ms=TIMEOUT_MS)
        try:
            producer = RawProducer(connection, name)
            await producer.begin()
            await story(producer)
        finally:
            connection.close()

    asyncio.run(connected())


def test_partitions_and_groups_are_added_by_what_is_written(address: str) -> None:
    async def story(producer: RawProducer) -> None:
        first = producer.epoch
        assert await producer.produce() is ErrorCode.NONE
        assert await producer.commit_offset(5) is ErrorCode.NONE
        assert await producer.list_end(Isolation.READ_COMMITTED) == 0
        assert await producer.end(commit=True) is ErrorCode.NONE
        assert producer.epoch == first + 1
        assert await producer.until_stable() == 2
        assert await producer.fetch_offset() == 5
        assert await producer.produce() is ErrorCode.NONE
        assert await producer.commit_offset(9) is ErrorCode.NONE
        assert await producer.end(commit=False) is ErrorCode.NONE
        assert producer.epoch == first + 2
        assert await producer.until_stable() == 4
        assert await producer.fetch_offset() == 5

    run(address, "added", story)


def test_a_late_message_of_an_earlier_transaction_changes_nothing(address: str) -> None:
    async def story(producer: RawProducer) -> None:
        late = producer.epoch
        assert await producer.produce() is ErrorCode.NONE
        assert await producer.end(commit=True) is ErrorCode.NONE
        await producer.until_stable()
        assert await producer.produce(1, late) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.commit_offset(7, late) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.produce() is ErrorCode.NONE
        open_since = await producer.list_end(Isolation.READ_COMMITTED)
        marker = await producer.write_marker(producer.epoch, producer.topic, commit=False)
        assert marker is ErrorCode.INVALID_PRODUCER_EPOCH
        marker = await producer.write_marker(late, producer.topic, commit=False)
        assert marker is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.end(commit=False, epoch=late) is not ErrorCode.NONE
        assert await producer.list_end(Isolation.READ_COMMITTED) == open_since, "it is still open"
        assert await producer.produce(1) is ErrorCode.NONE
        assert await producer.end(commit=True) is ErrorCode.NONE
        assert await producer.until_stable() == 5

    run(address, "late", story)


def test_a_partition_that_was_not_added_is_refused_to_clients_of_before(address: str) -> None:
    async def story(producer: RawProducer) -> None:
        assert await producer.produce(version=9) is ErrorCode.INVALID_TXN_STATE
        assert await producer.produce(version=11) is ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.until_stable() == 0

    run(address, "before", story)


def test_markers_that_end_nothing_harm_nothing(address: str) -> None:
    async def story(producer: RawProducer) -> None:
        assert await producer.produce() is ErrorCode.NONE
        assert await producer.end(commit=True) is ErrorCode.NONE
        end = await producer.until_stable()
        for _ in range(2):
            repeated = await producer.write_marker(producer.epoch, producer.topic, commit=True)
            assert repeated is ErrorCode.NONE
        assert await producer.until_stable() == end
        unknown = await producer.write_marker(producer.epoch, "absent", commit=True)
        assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await producer.write_marker(producer.epoch, OFFSETS_TOPIC, commit=False) is ErrorCode.NONE

    run(address, "markers", story)
