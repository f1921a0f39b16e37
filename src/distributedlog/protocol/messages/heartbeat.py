"""Heartbeat (12): a member of a classic group is alive.

Versions 0 to 4, flexible from 4.  3 adds static members.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, nullable
from distributedlog.protocol.schema import Message, field


class HeartbeatRequest(Message, api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible_since=4):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING), since=3, default=None)


class HeartbeatResponse(Message, api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, default=0)
