"""ConsumerGroupHeartbeat (68): joins, keeps, changes and leaves a consumer group (KIP-848).

Versions 0 to 1, all flexible.  1 adds a pattern of topics, and requires that clients make their own member
id.
"""

from distributedlog.model.ids import Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, UUID, array, nullable, struct
from distributedlog.protocol.schema import Message, Struct, field


class OwnedTopicPartitions(Struct):
    topic_id: Uuid = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupHeartbeatRequest(
    Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible_since=0
):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    """0 joins, -1 leaves, -2 leaves for a while (static members), else the last one heard."""
    instance_id: str | None = field(nullable(STRING), default=None)
    rack_id: str | None = field(nullable(STRING), default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(nullable(array(STRING)), default=None)
    """Null: as before."""
    subscribed_topic_regex: str | None = field(nullable(STRING), since=1, default=None)
    server_assignor: str | None = field(nullable(STRING), default=None)
    topic_partitions: list[OwnedTopicPartitions] | None = field(
        nullable(array(OwnedTopicPartitions)), default=None
    )
    """What the member owns; null: as before."""


class TopicPartitions(Struct):
    topic_id: Uuid = field(UUID)
    partitions: list[int] = field(array(INT32))


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class ConsumerGroupHeartbeatResponse(
    Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible_since=0
):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    member_id: str | None = field(nullable(STRING), default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(nullable(struct(Assignment)), default=None)
    """Null: as before."""
