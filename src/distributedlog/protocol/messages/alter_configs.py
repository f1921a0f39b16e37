"""AlterConfigs (33): replaces all settings of a resource (IncrementalAlterConfigs changes single ones).

Versions 0 to 2, flexible from 2.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class AlterableConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class AlterConfigsRequest(Message, api_key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible_since=2):
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class AlterConfigsResponse(Message, api_key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
