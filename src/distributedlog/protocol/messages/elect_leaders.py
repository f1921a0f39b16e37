"""ElectLeaders (43): elects preferred, or any live, replicas as leaders.

Versions 0 to 2, flexible from 2.  1 adds the kind of election.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class TopicPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ElectLeadersRequest(Message, api_key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible_since=2):
    election_type: int = field(INT8, since=1, default=0)
    """0 preferred, 1 unclean."""
    topic_partitions: list[TopicPartitions] | None = field(nullable(array(TopicPartitions)))
    timeout_ms: int = field(INT32, default=60000)


class PartitionResult(Struct):
    partition_id: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)


class ReplicaElectionResult(Struct):
    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


class ElectLeadersResponse(Message, api_key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, since=1, default=0)
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
