"""DescribeTopicPartitions (75): topics and their partitions, a page at a time.

Version 0, flexible.
"""

from distributedlog.model.ids import Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, STRING, UUID, array, nullable, struct
from distributedlog.protocol.schema import Message, Struct, field


class TopicRequest(Struct):
    name: str = field(STRING)


class Cursor(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class DescribeTopicPartitionsRequest(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible_since=0
):
    topics: list[TopicRequest] = field(array(TopicRequest))
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(nullable(struct(Cursor)), default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    eligible_leader_replicas: list[int] | None = field(nullable(array(INT32)), default=None)
    last_known_elr: list[int] | None = field(nullable(array(INT32)), default=None)
    offline_replicas: list[int] = field(array(INT32))


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(INT16, default=0)
    name: str | None = field(nullable(STRING))
    topic_id: Uuid = field(UUID)
    is_internal: bool = field(BOOL, default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = field(INT32, default=-(2**31))


class DescribeTopicPartitionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = field(nullable(struct(Cursor)), default=None)
