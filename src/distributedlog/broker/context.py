"""Who asks, from where, and until when the answer is of use: given to every handler beside the request.

Handlers take the principal from here, never from the connection, so that authentication changes who is named
and no handler.  Both times are of the monotonic clock (`Services.clock.monotonic_ms`).
"""

from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a listener without authentication, spelled as Kafka does."""


class RequestContext(NamedTuple):
    principal: str
    listener: str
    """The name of the listener it came in by: answers name brokers by their addresses on the same one."""
    client_id: str | None
    client_host: str
    connection_id: int
    """Unique within the life of the process."""
    api_version: int
    received_ms: int
    deadline_ms: int
    """After this the server answers REQUEST_TIMED_OUT itself, or closes the connection."""
