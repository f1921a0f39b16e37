"""A machine that is neither the controller nor a group coordinator, on the host they share.

It is made like a transaction coordinator: what it promises to deliver is a record; to deliver is an effect,
of which it hears by an event; what was not delivered in time expires; a new leader takes up what was begun.
"""

from collections.abc import Sequence
from typing import NamedTuple

from distributedlog.broker.coordination.coordinator_log import CoordinatorLog, RecordCodec
from distributedlog.broker.coordination.host import Confirmed, Host, HostCallbacks
from distributedlog.broker.coordination.lease import Takeover
from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import DlogError, NotCoordinatorError
from distributedlog.model.internal_topics import TRANSACTIONS_TOPIC
from distributedlog.ports.executor import Outcome
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, encode_batch
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition
from distributedlog.statemachine import Context, Producer, Result
from distributedlog.storage.append import Origin
from tests.unit.broker.partition_stage import Stage
from tests.unit.replication.support import confirm

DUE_MS = 5_000
LOAD_AGAIN_MS = 1_000
NUMBER = 50
PRODUCER = Producer(7, 2)


class Promise(NamedTuple):
    name: str
    transaction: Producer | None = None


class Delivered(NamedTuple):
    name: str


class Look(NamedTuple):
    pass


Request = Promise | Delivered | Look
States = dict[str, str]
DeliveryRecord = tuple[str, str]


class Deliveries:
    """SOFT STATE: when each is due."""

    def __init__(self) -> None:
        self.states: States = {}
        self._due_ms: dict[str, int] = {}

    def handle(self, request: Request, context: Context) -> Result[DeliveryRecord, States, str]:
        match request:
            case Promise(name, transaction):
                self._due_ms[name] = context.now_ms + DUE_MS
                effects = [] if transaction else [name]
                return Result({name: "promised"}, [(name, "promised")], effects, transaction)
            case Delivered(name):
                return Result({}, [(name, "delivered")])
            case Look():
                return Result(dict(self.states))

    def replay(self, records: Sequence[DeliveryRecord], offset: int) -> None:
        self.states.update(records)

    def activated(self, context: Context) -> Result[DeliveryRecord, None, str]:
        promised = [name for name, state in self.states.items() if state == "promised"]
        self._due_ms = dict.fromkeys(promised, context.now_ms + DUE_MS)
        return Result(None, effects=promised)

    def next_deadline_ms(self) -> int | None:
        return min(self._due_ms.values(), default=None)

    def tick(self, context: Context) -> Result[DeliveryRecord, None, str]:
        due = [name for name, due_ms in self._due_ms.items() if due_ms <= context.now_ms]
        for name in due:
            del self._due_ms[name]
        return Result(None, [(name, "expired") for name in due if self.states.get(name) == "promised"])

    def snapshot(self) -> bytes:
        return repr(self.states).encode()

    def restore(self, data: bytes, offset: int) -> None:
        raise AssertionError("its log has no snapshots")


def _decode(key: Buffer | None, value: Buffer | None) -> DeliveryRecord:
    return bytes(key or b"").decode(), bytes(value or b"").decode()


CODEC: RecordCodec[DeliveryRecord] = RecordCodec(
    lambda records: [(name.encode(), state.encode()) for name, state in records],
    _decode,
    lambda record: record[0],
)


class DeliveriesStage:
    """One broker that leads the partition; `is_leased` says whether reads are confirmed."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.metadata.create(TRANSACTIONS_TOPIC, NUMBER)
        self.stage.apply()
        self.is_leased = True
        self.effects: list[tuple[str, int]] = []
        self.activities: list[bool] = []
        self.losses: list[bool] = []
        self.start()

    def start(self) -> None:
        self.log = CoordinatorLog(
            self.partition,
            CODEC,
            clock=self.stage.clock,
            executor=self.stage.executor,
            begin_takeover=self._begin_takeover,
        )
        self.host: Host[Request, DeliveryRecord, States, str] = Host(
            Deliveries,
            self.log,
            self._confirm_read,
            HostCallbacks(
                perform=lambda name, epoch: self.effects.append((name, epoch)),
                activity=self.activities.append,
                unloaded=self.losses.append,
            ),
            clock=self.stage.clock,
            scheduler=self.stage.scheduler,
            load_again_ms=LOAD_AGAIN_MS,
            transactions=self.log,
        )
        signals, host = self.stage.partitions.signals, self.host
        signals.state_changed.append(lambda _: host.progressed())
        signals.commit_advanced.append(lambda _: host.progressed())
        host.progressed()

    def restart(self) -> None:
        self.stage.restart()
        self.stage.apply()
        self.start()

    @property
    def partition(self) -> Partition:
        return self.stage[TRANSACTIONS_TOPIC]

    def _begin_takeover(self, leader_epoch: int) -> Takeover:
        """Nobody led before."""
        takeover = Takeover(0, 0)
        takeover.settle()
        return takeover

    def _confirm_read(self, confirmed: Confirmed) -> None:
        confirmed(None if self.is_leased else NotCoordinatorError("another may lead"))

    # --- asking --------------------------------------------------------------------------------

    def ask(self, request: Request) -> list[Outcome[States]]:
        told: list[Outcome[States]] = []
        if isinstance(request, Promise) and request.transaction is not None:
            confirm(self.partition, *request.transaction)
        self.host.submit(request, self.stage.clock.monotonic_ms() + 60_000, told.append)
        return told

    def states(self) -> States:
        (outcome,) = self.ask(Look())
        return outcome.value()

    def error(self) -> type[DlogError]:
        (outcome,) = self.ask(Look())
        assert isinstance(outcome.error, DlogError)
        return type(outcome.error)

    def lead_anew(self) -> None:
        """The same broker leads, in the next epoch."""
        self.stage.metadata.change(NUMBER, leader=1)
        self.stage.apply()

    # --- the log, as another leader wrote it ----------------------------------------------------

    def write(self, name: str, state: str, producer: Producer | None = None) -> None:
        record = Record(key=name.encode(), value=state.encode(), timestamp_ms=1)
        if producer is None:
            batch = encode_batch([record])
        else:
            confirm(self.partition, *producer)
            batch = encode_batch(
                [record],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                is_transactional=True,
            )
        self._append(batch)

    def write_marker(self, producer: Producer, kind: ControlType) -> None:
        self._append(
            encode_end_marker_batch(
                EndMarker(kind, 0),
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                timestamp_ms=1,
            )
        )

    def _append(self, batch: bytearray) -> None:
        self.partition.append(batch, ACKS_ALL, 1, Origin.COORDINATOR)
