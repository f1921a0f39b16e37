"""UnregisterBroker (64): removes a broker's registration.  Version 0, flexible."""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, nullable
from distributedlog.protocol.schema import Message, field


class UnregisterBrokerRequest(Message, api_key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible_since=0):
    broker_id: int = field(INT32)


class UnregisterBrokerResponse(Message, api_key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
