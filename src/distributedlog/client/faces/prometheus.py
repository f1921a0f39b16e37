"""What clients count, as Prometheus collects it: `distributedlog.ClientCollector`.

    collector = ClientCollector()
    REGISTRY.register(collector)
    collector.add("orders", producer)

Each figure of a client's `metrics()` is a family, `dlog_client_producer_…` or `dlog_client_consumer_…`, with
the client's name as its label: `_total` where it only grows, a gauge where not.  Figures are read when
somebody scrapes, on the thread of the scrape.  A producer that is closed is passed over; of a consumer the
last figures stay until it is removed.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from distributedlog.model.errors import ClientClosedError, ConfigError

GAUGES: Final = {
    "buffered_bytes": "Bytes that are not delivered yet.",
    "delivery_ms_max": "The longest delivery of a batch, in milliseconds.",
    "fetch_ms_max": "The longest fetch, in milliseconds.",
    "lag": "Offsets before the ends of all partitions that are read.",
    "lag_max": "Offsets before the end of the partition that is furthest behind.",
    "partitions": "Partitions that are assigned.",
    "in_hand": "Records that wait for their handler or are with it.",
    "under_way": "Records that are with their handler.",
}
COUNTERS: Final = {
    "records_delivered": "Records that were acknowledged.",
    "records_failed": "Records that were not delivered.",
    "batches_delivered": "Batches that were acknowledged.",
    "batches_failed": "Batches that were not delivered.",
    "bytes_delivered": "Bytes of batches that were acknowledged, as they travelled.",
    "retries": "Batches that were sent again.",
    "delivery_ms_total": "Milliseconds from a batch's first record to its acknowledgement, of all batches.",
    "records": "Records that were given out.",
    "fetches": "Fetches that were answered.",
    "fetch_bytes": "Bytes of batches that were fetched, as they travelled.",
    "fetch_ms_total": "Milliseconds that fetches took, the wait for records included.",
    "commits": "Commits of offsets.",
    "commits_failed": "Commits of offsets that failed and were made by the client itself.",
    "rebalances": "Rebalances of the group that this member took part in.",
    "truncations": "Positions that were beyond where a new leader's log parts from what was read.",
}


class Counting(Protocol):
    """A producer, a consumer, or whatever else has figures."""

    def metrics(self) -> dict[str, int]: ...


class ClientCollector(Collector):
    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], Counting] = {}

    def add(self, name: str, client: Counting) -> None:
        """Collects the figures of this client, under a name that no other of its kind has."""
        kind = type(client).__name__.lower()
        if (kind, name) in self._clients:
            raise ConfigError(f"there is a {kind} of the name {name!r} already")
        self._clients[(kind, name)] = client

    def remove(self, client: Counting) -> None:
        self._clients = {each: known for each, known in self._clients.items() if known is not client}

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for (kind, name), client in self._clients.copy().items():
            try:
                figures = client.metrics()
            except ClientClosedError:
                continue
            for figure, value in figures.items():
                family = f"dlog_client_{kind}_{figure.removesuffix('_total')}"
                if family not in families:
                    families[family] = _family(family, figure)
                families[family].add_metric([name], value)
        yield from families.values()


def _family(name: str, figure: str) -> CounterMetricFamily | GaugeMetricFamily:
    if figure in GAUGES:
        return GaugeMetricFamily(name, GAUGES[figure], labels=["name"])
    return CounterMetricFamily(name, COUNTERS.get(figure, figure.replace("_", " ")), labels=["name"])
