"""OffsetForLeaderEpoch (23): where an epoch of the leader ended in its log.

Versions 2 to 4, flexible from 4.  2 adds the caller's own epoch, 3 the follower's id.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, INT64, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class OffsetForLeaderPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, default=-1)
    """The epoch the caller believes in, -1 for none."""
    leader_epoch: int = field(INT32)


class OffsetForLeaderTopic(Struct):
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible_since=4
):
    replica_id: int = field(INT32, since=3, default=-2)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


class EpochEndOffset(Struct):
    error_code: int = field(INT16, default=0)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)
    """Where the epoch ended: the first offset of the next one."""


class OffsetForLeaderTopicResult(Struct):
    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


class OffsetForLeaderEpochResponse(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible_since=4
):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
