"""SaslAuthenticate (36): one step of a SASL exchange.

Versions 0 to 2, flexible from 2.  1 adds the session's lifetime.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BYTES, INT16, INT64, STRING, nullable
from distributedlog.protocol.schema import Message, field


class SaslAuthenticateRequest(Message, api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible_since=2):
    auth_bytes: bytes = field(BYTES)


class SaslAuthenticateResponse(Message, api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible_since=2):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1, default=0)
