"""DescribeConfigs (32): settings of topics and brokers, with where they come from.

Versions 1 to 4, flexible from 4.  3 adds types and documentation.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class DescribeConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(nullable(array(STRING)))
    """Null: all settings."""


class DescribeConfigsRequest(Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible_since=4):
    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL, default=False)
    include_documentation: bool = field(BOOL, since=3, default=False)


class DescribeConfigsSynonym(Struct):
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))
    source: int = field(INT8)


class DescribeConfigsResourceResult(Struct):
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym))
    config_type: int = field(INT8, since=3, default=0)
    documentation: str | None = field(nullable(STRING), since=3, default=None)


class DescribeConfigsResult(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible_since=4):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
