"""ListConfigResources (74): the names of what has settings of its own.

Versions 0 to 1, all flexible.  0 lists client metrics only, 1 the types asked for.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT8, INT16, INT32, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class ListConfigResourcesRequest(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible_since=0
):
    resource_types: list[int] = field(array(INT8), since=1, default_factory=list)


class ConfigResource(Struct):
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, since=1, default=16)


class ListConfigResourcesResponse(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible_since=0
):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
