"""Limits of the gateway's port.

Callers are bounded in number, and in time until they have shown that they speak HTTP/2.  A connection
without a call for IDLE_MS_MAX is closed, or a thousand that ask nothing would keep everybody else out; a
channel connects anew when it must.  A dead caller is found by pings while a call is open.
"""

from typing import Final

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The bytes of one message, either way."""
CALLS_MAX: Final = 512
"""Calls in flight; each may have a whole message in memory before anybody looks at it."""
CALLS_PER_CONNECTION_MAX: Final = 1_024
CONNECTIONS_MAX: Final = 1_024
HANDSHAKE_TIMEOUT_MS: Final = 10_000
IDLE_MS_MAX: Final = 300_000
PING_INTERVAL_MS: Final = 10_000
PING_TIMEOUT_MS: Final = 10_000

SERVER: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", PING_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    # Two processes on one port would each get half of the calls, silently.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION_MAX),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS_MAX),
)
