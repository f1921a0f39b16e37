"""Fetch (1): reads record batches from an offset on, for consumers and followers.

Versions 4 to 18, flexible from 12.  7 adds sessions, 9 leader epochs, 11 the nearest replica, 12 divergence
in the answer, 13 topic ids, 15 moves the replica id into a tagged struct, 16 tells of a moved leader, 17
adds directory ids, 18 the follower's high watermark.
"""

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Payload,
    array,
    nullable,
    optional,
)
from distributedlog.protocol.schema import Message, Struct, field


class ReplicaState(Struct):
    replica_id: int = field(INT32, default=-1)
    replica_epoch: int = field(INT64, default=-1)


class FetchPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    """The epoch of the last record the follower has; the leader checks for divergence."""
    log_start_offset: int = field(INT64, since=5, default=-1)
    """The follower's own; -1 for a consumer."""
    partition_max_bytes: int = field(INT32)
    replica_directory_id: Uuid = field(UUID, since=17, tag=0, default=ZERO_UUID)
    high_watermark: int = field(INT64, since=18, tag=1, default=2**63 - 1)
    """The follower's own, which a leader answers at once when it is stale."""


class FetchTopic(Struct):
    topic: str = field(STRING, until=12, default="")
    topic_id: Uuid = field(UUID, since=13, default=ZERO_UUID)
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Struct):
    topic: str = field(STRING, until=12, default="")
    topic_id: Uuid = field(UUID, since=13, default=ZERO_UUID)
    partitions: list[int] = field(array(INT32))


class FetchRequest(Message, api_key=ApiKey.FETCH, versions=(4, 18), flexible_since=12):
    cluster_id: str | None = field(nullable(STRING), since=12, tag=0, default=None)
    replica_id: int = field(INT32, until=14, default=-1)
    """A follower's id, -1 for a consumer; from 15 on in `replica_state`."""
    replica_state: ReplicaState | None = field(optional(ReplicaState), since=15, tag=1, default=None)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=2**31 - 1)
    isolation_level: int = field(INT8, default=0)
    """0: read uncommitted, 1: read committed."""
    session_id: int = field(INT32, since=7, default=0)
    """0 asks for a full fetch, and with epoch 0 for a new session."""
    session_epoch: int = field(INT32, since=7, default=-1)
    """-1 outside sessions."""
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), since=7, default_factory=list)
    """What an incremental fetch takes out of its session."""
    rack_id: str = field(STRING, since=11, default="")


class EpochEndOffset(Struct):
    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)
    """Where the epoch ended: the first offset of the next one."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class SnapshotId(Struct):
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


class PartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = field(optional(EpochEndOffset), since=12, tag=0, default=None)
    """Set when the follower must truncate: the last epoch that may agree, and its end."""
    current_leader: LeaderIdAndEpoch | None = field(optional(LeaderIdAndEpoch), since=12, tag=1, default=None)
    snapshot_id: SnapshotId | None = field(optional(SnapshotId), since=12, tag=2, default=None)
    """Set when the offset is below the log's start in the metadata log."""
    aborted_transactions: list[AbortedTransaction] | None = field(nullable(array(AbortedTransaction)))
    """The aborted transactions, for read committed only, else null."""
    preferred_read_replica: int = field(INT32, since=11, default=-1)
    """A nearer replica to go on with, -1 for none."""
    records: Payload | None = field(nullable(RECORDS))


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, until=12, default="")
    topic_id: Uuid = field(UUID, since=13, default=ZERO_UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(nullable(STRING), default=None)


class FetchResponse(Message, api_key=ApiKey.FETCH, versions=(4, 18), flexible_since=12):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, since=7, default=0)
    session_id: int = field(INT32, since=7, default=0)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=16, tag=0, default_factory=list)
    """Where the `current_leader`s of the partitions are."""
