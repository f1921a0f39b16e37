"""JoinGroup (11): a member enters a classic group, or waits for its next generation.

Versions 0 to 9, flexible from 6.  1 adds the rebalance timeout, 4 makes the first answer give out a member
id, 5 adds static members, 8 a reason, 9 whether the leader may skip assigning.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, BYTES, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class JoinGroupRequest(Message, api_key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible_since=6):
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1)
    member_id: str = field(STRING)
    """Empty for a member that has none yet."""
    group_instance_id: str | None = field(nullable(STRING), since=5, default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    """The assignors the member knows, the best one first."""
    reason: str | None = field(nullable(STRING), since=8, default=None)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING), since=5, default=None)
    metadata: bytes = field(BYTES)


class JoinGroupResponse(Message, api_key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible_since=6):
    throttle_time_ms: int = field(INT32, since=2, default=0)
    error_code: int = field(INT16, default=0)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(nullable(STRING), since=7, default=None)
    protocol_name: str | None = field(nullable(STRING, since=7))
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, since=9, default=False)
    """The leader keeps the assignment there is."""
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
    """The members, for the leader only."""
