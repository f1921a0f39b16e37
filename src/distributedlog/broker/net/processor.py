"""What all connections of a server share: limits, metrics, timers, and the handlers of requests.

As in Kafka a processor serves many connections on one thread, here that of the data loop.  Of the loop it
needs callbacks, timers and futures; time comes from the clock and, for what requests cost, from `timer`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distributedlog.broker.net.admission import Admission, ServerLimits
from distributedlog.broker.net.dispatch import Registrations
from distributedlog.broker.net.incoming import SCRATCH_BYTES
from distributedlog.broker.net.outgoing import TURN_BYTES, TURN_BYTES_MIN, Warmer
from distributedlog.broker.net.timing_wheel import TimingWheel
from distributedlog.broker.net.turns import Turns
from distributedlog.broker.observability.rate_limited_log import RateLimitedLog
from distributedlog.broker.observability.server_metrics import ServerMetrics
from distributedlog.broker.quotas.client_quotas import ClientQuotas
from distributedlog.broker.services import Services
from distributedlog.ports.clock import Clock

if TYPE_CHECKING:
    from distributedlog.broker.net.connection import Connection


@dataclass(slots=True, kw_only=True)
class Processor:
    """The state that all connections of a server share, and what their requests are handled with."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    timer: Callable[[], float]
    """Seconds, finely: how long requests take is measured with it, and charged where there are quotas."""
    services: Services
    handlers: Registrations
    limits: ServerLimits
    admission: Admission
    wheel: "TimingWheel[Connection]"
    metrics: ServerMetrics
    limited_log: RateLimitedLog
    quotas: ClientQuotas
    warmer: Warmer | None
    on_closed: "Callable[[Connection], None]"
    scratch: bytearray = field(default_factory=lambda: bytearray(SCRATCH_BYTES))
    turns: "Turns[Connection]" = field(init=False)
    sending: int = 0
    """Connections that had more to send than they might in a turn: the more they are, the less each sends."""
    _attended: "list[Connection]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = Turns(self.loop, self.clock)

    def turn_bytes(self, is_sending: bool) -> int:
        """How much a connection may send in one turn; whether it is counted in `sending` already, it says."""
        return max(TURN_BYTES_MIN, TURN_BYTES // (1 + self.sending - is_sending))

    def attend_soon(self, connection: "Connection") -> None:
        """Once for all that happens to it in this turn of the loop: one write instead of many."""
        if not self._attended:
            self.loop.call_soon(self._attend)
        self._attended.append(connection)

    def _attend(self) -> None:
        attended, self._attended = self._attended, []
        for connection in attended:
            connection.attend()
