"""ListGroups (16): the groups a broker coordinates.

Versions 0 to 5, flexible from 3.  4 adds states, 5 group types.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class ListGroupsRequest(Message, api_key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible_since=3):
    states_filter: list[str] = field(array(STRING), since=4, default_factory=list)
    types_filter: list[str] = field(array(STRING), since=5, default_factory=list)


class ListedGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4, default="")
    group_type: str = field(STRING, since=5, default="")


class ListGroupsResponse(Message, api_key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, default=0)
    groups: list[ListedGroup] = field(array(ListedGroup))
