"""The node's numbers as Prometheus' text, made when somebody asks for them.

This is the only module that imports the client library of Prometheus, and it is imported by the first
scrape: that takes a good part of the time in which a node has to be ready.  Rendering works on families that
are no longer connected with what is counted, so it can be done beside the loop.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from distributedlog._version import __version__
from distributedlog.broker.observability.metrics import SECONDS_BOUNDS, Family, FamilyKind, Histogram

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_BOUND_TEXTS: Final = (*(str(bound) for bound in SECONDS_BOUNDS), "+Inf")


def render(families: Sequence[Family]) -> bytes:
    """The text of one scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Once(Collector):
    """A collector of one scrape: the families of one time."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("dlog_build_info", "The version that runs.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        for family in self._families:
            yield _convert(family)


def _convert(family: Family) -> Metric:
    names = list(family.samples[0].labels) if family.samples else []
    if family.kind is FamilyKind.HISTOGRAM:
        return _convert_histogram(family, names)
    metric: CounterMetricFamily | GaugeMetricFamily
    if family.kind is FamilyKind.COUNTER:
        metric = CounterMetricFamily(family.name, family.documentation, labels=names)
    else:
        metric = GaugeMetricFamily(family.name, family.documentation, labels=names)
    for sample in family.samples:
        assert not isinstance(sample.value, Histogram)
        metric.add_metric(list(sample.labels.values()), sample.value)
    return metric


def _convert_histogram(family: Family, names: list[str]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.documentation, labels=names)
    for sample in family.samples:
        assert isinstance(sample.value, Histogram)
        buckets, below = [], 0
        for bound, count in zip(_BOUND_TEXTS, sample.value.counts, strict=True):
            below += count
            buckets.append((bound, float(below)))
        metric.add_metric(list(sample.labels.values()), buckets, sample.value.total)
    return metric
