"""OffsetCommit (8): stores a group's positions.

Versions 2 to 10, flexible from 8.  5 drops the retention time, 6 adds leader epochs, 7 static members, 9
serves the consumer protocol (KIP-848), 10 names topics by id.
"""

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, INT64, STRING, UUID, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=6, default=-1)
    committed_metadata: str | None = field(nullable(STRING))


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, until=9, default="")
    topic_id: Uuid = field(UUID, since=10, default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message, api_key=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible_since=8):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING), since=7, default=None)
    retention_time_ms: int = field(INT64, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, until=9, default="")
    topic_id: Uuid = field(UUID, since=10, default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Message, api_key=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible_since=8):
    throttle_time_ms: int = field(INT32, since=3, default=0)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
