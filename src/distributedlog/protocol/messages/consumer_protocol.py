"""What members of a classic group of consumers tell their leader, and the leader them.

They travel as opaque bytes in JoinGroup and SyncGroup, with their version in front (see `versioned`).  A
newer version is read as the newest known one, since versions only add fields.  Versions 0 to 3, none
flexible.  Of the subscription, 1 adds what the member owns (for cooperative rebalancing), 2 since which
generation, 3 its rack.  The assignment is the same in all.
"""

from distributedlog.protocol.kinds import BYTES, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class TopicPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(nullable(BYTES), default=None)
    """The user data of the assignor: the sticky ones keep earlier assignments here."""
    owned_partitions: list[TopicPartitions] = field(array(TopicPartitions), since=1, default_factory=list)
    generation_id: int = field(INT32, since=2, default=-1)
    rack_id: str | None = field(nullable(STRING), since=3, default=None)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[TopicPartitions] = field(array(TopicPartitions))
    user_data: bytes | None = field(nullable(BYTES), default=None)
