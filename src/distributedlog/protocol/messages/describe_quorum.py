"""DescribeQuorum (55): the leader, voters and observers of the metadata quorum.

Versions 0 to 2, all flexible.  1 adds the times of the last fetches, 2 directory ids, endpoints and error
messages.
"""

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, INT64, STRING, UINT16, UUID, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class PartitionRequest(Struct):
    partition_index: int = field(INT32)


class TopicRequest(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionRequest] = field(array(PartitionRequest))


class DescribeQuorumRequest(Message, api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible_since=0):
    topics: list[TopicRequest] = field(array(TopicRequest))


class ReplicaState(Struct):
    replica_id: int = field(INT32)
    replica_directory_id: Uuid = field(UUID, since=2, default=ZERO_UUID)
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, since=1, default=-1)
    last_caught_up_timestamp: int = field(INT64, since=1, default=-1)


class PartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), since=2, default=None)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[ReplicaState] = field(array(ReplicaState))
    observers: list[ReplicaState] = field(array(ReplicaState))


class TopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


class Listener(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class Node(Struct):
    node_id: int = field(INT32)
    listeners: list[Listener] = field(array(Listener))


class DescribeQuorumResponse(Message, api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible_since=0):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), since=2, default=None)
    topics: list[TopicData] = field(array(TopicData))
    nodes: list[Node] = field(array(Node), since=2, default_factory=list)
