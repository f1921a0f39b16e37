"""The Kafka server: takes connections from its acceptor, and in the end drains.

A connection beyond the limits is accepted and closed at once, so that its client hears of it.  Everything
happens on the loop's thread.

    start   takes the addresses of all listeners, then accepts
    stop    no more connections, no more requests; what was begun is answered until the deadline; then all end

The acceptor and the channels it gives are all that this package knows of sockets (`acceptor`, `channel`).
"""

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

from distributedlog.broker.net.acceptor import Acceptor, SocketAcceptor
from distributedlog.broker.net.admission import Admission, ServerLimits
from distributedlog.broker.net.channel import Channel
from distributedlog.broker.net.connection import DRAINED, REFUSED, Connection
from distributedlog.broker.net.dispatch import HANDLERS, Handlers
from distributedlog.broker.net.outgoing import Warmer
from distributedlog.broker.net.processor import Processor
from distributedlog.broker.net.timing_wheel import TimingWheel
from distributedlog.broker.observability.rate_limited_log import RateLimitedLog
from distributedlog.broker.observability.server_metrics import NoMetrics, ServerMetrics
from distributedlog.broker.quotas.client_quotas import ClientQuotas
from distributedlog.broker.services import Services
from distributedlog.settings.addresses import Endpoint
from distributedlog.settings.node_settings import NodeSettings

logger = logging.getLogger(__name__)


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
        acceptor: Acceptor | None = None,
        timer: Callable[[], float] = perf_counter,
    ) -> None:
        self._loop = loop
        self._acceptor = acceptor or SocketAcceptor(settings.listeners, loop, services.clock)
        self._metrics = metrics or NoMetrics()
        self._connections: dict[Connection, None] = {}
        """All that are open, in the order they came, in which they are also drained and closed."""
        self._next_connection_id = 0
        self._all_closed: asyncio.Future[None] | None = None
        limits = limits or ServerLimits.of(settings)
        admission = Admission(limits, loop.call_soon)
        limited_log = RateLimitedLog(logger, services.clock)
        self._processor = Processor(
            loop=loop,
            clock=services.clock,
            timer=timer,
            services=services,
            handlers=(handlers or HANDLERS).by_key,
            limits=limits,
            admission=admission,
            wheel=TimingWheel(loop, services.clock, limits.tick_ms),
            metrics=self._metrics,
            limited_log=limited_log,
            quotas=quotas or ClientQuotas(),
            warmer=warmer,
            on_closed=self._on_closed,
        )

    @property
    def addresses(self) -> dict[str, Endpoint]:
        """Where each listener is bound, by its name."""
        return self._acceptor.addresses

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of requests that are unanswered, and of large frames that are being received."""
        return self._processor.admission.in_flight_bytes

    # --- listening -----------------------------------------------------------------------------

    def bind(self) -> None:
        """Takes the addresses, all or none; ConfigError if one cannot be had.  Serves nobody yet."""
        self._acceptor.bind()

    def serve(self) -> None:
        """Begins to accept."""
        self._acceptor.accept(self._admit)

    def start(self) -> None:
        self.bind()
        self.serve()

    def _admit(self, channel: Channel, host: str, listener: str) -> None:
        admission = self._processor.admission
        self._metrics.connection_opened(listener)
        excess = admission.find_excess(host)
        if excess is not None:
            channel.close()
            self._metrics.connection_closed(listener, REFUSED)
            self._processor.limited_log.warn(host, "one connection too many", excess)
            return
        admission.enter(host)
        self._next_connection_id += 1
        connection = Connection(
            self._processor,
            channel,
            peer_host=host,
            listener=listener,
            connection_id=self._next_connection_id,
        )
        self._connections[connection] = None

    def _on_closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._processor.admission.leave(connection.peer_host)
        if not self._connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    # --- the end -------------------------------------------------------------------------------

    async def stop(self, drain_ms: int) -> None:
        """Returns when every connection is closed: those with nothing under way at once, none later than
        `drain_ms` from now."""
        self._acceptor.close()
        if self._connections:
            self._all_closed = self._loop.create_future()
            for connection in list(self._connections):
                connection.drain()
            await asyncio.wait([self._all_closed], timeout=drain_ms / 1000)
            for connection in list(self._connections):
                connection.close(DRAINED, "")
        self._processor.wheel.close()
