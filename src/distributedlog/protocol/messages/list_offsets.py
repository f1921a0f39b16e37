"""ListOffsets (2): the offset at a time, or at one of a log's ends.

Versions 1 to 11, flexible from 6.  4 adds leader epochs, 7 the offset of the greatest timestamp, 8 to 11
further special timestamps (-4, -5, -6) and a timeout.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT8, INT16, INT32, INT64, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1)
    timestamp: int = field(INT64)
    """-1 latest, -2 earliest, -3 of the greatest timestamp, -4 earliest local, -5 latest tiered,
    -6 earliest pending upload."""


class ListOffsetsTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


class ListOffsetsRequest(Message, api_key=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible_since=6):
    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, since=2, default=0)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, since=10, default=0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Message, api_key=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible_since=6):
    throttle_time_ms: int = field(INT32, since=2, default=0)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
