"""The requests that the tests of data handlers make, and what they look for in the answers."""

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from distributedlog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from distributedlog.records.record import decode_batch
from tests.unit.broker.handlers.data_stage import TOPIC, TOPIC_NUMBER
from tests.unit.broker.partition_stage import topic_id
from tests.unit.storage.support import batches_in

MUCH = 1 << 20
CLOSING = -1
"""The epoch of a fetch without a session."""


def wanted(
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = MUCH,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )


def fetch_request(
    *partitions: FetchPartition,
    topic: str = TOPIC,
    number: int = TOPIC_NUMBER,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = MUCH,
    isolation: int = 0,
    session: tuple[int, int] = (0, CLOSING),
    forgotten: tuple[int, ...] = (),
    replica_id: int = -1,
    replica_epoch: int = -1,
) -> FetchRequest:
    """Names topics both ways: the version decides which is sent."""
    named = [FetchTopic(topic=topic, topic_id=topic_id(number), partitions=list(partitions))]
    gone = [ForgottenTopic(topic=topic, topic_id=topic_id(number), partitions=list(forgotten))]
    return FetchRequest(
        replica_id=replica_id,
        replica_state=None
        if replica_id < 0
        else ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=named if partitions else [],
        forgotten_topics_data=gone if forgotten else [],
    )


def only(response: FetchResponse) -> PartitionData:
    assert response.error_code == ErrorCode.NONE
    ((data,),) = (topic.partitions for topic in response.responses)
    return data


def values(data: PartitionData) -> list[bytes | None]:
    assert isinstance(data.records, memoryview), "as it is read from a frame"
    return [
        record.value
        for header, batch in batches_in(bytes(data.records))
        if not header.is_control
        for record in decode_batch(batch)
    ]


def offsets_request(
    *timestamps: int,
    topic: str = TOPIC,
    partition: int = 0,
    isolation: int = 0,
    replica_id: int = -1,
    current_leader_epoch: int = -1,
) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=current_leader_epoch, timestamp=each
        )
        for each in timestamps
    ]
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions)],
    )


def epoch_request(
    leader_epoch: int, *, topic: str = TOPIC, partition: int = 0, current_leader_epoch: int = -1
) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    )
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])


def deletion_request(
    offset: int, *, topic: str = TOPIC, partition: int = 0, timeout_ms: int = 5_000
) -> DeleteRecordsRequest:
    asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=timeout_ms
    )
