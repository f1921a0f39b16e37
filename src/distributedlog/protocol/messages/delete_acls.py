"""DeleteAcls (31): removes the access rules that match filters.

Versions 1 to 3, flexible from 2.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class DeleteAclsFilter(Struct):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(nullable(STRING))
    pattern_type_filter: int = field(INT8, default=3)
    principal_filter: str | None = field(nullable(STRING))
    host_filter: str | None = field(nullable(STRING))
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsRequest(Message, api_key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible_since=2):
    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsFilterResult(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Message, api_key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult))
