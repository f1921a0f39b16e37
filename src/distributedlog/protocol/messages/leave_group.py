"""LeaveGroup (13): members leave a classic group.

Versions 0 to 5, flexible from 4.  3 takes several members at once, static ones too; 5 adds a reason.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class MemberIdentity(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING), default=None)
    reason: str | None = field(nullable(STRING), since=5, default=None)


class LeaveGroupRequest(Message, api_key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible_since=4):
    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2, default="")
    members: list[MemberIdentity] = field(array(MemberIdentity), since=3, default_factory=list)


class MemberResponse(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING))
    error_code: int = field(INT16, default=0)


class LeaveGroupResponse(Message, api_key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, default=0)
    members: list[MemberResponse] = field(array(MemberResponse), since=3, default_factory=list)
