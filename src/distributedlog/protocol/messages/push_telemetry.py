"""PushTelemetry (72): a client's metrics (KIP-714).

Version 0, flexible.
"""

from distributedlog.model.ids import Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, BYTES, INT8, INT16, INT32, UUID
from distributedlog.protocol.schema import Message, field


class PushTelemetryRequest(Message, api_key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible_since=0):
    client_instance_id: Uuid = field(UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOL)
    compression_type: int = field(INT8)
    metrics: bytes = field(BYTES)


class PushTelemetryResponse(Message, api_key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
