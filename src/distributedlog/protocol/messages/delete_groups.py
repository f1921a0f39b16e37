"""DeleteGroups (42): deletes empty groups and their offsets.

Versions 0 to 2, flexible from 2.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class DeleteGroupsRequest(Message, api_key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible_since=2):
    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16, default=0)


class DeleteGroupsResponse(Message, api_key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
