"""The gateway's numbers for Prometheus, and the port that they are on.

    GET /metrics        calls, errors, times, bytes and streams
    GET /health/ready   200 if the cluster serves; 503 and why it does not

The port is the same as a broker's (`broker/observability/operations`), with its bounds.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from distributedlog.broker.observability.metrics import Family, FamilyKind, Histogram, Sample, one

if TYPE_CHECKING:
    from distributedlog.settings.addresses import Endpoint

STARTING = "the cluster was not asked yet"


class GatewayCounters:
    """Counts on the gateway's loop.  Methods and statuses are few, and none is a caller's invention."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._received: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._streams = 0
        self._reason: str | None = STARTING

    def called(self, method: str, status: str, seconds: float, received_bytes: int) -> None:
        self._calls[method, status] = self._calls.get((method, status), 0) + 1
        self._seconds.setdefault(method, Histogram()).observe(seconds)
        self._received[method] = self._received.get(method, 0) + received_bytes

    def sent(self, method: str, size_bytes: int) -> None:
        self._sent[method] = self._sent.get(method, 0) + size_bytes

    def set_streams(self, count: int) -> None:
        self._streams = count

    def set_health(self, reason: str | None) -> None:
        self._reason = reason

    def why_not_ready(self) -> str | None:
        return self._reason

    def families(self) -> Sequence[Family]:
        counter, gauge, histogram = FamilyKind.COUNTER, FamilyKind.GAUGE, FamilyKind.HISTOGRAM
        calls = [
            Sample({"method": method, "status": status}, count)
            for (method, status), count in sorted(self._calls.items())
        ]
        seconds = [Sample({"method": method}, each.copy()) for method, each in sorted(self._seconds.items())]
        return [
            Family(counter, "dlog_gateway_calls", "Calls that have ended, by gRPC's status.", calls),
            Family(histogram, "dlog_gateway_call_seconds", "How long calls took.", seconds),
            _of_methods("dlog_gateway_received_bytes", "Bytes of requests.", self._received),
            _of_methods("dlog_gateway_sent_bytes", "Bytes of responses.", self._sent),
            one(gauge, "dlog_gateway_streams", "Streams that are being read.", self._streams),
            one(gauge, "dlog_gateway_ready", "1 while the cluster serves.", float(self._reason is None)),
        ]


def _of_methods(name: str, documentation: str, counts: dict[str, int]) -> Family:
    samples = [Sample({"method": method}, count) for method, count in sorted(counts.items())]
    return Family(FamilyKind.COUNTER, name, documentation, samples)


@asynccontextmanager
async def shown(counters: GatewayCounters, endpoint: "Endpoint | None") -> AsyncIterator["Endpoint | None"]:
    """Shows the counters on a port for as long as it is entered; where, in fact, or None if nowhere."""
    if endpoint is None:
        yield None
        return
    from distributedlog.broker.observability.operations import OperationsServer

    server = OperationsServer(counters, counters.why_not_ready)
    bound = await server.start(endpoint)
    try:
        yield bound
    finally:
        await server.stop()
