"""Produce (0): appends record batches to partitions.

Versions 3 to 13, flexible from 9.  10 tells of a moved leader, 11 may answer TRANSACTION_ABORTABLE, 12 adds
its partitions to the transaction by itself (KIP-890), 13 names topics by id.  There is no answer to acks 0.
"""

from distributedlog.model.buffers import Buffer
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    array,
    nullable,
    optional,
)
from distributedlog.protocol.schema import Message, Struct, field


class PartitionProduceData(Struct):
    index: int = field(INT32)
    records: Buffer | None = field(nullable(RECORDS))


class TopicProduceData(Struct):
    name: str = field(STRING, until=12, default="")
    topic_id: Uuid = field(UUID, since=13, default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


class ProduceRequest(Message, api_key=ApiKey.PRODUCE, versions=(3, 13), flexible_since=9):
    transactional_id: str | None = field(nullable(STRING), default=None)
    acks: int = field(INT16)
    """0: no answer; 1: the leader has it; -1: the whole ISR has it."""
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(INT32)
    """Which record of the batch, counted from 0."""
    batch_index_error_message: str | None = field(nullable(STRING), default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, default=-1)
    """-1 where the topic keeps the producer's time."""
    log_start_offset: int = field(INT64, since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), since=8, default_factory=list
    )
    error_message: str | None = field(nullable(STRING), since=8, default=None)
    current_leader: LeaderIdAndEpoch | None = field(optional(LeaderIdAndEpoch), since=10, tag=0, default=None)
    """Given with NOT_LEADER_OR_FOLLOWER."""


class TopicProduceResponse(Struct):
    name: str = field(STRING, until=12, default="")
    topic_id: Uuid = field(UUID, since=13, default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(nullable(STRING), default=None)


class ProduceResponse(Message, api_key=ApiKey.PRODUCE, versions=(3, 13), flexible_since=9):
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, default=0)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=10, tag=0, default_factory=list)
