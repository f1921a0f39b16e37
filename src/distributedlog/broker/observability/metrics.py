"""What a node counts, kept in plain numbers: the hot path adds to them, a scrape reads them.

The client library of Prometheus takes a lock for every increment and walks a dictionary of labels; a request
has about five of them.  So nothing of it is used here: counting is integer arithmetic on the data loop, which
alone calls the methods, and `metrics_export` turns the numbers into Prometheus' text at a scrape.

    what                     who counts                        how it is bounded
    requests, per API        the Kafka server (ServerMetrics)  256 names of APIs, all others as "(other)"
    messages and bytes       produce and fetch handlers        TOPICS_MAX topics, all others as "(other)"
    times (requests, fsync)  as above, and the group sync      a histogram of fixed buckets
    control plane            the control loop                  one immutable ControlStatus, replaced whole
    log sizes and such       sources, called at each scrape    by whoever gives them

Only `control` is set from another thread: by one assignment of an immutable value.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

TOPICS_MAX: Final = 1_000
APIS_MAX: Final = 256
REASONS_MAX: Final = 64
OTHER: Final = "(other)"
SECONDS_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip


class FamilyKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Histogram:
    """How often a value fell into each bucket.  The last bucket has no upper bound."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        self.total += seconds

    def copy(self) -> "Histogram":
        other = Histogram()
        other.counts = list(self.counts)
        other.total = self.total
        return other


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float | Histogram


class Family(NamedTuple):
    """All samples of one name, taken at one time."""

    kind: FamilyKind
    name: str
    documentation: str
    samples: list[Sample]


T = TypeVar("T")
MetricsSource = Callable[[], Iterable[Family]]


def one(kind: FamilyKind, name: str, documentation: str, value: float) -> Family:
    """A family of a single number without labels."""
    return Family(kind, name, documentation, [Sample({}, value)])


class ControlStatus(NamedTuple):
    """How the control plane stands; made by the control loop whenever something changed."""

    role: str = "observer"
    """leader, candidate, follower, observer."""
    leader_id: int | None = None
    term: int = 0
    commit_index: int = 0
    elections: int = 0
    """Begun by this node."""
    is_active_controller: bool = False
    image_offset: int = -1
    brokers: int = 0
    brokers_fenced: int = 0
    is_fenced: bool = True
    """Whether this node is fenced as a broker."""
    heartbeats: int = 0
    heartbeats_failed: int = 0
    refused: Mapping[str, int] = MappingProxyType({})
    unproven: int = 0
    """What the control port did not take, counted by reason."""


ROLE_WORDS: Final = ("leader", "candidate", "follower", "observer")


class _Api:
    __slots__ = ("bytes_in", "errors", "latency", "received")

    def __init__(self) -> None:
        self.received = 0
        self.bytes_in = 0
        self.errors: dict[int, int] = {}
        self.latency = Histogram()


class _Topic:
    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.records_out = 0
        self.bytes_out = 0


