"""ConsumerGroupDescribe (69): the state and members of consumer groups (KIP-848).

Versions 0 to 1, all flexible.  1 adds the type of member.
"""

from distributedlog.model.ids import Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, UUID, array, nullable, struct
from distributedlog.protocol.schema import Message, Struct, field


class ConsumerGroupDescribeRequest(
    Message, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible_since=0
):
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL)


class TopicPartitions(Struct):
    topic_id: Uuid = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class Member(Struct):
    member_id: str = field(STRING)
    instance_id: str | None = field(nullable(STRING), default=None)
    rack_id: str | None = field(nullable(STRING), default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(nullable(STRING), default=None)
    assignment: Assignment = field(struct(Assignment))
    target_assignment: Assignment = field(struct(Assignment))
    member_type: int = field(INT8, since=1, default=-1)


class DescribedGroup(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[Member] = field(array(Member))
    authorized_operations: int = field(INT32, default=-(2**31))


class ConsumerGroupDescribeResponse(
    Message, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible_since=0
):
    throttle_time_ms: int = field(INT32, default=0)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
