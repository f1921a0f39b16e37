"""The Kafka server: listens, accepts, and in the end drains.

One reader of the loop per listening socket and one per connection; everything happens on the loop's thread.
A connection beyond the limits is accepted and closed at once, so that its client hears of it.  When the
process has no descriptors left the listener rests for a moment instead of spinning: what is open goes on.

    start   binds every listener (port 0: a free one, see `addresses`), then accepts
    stop    no more connections, no more requests; what was begun is answered until the deadline; then all end
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Sequence
from typing import Final

from distributedlog.broker.addresses import Endpoint, Listener
from distributedlog.broker.admission import Admission, ServerLimits
from distributedlog.broker.complaints import Complaints
from distributedlog.broker.connection import DRAINED, REFUSED, Connection, Hub
from distributedlog.broker.dispatch import HANDLERS, Handlers
from distributedlog.broker.exchange import Desk
from distributedlog.broker.outgoing import Warmer
from distributedlog.broker.quotas import ClientQuotas
from distributedlog.broker.server_metrics import NoMetrics, ServerMetrics
from distributedlog.broker.services import Services
from distributedlog.broker.settings import NodeSettings
from distributedlog.broker.timing_wheel import TimingWheel
from distributedlog.model.errors import ConfigError

logger = logging.getLogger(__name__)

BACKLOG_MAX: Final = 1024
ACCEPTS_PER_TURN: Final = 4
"""One takes as long as a request, and those who are connected wait."""
REST_SECONDS: Final = 0.2
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class KafkaServer:
    def __init__(
        self,
        settings: NodeSettings,
        services: Services,
        loop: asyncio.AbstractEventLoop,
        *,
        handlers: Handlers | None = None,
        metrics: ServerMetrics | None = None,
        limits: ServerLimits | None = None,
        warmer: Warmer | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._listeners: Sequence[Listener] = settings.listeners
        self._loop = loop
        self._metrics = metrics or NoMetrics()
        self._sockets: dict[str, socket.socket] = {}
        self._connections: set[Connection] = set()
        self._next_connection_id = 0
        self._all_closed: asyncio.Future[None] | None = None
        self._resting: dict[str, asyncio.TimerHandle] = {}
        limits = limits or ServerLimits.of(settings)
        admission = Admission(limits, loop.call_soon)
        complaints = Complaints(logger, services.clock)
        by_key = (handlers or HANDLERS).by_key
        desk = Desk(
            services, by_key, limits, admission, self._metrics, complaints, loop, quotas or ClientQuotas()
        )
        self._hub = Hub(
            loop=loop,
            clock=services.clock,
            desk=desk,
            limits=limits,
            admission=admission,
            wheel=TimingWheel(loop, services.clock, limits.tick_ms),
            metrics=self._metrics,
            complaints=complaints,
            warmer=warmer,
            on_closed=self._on_closed,
        )

    @property
    def addresses(self) -> dict[str, Endpoint]:
        """Where each listener is bound, by its name."""
        return {name: Endpoint(*bound.getsockname()[:2]) for name, bound in self._sockets.items()}

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def in_flight_bytes(self) -> int:
        """Of requests that are unanswered, and of large frames that are being received."""
        return self._hub.admission.in_flight_bytes

    # --- listening -----------------------------------------------------------------------------

    def bind(self) -> None:
        """Takes the addresses, all or none; ConfigError if one cannot be had.  Serves nobody yet."""
        try:
            for listener in self._listeners:
                self._sockets[listener.name] = _bound(listener)
        except ConfigError:
            self._close_listeners()
            raise

    def serve(self) -> None:
        """Begins to accept."""
        for name, listening in self._sockets.items():
            listening.listen(BACKLOG_MAX)
            self._loop.add_reader(listening.fileno(), self._on_acceptable, name)

    def start(self) -> None:
        self.bind()
        self.serve()

    def _on_acceptable(self, name: str) -> None:
        listening = self._sockets[name]
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(name, error)
                    return
                # The client gave up before it was accepted.
                continue
            self._admit(accepted, str(address[0]), name)

    def _rest(self, name: str, error: OSError) -> None:
        self._hub.complaints.about("listener " + name, "cannot accept", error.strerror or str(error))
        self._loop.remove_reader(self._sockets[name].fileno())
        self._resting[name] = self._loop.call_later(REST_SECONDS, self._rested, name)

    def _rested(self, name: str) -> None:
        del self._resting[name]
        self._loop.add_reader(self._sockets[name].fileno(), self._on_acceptable, name)

    def _admit(self, accepted: socket.socket, host: str, listener: str) -> None:
        admission = self._hub.admission
        self._metrics.connection_opened(listener)
        refusal = admission.refusal(host)
        if refusal is not None:
            accepted.close()
            self._metrics.connection_closed(listener, REFUSED)
            self._hub.complaints.about(host, "one connection too many", refusal)
            return
        accepted.setblocking(False)
        # A client that is gone already cannot be set up; reading will say so.
        with contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        admission.enter(host)
        self._next_connection_id += 1
        self._connections.add(
            Connection(
                self._hub,
                accepted,
                peer_host=host,
                listener=listener,
                connection_id=self._next_connection_id,
            )
        )

    def _on_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._hub.admission.leave(connection.peer_host)
        if not self._connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    # --- the end -------------------------------------------------------------------------------

    async def stop(self, drain_ms: int) -> None:
        """Returns when every connection is closed: those with nothing under way at once, none later than
        `drain_ms` from now."""
        self._close_listeners()
        if self._connections:
            self._all_closed = self._loop.create_future()
            for connection in list(self._connections):
                connection.drain()
            await asyncio.wait([self._all_closed], timeout=drain_ms / 1000)
            for connection in list(self._connections):
                connection.close(DRAINED, "")
        self._hub.wheel.close()

    def _close_listeners(self) -> None:
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for listening in self._sockets.values():
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()


def _bound(listener: Listener) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((listener.host, listener.port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"cannot listen on {listener}: {error.strerror or error}; choose another address in `listeners`"
        ) from error
    bound.setblocking(False)
    return bound
