"""OffsetFetch (9): a group's stored positions.

Versions 1 to 10, flexible from 6.  2 lets null mean all topics, 7 asks for stable offsets only, 8 asks for
several groups at once (and leaves the single-group fields), 9 adds the member, 10 names topics by id.
"""

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, INT64, STRING, UUID, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class OffsetFetchRequestTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestTopics(Struct):
    name: str = field(STRING, until=9, default="")
    topic_id: Uuid = field(UUID, since=10, default=ZERO_UUID)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(STRING)
    member_id: str | None = field(nullable(STRING), since=9, default=None)
    member_epoch: int = field(INT32, since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(nullable(array(OffsetFetchRequestTopics)))


class OffsetFetchRequest(Message, api_key=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible_since=6):
    group_id: str = field(STRING, until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        nullable(array(OffsetFetchRequestTopic), since=2), until=7, default=None
    )
    groups: list[OffsetFetchRequestGroup] = field(
        array(OffsetFetchRequestGroup), since=8, default_factory=list
    )
    require_stable: bool = field(BOOL, since=7, default=False)
    """Refuse (UNSTABLE_OFFSET_COMMIT) while a transaction's commit is pending."""


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=5, default=-1)
    metadata: str | None = field(nullable(STRING))
    error_code: int = field(INT16, default=0)


class OffsetFetchResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, default=-1)
    metadata: str | None = field(nullable(STRING))
    error_code: int = field(INT16, default=0)


class OffsetFetchResponseTopics(Struct):
    name: str = field(STRING, until=9, default="")
    topic_id: Uuid = field(UUID, since=10, default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions))


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING)
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics))
    error_code: int = field(INT16, default=0)


class OffsetFetchResponse(Message, api_key=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible_since=6):
    throttle_time_ms: int = field(INT32, since=3, default=0)
    topics: list[OffsetFetchResponseTopic] = field(
        array(OffsetFetchResponseTopic), until=7, default_factory=list
    )
    error_code: int = field(INT16, since=2, until=7, default=0)
    groups: list[OffsetFetchResponseGroup] = field(
        array(OffsetFetchResponseGroup), since=8, default_factory=list
    )
