"""IncrementalAlterConfigs (44): sets, deletes, extends or shortens single settings.

Versions 0 to 1, flexible from 1.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class AlterableConfig(Struct):
    name: str = field(STRING)
    config_operation: int = field(INT8)
    """0 set, 1 delete, 2 append to a list, 3 subtract from it."""
    value: str | None = field(nullable(STRING))


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class IncrementalAlterConfigsRequest(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible_since=1
):
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class IncrementalAlterConfigsResponse(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible_since=1
):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
