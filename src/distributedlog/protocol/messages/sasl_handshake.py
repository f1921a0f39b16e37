"""SaslHandshake (17): agrees on a SASL mechanism.

Versions 0 to 1, none flexible.  After 0 raw tokens follow without framing; after 1 they travel in
SaslAuthenticate.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, STRING, array
from distributedlog.protocol.schema import Message, field


class SaslHandshakeRequest(Message, api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Message, api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    error_code: int = field(INT16, default=0)
    mechanisms: list[str] = field(array(STRING))
