"""SyncGroup (14): the leader hands out assignments, every member gets its own.

Versions 0 to 5, flexible from 4.  3 adds static members, 5 repeats the protocol's type and name.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BYTES, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


class SyncGroupRequest(Message, api_key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible_since=4):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING), since=3, default=None)
    protocol_type: str | None = field(nullable(STRING), since=5, default=None)
    protocol_name: str | None = field(nullable(STRING), since=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))
    """The assignments, from the leader only."""


class SyncGroupResponse(Message, api_key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, default=0)
    protocol_type: str | None = field(nullable(STRING), since=5, default=None)
    protocol_name: str | None = field(nullable(STRING), since=5, default=None)
    assignment: bytes = field(BYTES)
