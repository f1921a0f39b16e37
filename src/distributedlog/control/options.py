"""Limits and settings of every channel and server of the control plane.

A dead peer is found by pings while a call is open: after PING_INTERVAL_MS of silence plus PING_TIMEOUT_MS the
connection is given up.  That is below a broker's session timeout, so that whoever waits for a dead controller
asks the next one in time.

Who connects is bounded in number, and in time until it has shown that it speaks HTTP/2: connections hold file
descriptors, and a process that has none left cannot write its logs.  One without a call for IDLE_MS_MAX is
closed, or a thousand that ask nothing would keep everybody else out; a channel connects anew when it must.

gRPC tries nothing again by itself (`enable_retries` 0, no settings from DNS): only the caller knows what may
be asked twice.  It does reconnect, with jitter, ever more slowly up to RECONNECT_MS_MAX.
"""

from typing import Final

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The bytes of one message on the wire; the largest entry of the metadata log (8 MiB) and its wrapping
fit."""
STREAMS_MAX: Final = 1_024
"""Calls that one connection has open at a time."""
CONNECTIONS_MAX: Final = 1_024
"""The connections that one server has at a time; one too many is closed as soon as it is accepted."""
HANDSHAKE_TIMEOUT_MS: Final = 10_000
IDLE_MS_MAX: Final = 300_000
PING_INTERVAL_MS: Final = 3_000
PING_TIMEOUT_MS: Final = 3_000
RECONNECT_MS_MIN: Final = 100
RECONNECT_MS_MAX: Final = 500
"""The longest pause before connecting again, below an election timeout: a node that comes back is not taken
for absent."""
CONNECT_TIMEOUT_MS: Final = 2_000

Options = tuple[tuple[str, int], ...]

_COMMON: Final[Options] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", PING_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
)

CHANNEL: Final[Options] = (
    *_COMMON,
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.enable_http_proxy", 0),
    # Its own connections: another channel's pauses and failures are not ours.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
)

SERVER: Final[Options] = (
    *_COMMON,
    # Two processes on one port would each get half of the calls, silently.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS_MAX),
    ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS // 2),
    ("grpc.http2.max_ping_strikes", 4),
)
