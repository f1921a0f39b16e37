"""DescribeGroups (15): the state and members of classic groups.

Versions 0 to 6, flexible from 5.  3 adds authorized operations, 4 static members, 6 an error message.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, BYTES, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class DescribeGroupsRequest(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible_since=5):
    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, since=3, default=False)


class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING), since=4, default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


class DescribedGroup(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), since=6, default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, since=3, default=-(2**31))


class DescribeGroupsResponse(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible_since=5):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
