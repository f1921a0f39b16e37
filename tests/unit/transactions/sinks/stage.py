"""Sinks on a coordinator in memory, with partitions that take what their leaders would take."""

from typing import NamedTuple

from distributedlog.model.errors import ConcurrentTransactionsError, DlogError, ProducerFencedError
from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import (
    AddRequest,
    BeingAborted,
    MarkersWrittenRequest,
    Reply,
    SendMarkers,
)
from distributedlog.transactions.sinks.machine import SinkState
from distributedlog.transactions.sinks.query import SinkQuery, sink_id_of
from distributedlog.transactions.sinks.requests import (
    SinkAbort,
    SinkEnd,
    SinkHeartbeat,
    SinkJoin,
    SinkJoined,
)
from distributedlog.transactions.transaction import TransactionState
from tests.unit.transactions.stage import Stage

QUERY = "orders"
TIMEOUT_MS = 300_000
P0 = TopicPartition("out", 0)
P1 = TopicPartition("out", 1)


class Row(NamedTuple):
    producer: Producer
    text: str


class Leader:
    """A partition: rows that are open, rows that readers of committed records see."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: list[Row] = []
        self.visible: list[str] = []

    def append(self, producer: Producer, text: str) -> None:
        if producer.producer_epoch < self.epochs.get(producer.producer_id, 0):
            raise ProducerFencedError("a later epoch is known")
        self.epochs[producer.producer_id] = producer.producer_epoch
        self.open.append(Row(producer, text))

    def is_open(self, producer: Producer) -> bool:
        return any(row.producer == producer for row in self.open)

    def mark(self, marker: Producer, is_commit: bool) -> None:
        if marker.producer_epoch < self.epochs.get(marker.producer_id, 0):
            return
        self.epochs[marker.producer_id] = marker.producer_epoch
        ended = [row for row in self.open if row.producer.producer_id == marker.producer_id]
        self.open = [row for row in self.open if row not in ended]
        if is_commit:
            self.visible += [row.text for row in ended]


class SinkStage(Stage):
    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, Leader] = {P0: Leader(), P1: Leader()}
        super().__init__()

    @property
    def state(self) -> SinkState:
        return self.machine.sinks.states[QUERY]

    @property
    def query(self) -> SinkQuery:
        return self.state.known

    def batch_state(self) -> TransactionState:
        return self.query.state

    def join(self, token: int, batch_id: int, attempt_id: str) -> Reply | DlogError:
        return self.ask(SinkJoin(QUERY, token, batch_id, attempt_id, TIMEOUT_MS))

    def joined(self, token: int, batch_id: int, attempt_id: str) -> Producer:
        """Joins, and waits for what has to end before."""
        while True:
            reply = self.join(token, batch_id, attempt_id)
            if isinstance(reply, SinkJoined):
                return reply.producer
            assert isinstance(reply, BeingAborted | ConcurrentTransactionsError), reply
            self.write_markers()

    def produce(self, producer: Producer, partition: TopicPartition, text: str) -> DlogError | None:
        """Appends a row; the leader asks the coordinator before the first of a transaction."""
        leader = self.leaders[partition]
        if not leader.is_open(producer):
            refusal = self.ask(AddRequest(sink_id_of(QUERY), producer, frozenset({partition}), 2))
            if isinstance(refusal, DlogError):
                return refusal
        try:
            leader.append(producer, text)
        except DlogError as error:
            return error
        return None

    def heartbeat(self, token: int, batch_id: int) -> Reply | DlogError:
        return self.ask(SinkHeartbeat(QUERY, token, batch_id))

    def end_batch(self, token: int, batch_id: int, *winners: Producer) -> Reply | DlogError:
        return self.ask(SinkEnd(QUERY, token, batch_id, frozenset(winners)))

    def abort_batch(self, token: int) -> Reply | DlogError:
        return self.ask(SinkAbort(QUERY, token))

    def write_marker(self, markers: SendMarkers) -> Reply | DlogError:
        for partition in markers.partitions:
            self.leaders[partition].mark(markers.producer, markers.is_commit)
        return self.ask(MarkersWrittenRequest(markers.transactional_id, markers.producer))

    def write_markers(self) -> None:
        sent, self.sent = self.sent, []
        for each in sent:
            self.write_marker(each)

    @property
    def visible(self) -> list[str]:
        return sorted(text for leader in self.leaders.values() for text in leader.visible)
