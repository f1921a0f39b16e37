"""GetTelemetrySubscriptions (71): which metrics the broker wants of a client (KIP-714).

Version 0, flexible.
"""

from distributedlog.model.ids import Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, UUID, array
from distributedlog.protocol.schema import Message, field


class GetTelemetrySubscriptionsRequest(
    Message, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible_since=0
):
    client_instance_id: Uuid = field(UUID)


class GetTelemetrySubscriptionsResponse(
    Message, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    client_instance_id: Uuid = field(UUID)
    subscription_id: int = field(INT32)
    accepted_compression_types: list[int] = field(array(INT8))
    push_interval_ms: int = field(INT32)
    telemetry_max_bytes: int = field(INT32)
    delta_temporality: bool = field(BOOL)
    requested_metrics: list[str] = field(array(STRING))