class BrokerMetrics:
    """Implements ServerMetrics.  Called on the data loop."""

    def __init__(self, *, topics_max: int = TOPICS_MAX) -> None:
        self.control = ControlStatus()
        self.data_loop_lag_seconds = 0.0
        self._topics_max = topics_max
        self._apis: dict[str, _Api] = {}
        self._topics: dict[str, _Topic] = {}
        self._connections: dict[str, int] = {}
        self._opened: dict[str, int] = {}
        self._closed: dict[tuple[str, str], int] = {}
        self._bytes_out = 0
        self._delayed = 0
        self.peers_refused = 0
        self._fsync = Histogram()
        self._loop_lag = Histogram()
        self._sources: list[MetricsSource] = []

    # --- the Kafka server ----------------------------------------------------------------------

    def connection_opened(self, listener: str) -> None:
        self._connections[listener] = self._connections.get(listener, 0) + 1
        self._opened[listener] = self._opened.get(listener, 0) + 1

    def connection_closed(self, listener: str, reason: str) -> None:
        self._connections[listener] = self._connections.get(listener, 0) - 1
        key = (listener, reason)
        if key not in self._closed and len(self._closed) >= REASONS_MAX:
            key = (listener, OTHER)
        self._closed[key] = self._closed.get(key, 0) + 1

    def request_received(self, api: str, version: int, size: int) -> None:
        counts = self._apis.get(api) or self._new_api(api)
        counts.received += 1
        counts.bytes_in += size

    def request_answered(self, api: str, seconds: float, error_code: int) -> None:
        counts = self._apis.get(api) or self._new_api(api)
        counts.latency.observe(seconds)
        if error_code:
            counts.errors[error_code] = counts.errors.get(error_code, 0) + 1

    def bytes_out(self, n: int) -> None:
        self._bytes_out += n

    def requests_delayed(self, delta: int) -> None:
        self._delayed += delta

    def _new_api(self, api: str) -> _Api:
        return self._apis.setdefault(api if len(self._apis) < APIS_MAX else OTHER, _Api())

    # --- partitions and disk -------------------------------------------------------------------

    def produced(self, topic: str, records: int, size_bytes: int) -> None:
        """Records that were appended for a producer."""
        counts = self._topics.get(topic) or self._new_topic(topic)
        counts.records_in += records
        counts.bytes_in += size_bytes

    def fetched(self, topic: str, records: int, size_bytes: int) -> None:
        """Counts what a consumer or follower is sent.  Records are 0 where nobody counted them."""
        counts = self._topics.get(topic) or self._new_topic(topic)
        counts.records_out += records
        counts.bytes_out += size_bytes

    def peer_refused(self) -> None:
        """Counts a connection that claimed to be a broker's and proved nothing."""
        self.peers_refused += 1

    def _new_topic(self, topic: str) -> _Topic:
        return self._topics.setdefault(topic if len(self._topics) < self._topics_max else OTHER, _Topic())

    def forget_topic(self, topic: str) -> None:
        """It was deleted: its name makes room."""
        self._topics.pop(topic, None)

    def synced(self, seconds: float) -> None:
        """One fsync of a log."""
        self._fsync.observe(seconds)

    def data_loop_lagged(self, seconds: float) -> None:
        """Notes how much later than it was due the loop ran a callback."""
        self.data_loop_lag_seconds = seconds
        self._loop_lag.observe(seconds)

    # --- a scrape ------------------------------------------------------------------------------

    def add_source(self, source: MetricsSource) -> None:
        """Adds a source that is called at each scrape, on the data loop: it must be quick."""
        self._sources.append(source)

    def families(self) -> list[Family]:
        """Everything, as of now and no longer connected with what is counted on."""
        found = [*self._server_families(), *self._topic_families(), *self._loop_families()]
        found.extend(control_families(self.control))
        for source in self._sources:
            found.extend(source())
        return found

    def _server_families(self) -> Iterator[Family]:
        counter, gauge = FamilyKind.COUNTER, FamilyKind.GAUGE
        apis = list(self._apis.items())
        yield Family(
            counter, "dlog_requests", "Requests that came in.", _of(apis, "api", lambda api: api.received)
        )
        yield Family(
            counter, "dlog_request_bytes", "Bytes of requests.", _of(apis, "api", lambda api: api.bytes_in)
        )
        yield Family(
            FamilyKind.HISTOGRAM, "dlog_request_seconds",
            "From a request's arrival until its response is ready to be sent.",
            _of(apis, "api", lambda api: api.latency.copy()),
        )  # fmt: skip
        errors = [
            Sample({"api": name, "code": str(code)}, count)
            for name, api in apis
            for code, count in api.errors.items()
        ]
        yield Family(counter, "dlog_request_errors", "Responses with an error, by Kafka's code.", errors)
        yield one(counter, "dlog_response_bytes", "Bytes that were sent to clients.", self._bytes_out)
        yield one(gauge, "dlog_delayed_requests", "Requests that wait for their response.", self._delayed)
        yield Family(
            gauge, "dlog_connections", "Open connections of clients.",
            _of(self._connections.items(), "listener", lambda count: count),
        )  # fmt: skip
        yield Family(
            counter, "dlog_connections_opened", "Connections that were accepted.",
            _of(self._opened.items(), "listener", lambda count: count),
        )  # fmt: skip
        closed = [
            Sample({"listener": listener, "reason": reason}, count)
            for (listener, reason), count in self._closed.items()
        ]
        yield one(
            counter, "dlog_peer_connections_refused",
            "Connections that claimed to be a broker's and did not prove it.", self.peers_refused,
        )  # fmt: skip
        yield Family(counter, "dlog_connections_closed", "Connections that ended, and why.", closed)

    def _topic_families(self) -> Iterator[Family]:
        counter, topics = FamilyKind.COUNTER, list(self._topics.items())
        yield Family(
            counter, "dlog_topic_records_in", "Records that were appended for producers.",
            _of(topics, "topic", lambda topic: topic.records_in),
        )  # fmt: skip
        yield Family(
            counter, "dlog_topic_bytes_in", "Bytes that were appended for producers.",
            _of(topics, "topic", lambda topic: topic.bytes_in),
        )  # fmt: skip
        yield Family(
            counter, "dlog_topic_records_out", "Records that were sent, where they were counted.",
            _of(topics, "topic", lambda topic: topic.records_out),
        )  # fmt: skip
        yield Family(
            counter, "dlog_topic_bytes_out", "Bytes of records that were sent.",
            _of(topics, "topic", lambda topic: topic.bytes_out),
        )  # fmt: skip

    def _loop_families(self) -> Iterator[Family]:
        histogram = FamilyKind.HISTOGRAM
        yield Family(
            histogram, "dlog_fsync_seconds", "Syncs of logs to the disk.", [Sample({}, self._fsync.copy())]
        )
        yield Family(
            histogram, "dlog_data_loop_lag_seconds", "How late the data loop ran what was due.",
            [Sample({}, self._loop_lag.copy())],
        )  # fmt: skip


