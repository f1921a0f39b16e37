"""FindCoordinator (10): which broker coordinates a group, a transactional id or a share.

Versions 0 to 6, flexible from 3.  1 adds the kind of key, 4 asks for several keys at once (and leaves the
single-key fields).
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class FindCoordinatorRequest(Message, api_key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible_since=3):
    key: str = field(STRING, until=3, default="")
    key_type: int = field(INT8, since=1, default=0)
    """0 group, 1 transactional id, 2 share."""
    coordinator_keys: list[str] = field(array(STRING), since=4, default_factory=list)


class Coordinator(Struct):
    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)


class FindCoordinatorResponse(Message, api_key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible_since=3):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, until=3, default=0)
    error_message: str | None = field(nullable(STRING), since=1, until=3, default=None)
    node_id: int = field(INT32, until=3, default=0)
    host: str = field(STRING, until=3, default="")
    port: int = field(INT32, until=3, default=0)
    coordinators: list[Coordinator] = field(array(Coordinator), since=4, default_factory=list)
