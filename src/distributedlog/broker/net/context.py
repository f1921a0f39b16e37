"""Who asks, from where, and until when the response is of use: given to every handler beside the request.

Handlers take the principal from here, never from the connection, so that authentication changes who is named
and no handler.  Both times are of the monotonic clock (`Services.clock.monotonic_ms`).
"""

from typing import Final, NamedTuple

from distributedlog.broker.peers.authentication import BrokerIdentity, Verifier
from distributedlog.model.errors import DlogError

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a listener without authentication, spelled as Kafka does."""


class RefusedBatch(NamedTuple):
    """A batch of an idempotent producer that was refused for a reason that passes."""

    producer_epoch: int
    base_sequence: int
    error: type[DlogError]
    """Not the error itself: with its traceback it would keep the request, and the frame."""
    message: str


class ConnectionSession:
    """What a connection has proved or said of itself, by requests that came over it."""

    __slots__ = ("broker", "has_asked_isolated", "refused_batches", "software_name", "verifier")

    def __init__(self) -> None:
        self.verifier: Verifier | None = None
        """An exchange that was begun (SaslHandshake)."""
        self.broker: BrokerIdentity | None = None
        """The broker at the other end; None for every client."""
        self.software_name = ""
        """The name that the client gave its software (ApiVersions 3 and up)."""
        self.has_asked_isolated = False
        """It has asked for brokers or leaders while this broker is isolated."""
        self.refused_batches: dict[tuple[str, int, int], RefusedBatch] = {}
        """The batch, by partition and producer, before which nothing of that producer is appended."""


class RequestContext(NamedTuple):
    principal: str
    listener: str
    """The name of the listener it came in by: responses name brokers by their addresses on the same one."""
    client_id: str | None
    client_host: str
    connection_id: int
    """Unique within the life of the process."""
    api_version: int
    received_ms: int
    deadline_ms: int
    """The time after which the server responds with REQUEST_TIMED_OUT itself, or closes the connection."""
    session: ConnectionSession | None = None

    @property
    def broker(self) -> BrokerIdentity | None:
        """The broker that has proved to be at the other end; None for every client."""
        return None if self.session is None else self.session.broker

    @property
    def software_name(self) -> str:
        return "" if self.session is None else self.session.software_name