def _of(items: Iterable[tuple[str, T]], label: str, value: Callable[[T], float | Histogram]) -> list[Sample]:
    return [Sample({label: name}, value(each)) for name, each in items]


def control_families(status: ControlStatus) -> Iterator[Family]:
    counter, gauge = FamilyKind.COUNTER, FamilyKind.GAUGE
    roles = [Sample({"role": word}, float(word == status.role)) for word in ROLE_WORDS]
    yield Family(gauge, "dlog_raft_role", "1 for the role that the node has in the quorum.", roles)
    leader_id = -1 if status.leader_id is None else status.leader_id
    yield one(gauge, "dlog_raft_leader_id", "The leader that the node knows of; -1 for none.", leader_id)
    yield one(gauge, "dlog_raft_term", "The term, which is the controller epoch.", status.term)
    yield one(
        gauge, "dlog_raft_commit_index", "Up to where the metadata log is committed.", status.commit_index
    )
    yield one(counter, "dlog_raft_elections", "Elections that this node began.", status.elections)
    yield one(
        gauge, "dlog_controller_active", "1 on the active controller.", float(status.is_active_controller)
    )
    yield one(gauge, "dlog_metadata_offset", "The entry that the node's image is of.", status.image_offset)
    yield one(gauge, "dlog_brokers", "Registered brokers.", status.brokers)
    yield one(gauge, "dlog_brokers_fenced", "Registered brokers that are fenced.", status.brokers_fenced)
    yield one(gauge, "dlog_broker_fenced", "1 while this broker is fenced.", float(status.is_fenced))
    yield one(counter, "dlog_heartbeats", "Heartbeats that this broker sent.", status.heartbeats)
    yield one(counter, "dlog_heartbeats_failed", "Heartbeats without a response.", status.heartbeats_failed)
    yield Family(
        counter, "dlog_control_refused", "Calls and messages that the control port did not take, and why.",
        _of(sorted(status.refused.items()), "reason", lambda count: count),
    )  # fmt: skip
    yield one(
        counter, "dlog_control_unproven", "Calls and sessions of nodes that proved nothing.", status.unproven
    )
