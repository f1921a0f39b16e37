"""AlterClientQuotas (49): sets or removes quotas.

Versions 0 to 1, flexible from 1.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, FLOAT64, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(nullable(STRING))


class OpData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


class AlterClientQuotasRequest(
    Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_since=1
):
    entries: list[EntryData] = field(array(EntryData))
    validate_only: bool = field(BOOL)


class EntryResult(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    entity: list[EntityData] = field(array(EntityData))


class AlterClientQuotasResponse(
    Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_since=1
):
    throttle_time_ms: int = field(INT32, default=0)
    entries: list[EntryResult] = field(array(EntryResult))
