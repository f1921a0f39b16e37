"""DescribeAcls (29): lists access rules that match a filter.

Versions 1 to 3, flexible from 2.  3 adds users as a kind of resource.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class DescribeAclsRequest(Message, api_key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible_since=2):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(nullable(STRING))
    pattern_type_filter: int = field(INT8, default=3)
    principal_filter: str | None = field(nullable(STRING))
    host_filter: str | None = field(nullable(STRING))
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class AclDescription(Struct):
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, default=3)
    acls: list[AclDescription] = field(array(AclDescription))


class DescribeAclsResponse(Message, api_key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource))
