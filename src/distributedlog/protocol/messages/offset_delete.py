"""OffsetDelete (47): deletes stored positions of a group.

Version 0, not flexible.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Message, api_key=ApiKey.OFFSET_DELETE, versions=(0, 0)):
    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Message, api_key=ApiKey.OFFSET_DELETE, versions=(0, 0)):
    error_code: int = field(INT16, default=0)
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic))
