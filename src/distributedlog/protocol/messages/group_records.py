"""The records of `__consumer_offsets`: committed offsets, classic groups, and consumer groups (KIP-848).

Keys and values have their version in front (see `versioned`).  A key's version is the kind of record:

    0, 1  OffsetCommitKey                            a group's position in a partition
    2     GroupMetadataKey                           a classic group, members and assignments included
    3     ConsumerGroupMetadataKey                   a consumer group and its epoch
    4     ConsumerGroupPartitionMetadataKey          what the group knew of its topics (older brokers)
    5     ConsumerGroupMemberMetadataKey             a member and its subscription
    6     ConsumerGroupTargetAssignmentMetadataKey   the epoch of the target assignment
    7     ConsumerGroupTargetAssignmentMemberKey     a member's target assignment
    8     ConsumerGroupCurrentMemberAssignmentKey    a member's current assignment
    16    ConsumerGroupRegularExpressionKey          the topics a pattern stood for

A null value deletes.  Keys are never flexible; values of the kinds up to 2 are from version 4 on, the others
always.
"""

from distributedlog.model.ids import Uuid
from distributedlog.protocol.kinds import BYTES, INT8, INT32, INT64, STRING, UUID, array, nullable, struct
from distributedlog.protocol.schema import Message, Struct, field

# --- offsets and classic groups ----------------------------------------------------------------


class OffsetCommitKey(Message, versions=(0, 1)):
    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitValue(Message, versions=(0, 4), flexible_since=4):
    offset: int = field(INT64)
    leader_epoch: int = field(INT32, since=3, default=-1)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, since=1, until=1, default=-1)
    """The time that clients set who choose a retention time themselves."""


class GroupMetadataKey(Message, versions=(2, 2)):
    group: str = field(STRING)


class MemberMetadata(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING), since=3, default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=-1)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class GroupMetadataValue(Message, versions=(0, 4), flexible_since=4):
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(nullable(STRING))
    leader: str | None = field(nullable(STRING))
    current_state_timestamp: int = field(INT64, since=2, default=-1)
    members: list[MemberMetadata] = field(array(MemberMetadata))


# --- consumer groups ---------------------------------------------------------------------------


class ConsumerGroupMetadataKey(Message, versions=(3, 3)):
    group_id: str = field(STRING)


class ConsumerGroupMetadataValue(Message, versions=(0, 0), flexible_since=0):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0, default=0)
    """The hash of the subscribed topics: when it changes, so may the assignment."""


class ConsumerGroupPartitionMetadataKey(Message, versions=(4, 4)):
    group_id: str = field(STRING)


class PartitionMetadata(Struct):
    partition: int = field(INT32)
    racks: list[str] = field(array(STRING))


class TopicMetadata(Struct):
    topic_id: Uuid = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: list[PartitionMetadata] = field(array(PartitionMetadata))


class ConsumerGroupPartitionMetadataValue(Message, versions=(0, 0), flexible_since=0):
    topics: list[TopicMetadata] = field(array(TopicMetadata))


class ConsumerGroupMemberMetadataKey(Message, versions=(5, 5)):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(Message, versions=(0, 0), flexible_since=0):
    instance_id: str | None = field(nullable(STRING))
    rack_id: str | None = field(nullable(STRING))
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(nullable(STRING))
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(nullable(STRING))
    classic_member_metadata: ClassicMemberMetadata | None = field(
        nullable(struct(ClassicMemberMetadata)), tag=0, default=None
    )
    """The metadata of a member that still speaks the classic protocol while the group is being moved over."""


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions=(6, 6)):
    group_id: str = field(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible_since=0):
    assignment_epoch: int = field(INT32)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions=(7, 7)):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TargetPartitions(Struct):
    topic_id: Uuid = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible_since=0):
    topic_partitions: list[TargetPartitions] = field(array(TargetPartitions))


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions=(8, 8)):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class CurrentPartitions(Struct):
    topic_id: Uuid = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible_since=0):
    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    """Accepted too: the answer with the newer one may have been lost."""
    state: int = field(INT8)
    assigned_partitions: list[CurrentPartitions] = field(array(CurrentPartitions))
    partitions_pending_revocation: list[CurrentPartitions] = field(array(CurrentPartitions))


class ConsumerGroupRegularExpressionKey(Message, versions=(16, 16)):
    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


class ConsumerGroupRegularExpressionValue(Message, versions=(0, 0), flexible_since=0):
    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    """The version of the metadata that the topics were looked up in."""
    timestamp: int = field(INT64)


GROUP_RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Key and value by the key's version.  A kind that is not here was written by a newer broker: skip it."""
