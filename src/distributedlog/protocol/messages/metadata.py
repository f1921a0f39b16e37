"""Metadata (3): brokers, controller, topics and the leaders of their partitions.

Versions 0 to 13, flexible from 9.  1 lets null mean all topics (in 0 an empty list does), 4 adds the switch
for auto-creation, 10 topic ids, 12 asking by id, 13 an error for the whole answer.
"""

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, STRING, UUID, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field(UUID, since=10, default=ZERO_UUID)
    name: str | None = field(nullable(STRING, since=10))


class MetadataRequest(Message, api_key=ApiKey.METADATA, versions=(0, 13), flexible_since=9):
    topics: list[MetadataRequestTopic] | None = field(nullable(array(MetadataRequestTopic), since=1))
    """Null: all topics."""
    allow_auto_topic_creation: bool = field(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = field(BOOL, since=8, default=False)


class MetadataResponseBroker(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(nullable(STRING), since=1, default=None)


class MetadataResponsePartition(Struct):
    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), since=5, default_factory=list)
    """Replicas on brokers or disks that are down."""


class MetadataResponseTopic(Struct):
    error_code: int = field(INT16, default=0)
    name: str | None = field(nullable(STRING, since=12))
    topic_id: Uuid = field(UUID, since=10, default=ZERO_UUID)
    is_internal: bool = field(BOOL, since=1, default=False)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=-(2**31))


class MetadataResponse(Message, api_key=ApiKey.METADATA, versions=(0, 13), flexible_since=9):
    throttle_time_ms: int = field(INT32, since=3, default=0)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(nullable(STRING), since=2, default=None)
    controller_id: int = field(INT32, since=1, default=-1)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=-(2**31))
    error_code: int = field(INT16, since=13, default=0)
