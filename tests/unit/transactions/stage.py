"""A transaction coordinator on a log in memory, with its time and its crashes in a test's hand."""

from collections.abc import Sequence
from typing import Final

from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine import Producer, Runtime
from distributedlog.transactions.config import TransactionConfig
from distributedlog.transactions.machine import TransactionMachine
from distributedlog.transactions.records import Record, decode_record, encode_records
from distributedlog.transactions.requests import (
    AddRequest,
    Effect,
    EndRequest,
    InitRequest,
    MarkersWrittenRequest,
    NeedsProducerId,
    ProducerReply,
    Reply,
    Request,
    SendMarkers,
    VerifyRequest,
)
from distributedlog.transactions.sinks.requests import SinkJoin
from distributedlog.transactions.transaction import Transaction, TransactionState

Stored = list[tuple[bytes, bytes | None]]
ID: Final = "transfers"
TIMEOUT_MS: Final = 60_000
FIRST_PRODUCER_ID: Final = 1000
WALL_MS: Final = 1_700_000_000_000


class MemoryLog:
    def __init__(self) -> None:
        self.entries: list[Stored] = []

    def next_offset(self) -> int:
        return len(self.entries)

    def append(self, records: Sequence[Record]) -> int:
        self.entries.append(encode_records(records))
        return len(self.entries) - 1


def decoded(entry: Stored) -> list[Record]:
    records = [decode_record(*each) for each in entry]
    return [record for record in records if record is not None]


class Stage:
    """Everything is committed at once.  Markers wait in `sent` until a test has them written."""

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config or TransactionConfig()
        self.now_ms = 1_000
        self.log = MemoryLog()
        self.epoch = 0
        self.sent: list[SendMarkers] = []
        self.completed: list[str] = []
        """The queries of sinks whose batches were completed, in order."""
        self.next_producer_id = FIRST_PRODUCER_ID
        self.take_over()

    @property
    def machine(self) -> TransactionMachine:
        machine = self.runtime.machine
        assert isinstance(machine, TransactionMachine)
        return machine

    def new_machine(self) -> TransactionMachine:
        return TransactionMachine(self.config, lambda: WALL_MS + self.now_ms)

    def take_over(self) -> None:
        """Another coordinator reads the log back; what the one before was at is lost."""
        self.epoch += 1
        self.sent.clear()
        self.runtime: Runtime[Request, Record, Reply, Effect] = Runtime(self.new_machine, self.log)
        self.runtime.elected(self.epoch)
        for offset, entry in enumerate(self.log.entries):
            self.runtime.replay(decoded(entry), offset)
        self.runtime.loaded(self.now_ms)
        self._settle()

    def _settle(self) -> list[Reply | DlogError]:
        self.runtime.committed(self.log.next_offset() - 1)
        outbox = self.runtime.take()
        for effect in outbox.effects:
            if isinstance(effect, SendMarkers):
                self.sent.append(effect)
            else:
                self.completed.append(effect.query_id)
        return [each.response if each.error is None else each.error for each in outbox.replies]

    def ask(self, request: Request) -> Reply | DlogError:
        """Asks, and brings a producer id where one is needed, as the broker does."""
        self.runtime.submit(request, self.now_ms, self.now_ms + 1)
        (reply,) = self._settle()
        if isinstance(reply, NeedsProducerId):
            assert isinstance(request, InitRequest | EndRequest | SinkJoin)
            assert request.new_producer_id is None
            self.next_producer_id += 1
            return self.ask(request._replace(new_producer_id=self.next_producer_id - 1))
        return reply

    def advance(self, elapsed_ms: int) -> None:
        until_ms = self.now_ms + elapsed_ms
        while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.runtime.tick(self.now_ms)
            self._settle()
        self.now_ms = until_ms

    # --- what clients do -----------------------------------------------------------------------

    def found(self, transactional_id: str = ID) -> Transaction:
        return self.machine.transactions[transactional_id]

    def init(self, expected: Producer | None = None, transactional_id: str = ID) -> Reply | DlogError:
        return self.ask(InitRequest(transactional_id, TIMEOUT_MS, expected))

    def producer(self) -> Producer:
        """A producer that has taken the id, whatever was there before."""
        reply = self.init()
        while not isinstance(reply, ProducerReply):
            self.write_markers()
            reply = self.init()
        return reply.producer

    def add(self, producer: Producer, *names: str, version: int = 0) -> Reply | DlogError:
        return self.ask(AddRequest(ID, producer, partitions(*names), version))

    def verify(self, producer: Producer, *names: str) -> Reply | DlogError:
        return self.ask(VerifyRequest(ID, producer, partitions(*names)))

    def end(self, producer: Producer, is_commit: bool, version: int = 0) -> Reply | DlogError:
        return self.ask(EndRequest(ID, producer, is_commit, version))

    def write_markers(self) -> None:
        sent, self.sent = self.sent, []
        for each in sent:
            self.ask(MarkersWrittenRequest(each.transactional_id, each.producer))


def partitions(*names: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition.from_directory_name(name) for name in names)


def in_state(state: TransactionState, version: int = 0) -> tuple[Stage, Producer]:
    """A stage whose id is in this state, and the producer as its client knows it."""
    stage = Stage()
    producer = stage.producer()
    if state is TransactionState.EMPTY:
        return stage, producer
    stage.add(producer, "a-0", version=version)
    if state is TransactionState.ONGOING:
        return stage, producer
    is_commit = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    reply = stage.end(producer, is_commit, version)
    assert isinstance(reply, ProducerReply)
    if state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        stage.write_markers()
    assert stage.found().state is state
    return stage, reply.producer
