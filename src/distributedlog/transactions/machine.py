"""The transaction coordinator of one partition of `__transaction_state`, as a machine of the shared runtime.

    DURABLE, changed by `replay` alone     of each transactional id what its last record says
                                           (`transaction.Transaction`)
                                           (and what belongs to sinks: `sinks/machine`)
    SOFT STATE                             when open transactions time out, and ids are looked through for
                                           those that expire; the epoch before the last InitProducerId of an
                                           id (`producers`); how many were aborted, and why

A transaction is decided by the record of its PREPARE state.  That its markers are to be written is an effect,
so it leaves when the decision is committed; what became of it comes back as a request
(`MarkersWrittenRequest`), and is the COMPLETE record.  What a crash does: the next coordinator finds PREPARE
states when it is activated, and has the markers written again, which partitions bear; open transactions time
out as if it had always been there, by the time of their first record.

Every record holds all of its id, so the state after a prefix of the log is the last record of each id in it.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    InvalidRequestError,
    InvalidTransactionStateError,
    MalformedMessageError,
    OverloadedError,
    RecordTooLargeError,
    TransactionalIdNotFoundError,
)
from distributedlog.protocol.messages.sink_transaction import SINK_ID_PREFIX
from distributedlog.statemachine import Context, Result
from distributedlog.statemachine.deadlines import Deadlines
from distributedlog.statemachine.pending import Producer
from distributedlog.transactions import producers
from distributedlog.transactions.config import TRANSACTIONAL_ID_BYTES_MAX, TransactionConfig, check_timeout
from distributedlog.transactions.records import Record, TransactionRecord, decode_record, encode_record
from distributedlog.transactions.requests import (
    BEING_ABORTED,
    NEEDS_PRODUCER_ID,
    AbortReason,
    AddRequest,
    DescribeReply,
    DescribeRequest,
    Effect,
    EndRequest,
    InitRequest,
    ListedTransaction,
    ListReply,
    ListRequest,
    MarkersWrittenRequest,
    NeedsProducerId,
    ProducerReply,
    Reply,
    Request,
    SendMarkers,
    VerifyReply,
    VerifyRequest,
)
from distributedlog.transactions.sinks.machine import SinkMachine
from distributedlog.transactions.sinks.query import is_sink_id
from distributedlog.transactions.sizes import size_bound
from distributedlog.transactions.transaction import (
    COMPLETE,
    EPOCH_GIVEN_MAX,
    NO_EPOCH,
    PREPARED,
    VERSION_EPOCH_PER_TRANSACTION,
    Event,
    Transaction,
    TransactionState,
    add_partitions,
    check_producer,
    check_producer_id,
    complete,
    end,
    fence,
    fenced,
    initialize,
    move,
)

TransactionResult = Result[Record, Reply, Effect]
Tick = Result[Record, None, Effect]

EXPIRED_MAX: Final = 500
"""The ids that one entry forgets."""
EXPIRE_AGAIN_MS: Final = 100
_LENGTHS: Final = struct.Struct(">ii")
_NO_VALUE: Final = -1


class Timer(Enum):
    TIMEOUT = "an open transaction has taken too long"
    EXPIRY = "ids are to be looked through"


class TimerKey(NamedTuple):
    timer: Timer
    transactional_id: str = ""


class TransactionMachine:
    def __init__(
        self,
        config: TransactionConfig,
        wall_ms: Callable[[], int],
        aborted: Counter[AbortReason] | None = None,
    ) -> None:
        """`wall_ms` is the time that is written; `aborted` counts what is aborted, and why."""
        self.config = config
        self.transactions: dict[str, Transaction] = {}
        self.aborted: Counter[AbortReason] = Counter() if aborted is None else aborted
        self._wall_ms = wall_ms
        self._timers: Deadlines[TimerKey] = Deadlines()
        self._last_epochs: dict[str, int] = {}
        self.sinks = SinkMachine(config, wall_ms, self.aborted)

    # --- the contract --------------------------------------------------------------------------

    def handle(self, request: Request, context: Context) -> TransactionResult:
        match request:
            case InitRequest():
                return self._initialize(request, context)
            case AddRequest():
                return self._add(request, context)
            case VerifyRequest():
                return Result(self._verify(request))
            case EndRequest():
                return self._end(request, context)
            case MarkersWrittenRequest():
                return self._complete(request)
            case DescribeRequest():
                return Result(self._describe(request))
            case ListRequest():
                return Result(self._list(request))
            case _:
                return self.sinks.handle(request, context)

    def replay(self, records: Sequence[Record], offset: int) -> None:
        for record in records:
            if not isinstance(record, TransactionRecord):
                self.sinks.replay(record)
            elif record.value is None:
                self.transactions.pop(record.transactional_id, None)
            else:
                self.transactions[record.transactional_id] = record.value

    def activated(self, context: Context) -> Tick:
        """Goes on with what others began: markers are written, open transactions time out."""
        wall_ms = self._wall_ms()
        effects = self.sinks.activated(context)
        for transactional_id, found in self.transactions.items():
            if found.state in PREPARED:
                effects.append(_markers(transactional_id, found, context.epoch))
            elif found.state is TransactionState.ONGOING:
                left_ms = min(max(found.start_ms + found.timeout_ms - wall_ms, 0), found.timeout_ms)
                self._timers.set(TimerKey(Timer.TIMEOUT, transactional_id), context.now_ms + left_ms)
        self._timers.set(TimerKey(Timer.EXPIRY), context.now_ms + self.config.id_expiration_check_ms)
        return Result(None, (), effects)

    def next_deadline_ms(self) -> int | None:
        due = (self._timers.next_ms(), self.sinks.next_deadline_ms())
        return min((each for each in due if each is not None), default=None)

    def tick(self, context: Context) -> Tick:
        """One deadline at a time: what each leads to fits one entry."""
        due = self._timers.pop_due(context.now_ms)
        if due is None:
            return self.sinks.tick(context)
        key, _ = due
        if key.timer is Timer.EXPIRY:
            return self._expire(context)
        found = self.transactions.get(key.transactional_id)
        if found is None or found.state is not TransactionState.ONGOING:
            return Result(None)
        record, effect = self._fence(key.transactional_id, found, context, AbortReason.TIMEOUT)
        return Result(None, (record,), (effect,))

    def snapshot(self) -> bytes:
        """All durable state, as the records that would make it."""
        own = (TransactionRecord(*each) for each in self.transactions.items())
        return b"".join(_framed(each) for each in (*own, *self.sinks.records()))

    def restore(self, data: bytes, offset: int) -> None:
        self.replay(list(_unframed(data)), offset)

    # --- InitProducerId ------------------------------------------------------------------------

    def _initialize(self, request: InitRequest, context: Context) -> TransactionResult:
        transactional_id = request.transactional_id
        self._check_init(request)
        found = self.transactions.get(transactional_id)
        if found is not None and producers.needs_fencing(found, request.expected):
            record, effect = self._fence(transactional_id, found, context, AbortReason.FENCED)
            return Result(BEING_ABORTED, (record,), (effect,))
        given = self._give_producer(request, found)
        if isinstance(given, NeedsProducerId):
            return Result(given)
        producer, last_epoch = given
        wall_ms = self._wall_ms()
        if found is None:
            made = Transaction(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                timeout_ms=request.timeout_ms,
                last_update_ms=wall_ms,
            )
        else:
            made = initialize(found, producer, request.timeout_ms, wall_ms)
        self._last_epochs[transactional_id] = last_epoch
        return Result(ProducerReply(producer), (TransactionRecord(transactional_id, made),))

    def _check_init(self, request: InitRequest) -> None:
        transactional_id = request.transactional_id
        _check_id(transactional_id)
        if is_sink_id(transactional_id):
            raise InvalidRequestError(
                f"transactional ids that begin with {SINK_ID_PREFIX!r} are those of sinks"
            )
        check_timeout(request.timeout_ms, self.config.timeout_ms_max)
        if transactional_id not in self.transactions and len(self.transactions) >= self.config.ids_max:
            raise OverloadedError(f"there are {self.config.ids_max} transactional ids already")

    def _give_producer(
        self, request: InitRequest, found: Transaction | None
    ) -> tuple[Producer, int] | NeedsProducerId:
        """Returns the producer, and the epoch that it may come with when it asks again."""
        new_id, expected = request.new_producer_id, request.expected
        if found is None:
            return NEEDS_PRODUCER_ID if new_id is None else (Producer(new_id, 0), NO_EPOCH)
        last_epoch = self._last_epochs.get(request.transactional_id, NO_EPOCH)
        if producers.is_repeated(found, expected, last_epoch):
            return found.producer, last_epoch
        last_epoch = NO_EPOCH if expected is None else found.producer_epoch
        if found.is_exhausted:
            return NEEDS_PRODUCER_ID if new_id is None else (Producer(new_id, 0), last_epoch)
        return Producer(found.producer_id, found.producer_epoch + 1), last_epoch

    # --- partitions ----------------------------------------------------------------------------

    def _add(self, request: AddRequest, context: Context) -> TransactionResult:
        transactional_id = request.transactional_id
        _check_id(transactional_id)
        if is_sink_id(transactional_id):
            return self.sinks.add(request, context)
        found = check_producer(self.transactions.get(transactional_id), request.producer)
        is_ongoing = found.state is TransactionState.ONGOING
        if is_ongoing and request.partitions <= found.partitions:
            return Result(None)
        added = add_partitions(found, request.partitions, request.version, self._wall_ms())
        size = size_bound(transactional_id, added.partitions)
        if size > self.config.entry_bytes_max:
            raise RecordTooLargeError(
                f"a transaction of {len(added.partitions)} partitions takes {size} bytes to keep; "
                f"{self.config.entry_bytes_max} fit into one entry"
            )
        if not is_ongoing:
            self._timers.set(TimerKey(Timer.TIMEOUT, transactional_id), context.now_ms + found.timeout_ms)
        return Result(None, (TransactionRecord(transactional_id, added),))

    def _verify(self, request: VerifyRequest) -> VerifyReply:
        _check_id(request.transactional_id)
        if is_sink_id(request.transactional_id):
            return self.sinks.verify(request)
        found = check_producer(self.transactions.get(request.transactional_id), request.producer)
        if found.state in PREPARED:
            move(found.state, Event.ADD)  # raises
        return VerifyReply(
            tuple(
                (
                    partition,
                    ErrorCode.NONE if partition in found.partitions else ErrorCode.TRANSACTION_ABORTABLE,
                )
                for partition in sorted(request.partitions)
            )
        )

    # --- the end -------------------------------------------------------------------------------

    def _end(self, request: EndRequest, context: Context) -> TransactionResult:
        transactional_id, version = request.transactional_id, request.version
        _check_id(transactional_id)
        known = self.transactions.get(transactional_id)
        event = Event.COMMIT if request.is_commit else Event.ABORT
        if version >= VERSION_EPOCH_PER_TRANSACTION:
            if known is not None and _is_repeated_end(known, request.producer):
                return self._answer_again(known, event)
        elif known is not None and known.state is not TransactionState.ONGOING:
            return self._answer_again(check_producer(known, request.producer), event)
        found = check_producer(known, request.producer)
        move(found.state, event)
        raises_epoch = version >= VERSION_EPOCH_PER_TRANSACTION
        if raises_epoch and found.is_exhausted and request.new_producer_id is None:
            return Result(NEEDS_PRODUCER_ID)
        ended = end(found, event, version, request.new_producer_id, self._wall_ms())
        self._timers.cancel(TimerKey(Timer.TIMEOUT, transactional_id))
        if event is Event.ABORT and found.state is TransactionState.ONGOING:
            self.aborted[AbortReason.CLIENT] += 1
        effects = (_markers(transactional_id, ended, context.epoch),) if ended.state in PREPARED else ()
        return Result(
            ProducerReply(ended.next_producer), (TransactionRecord(transactional_id, ended),), effects
        )

    def _answer_again(self, found: Transaction, event: Event) -> TransactionResult:
        """The end of a transaction that is ended, or being ended: the same end is confirmed."""
        same = Event.COMMIT if found.state is TransactionState.COMPLETE_COMMIT else Event.ABORT
        if found.state in COMPLETE and event is same:
            return Result(ProducerReply(found.producer))
        if found.state in PREPARED:
            move(found.state, event)  # raises
        raise InvalidTransactionStateError(f"the transaction is {found.state.label}")

    def _complete(self, request: MarkersWrittenRequest) -> TransactionResult:
        if is_sink_id(request.transactional_id):
            return self.sinks.complete(request)
        found = check_producer_id(self.transactions.get(request.transactional_id), request.producer)
        if found.producer != request.producer:
            raise fenced(found, request.producer)
        made = complete(found, self._wall_ms())
        return Result(None, (TransactionRecord(request.transactional_id, made),))

    def _fence(
        self, transactional_id: str, found: Transaction, context: Context, reason: AbortReason
    ) -> tuple[TransactionRecord, SendMarkers]:
        made = fence(found, self._wall_ms())
        self._timers.cancel(TimerKey(Timer.TIMEOUT, transactional_id))
        self._last_epochs.pop(transactional_id, None)
        self.aborted[reason] += 1
        return TransactionRecord(transactional_id, made), _markers(transactional_id, made, context.epoch)

    # --- looking -------------------------------------------------------------------------------

    def _describe(self, request: DescribeRequest) -> DescribeReply:
        _check_id(request.transactional_id)
        found = self.transactions.get(request.transactional_id)
        if is_sink_id(request.transactional_id):
            found = self.sinks.as_transaction(request.transactional_id)
        if found is None:
            raise TransactionalIdNotFoundError(f"there is no id {request.transactional_id!r}")
        return DescribeReply(found)

    def _list(self, request: ListRequest) -> ListReply:
        wall_ms = self._wall_ms()
        every = chain(self.transactions.items(), self.sinks.as_transactions(request.producer_ids))
        return ListReply(
            tuple(
                ListedTransaction(transactional_id, found.producer_id, found.state)
                for transactional_id, found in every
                if (not request.states or found.state in request.states)
                and (not request.producer_ids or found.producer_id in request.producer_ids)
                and (request.open_ms_min < 0 or _open_ms(found, wall_ms) >= request.open_ms_min)
            )
        )

    def open_start_times_ms(self) -> Iterator[int]:
        """Yields when those began that are not complete, batches of sinks among them."""
        own = (each.start_ms for each in self.transactions.values() if _is_open(each))
        return chain(own, self.sinks.open_start_times_ms())

    def waits_for(self, markers: SendMarkers) -> bool:
        """Returns whether these markers are still to be written."""
        if is_sink_id(markers.transactional_id):
            return self.sinks.waits_for(markers.transactional_id, markers.producer)
        found = self.transactions.get(markers.transactional_id)
        return found is not None and found.state in PREPARED and found.producer == markers.producer

    # --- ids that expire -----------------------------------------------------------------------

    def _expire(self, context: Context) -> Tick:
        oldest_ms = self._wall_ms() - self.config.id_expiration_ms
        gone: list[TransactionRecord] = []
        again_ms = self.config.id_expiration_check_ms
        size = 0
        for transactional_id, found in self.transactions.items():
            if not _is_open(found) and found.last_update_ms < oldest_ms:
                size += size_bound(transactional_id, frozenset())
                if len(gone) == EXPIRED_MAX or (gone and size > self.config.entry_bytes_max):
                    again_ms = EXPIRE_AGAIN_MS
                    break
                gone.append(TransactionRecord(transactional_id, None))
        for transactional_id, _ in gone:
            self._last_epochs.pop(transactional_id, None)
        self._timers.set(TimerKey(Timer.EXPIRY), context.now_ms + again_ms)
        return Result(None, gone)


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequestError("the transactional id is empty")
    if len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
        raise InvalidRequestError(f"a transactional id has at most {TRANSACTIONAL_ID_BYTES_MAX} bytes")


def _is_open(found: Transaction) -> bool:
    return found.state is TransactionState.ONGOING or found.state in PREPARED


def _open_ms(found: Transaction, wall_ms: int) -> int:
    return wall_ms - found.start_ms if _is_open(found) else -1


def _is_repeated_end(found: Transaction, producer: Producer) -> bool:
    """Returns whether this is the EndTxn, sent again, that raised the epoch."""
    if found.version < VERSION_EPOCH_PER_TRANSACTION or found.state not in PREPARED | COMPLETE:
        return False
    if found.producer_id == producer.producer_id:
        return found.producer_epoch == producer.producer_epoch + 1
    was_last = producer == Producer(found.previous_producer_id, EPOCH_GIVEN_MAX)
    return was_last and found.state in COMPLETE and found.producer_epoch == 0


def _markers(transactional_id: str, found: Transaction, coordinator_epoch: int) -> SendMarkers:
    return SendMarkers(
        transactional_id,
        found.producer,
        found.state is TransactionState.PREPARE_COMMIT,
        found.partitions,
        coordinator_epoch,
        found.version,
    )


# --- snapshots ---------------------------------------------------------------------------------


def _framed(record: Record) -> bytes:
    key, value = encode_record(record)
    return _LENGTHS.pack(len(key), _NO_VALUE if value is None else len(value)) + key + (value or b"")


def _unframed(data: bytes) -> Iterable[Record]:
    at = 0
    while at < len(data):
        if len(data) - at < _LENGTHS.size:
            raise MalformedMessageError("a snapshot of transactions is cut short")
        key_bytes, value_bytes = _LENGTHS.unpack_from(data, at)
        key_at = at + _LENGTHS.size
        value_at = key_at + key_bytes
        at = value_at + max(value_bytes, 0)
        if key_bytes < 0 or at > len(data):
            raise MalformedMessageError("a snapshot of transactions is cut short")
        record = decode_record(data[key_at:value_at], None if value_bytes < 0 else data[value_at:at])
        if record is not None:
            yield record
