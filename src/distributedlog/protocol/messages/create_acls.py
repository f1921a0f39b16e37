"""CreateAcls (30): adds access rules.

Versions 1 to 3, flexible from 2.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class AclCreation(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class CreateAclsRequest(Message, api_key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible_since=2):
    creations: list[AclCreation] = field(array(AclCreation))


class AclCreationResult(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)


class CreateAclsResponse(Message, api_key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[AclCreationResult] = field(array(AclCreationResult))
