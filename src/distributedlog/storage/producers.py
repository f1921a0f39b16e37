"""Who has written what: the state that makes retries harmless and transactions whole.

For each producer id the log remembers its epoch, its last five batches, and where its open transaction began.
From that it tells a batch that was sent twice from one that is new, and one that is out of order from both.

What `check` answers to a client, by what is known of its producer:

| known                     | batch                                   | answer                        |
|---------------------------|-----------------------------------------|-------------------------------|
| nothing                   | any                                     | new (its records may be gone) |
| a later epoch             | any                                     | InvalidProducerEpochError     |
| an earlier epoch          | begins with sequence 0                  | new                           |
| an earlier epoch          | begins elsewhere                        | OutOfOrderSequenceError       |
| the same epoch            | first and last sequence of one of five  | that batch: a duplicate       |
| the same epoch            | continues the last sequence             | new                           |
| the same epoch            | otherwise                               | OutOfOrderSequenceError       |
| an open transaction       | new, but not transactional              | InvalidTransactionStateError  |

A coordinator's batches have no sequences: only their epochs are checked.  What comes by replication or from
the log itself was checked before and is never refused.  Sequences wrap from 2^31 - 1 to 0.

What `check_marker` and `has_marker` answer to a coordinator's marker:

| known                     | marker                                  | answer                        |
|---------------------------|-----------------------------------------|-------------------------------|
| nothing                   | any                                     | new                           |
| a later epoch             | any                                     | InvalidProducerEpochError     |
| a later coordinator epoch | any                                     | CoordinatorFencedError        |
| the same epoch, open      | of a bumped epoch (transaction.version  | InvalidProducerEpochError: it |
|                           | 2)                                      | ends an earlier transaction   |
| the same epoch, open      | of the transaction's own epoch          | new                           |
| the same epoch, not open  | of the same coordinator epoch           | written already               |
| otherwise                 | any                                     | new                           |

A check changes nothing.  The owner checks, writes, and then calls `append` or `append_marker`; so a write
that fails leaves no trace.  It follows that one append to the log holds at most one batch of each client's
producer, as Kafka's protocol demands.

A transaction is *undecided* until its marker is appended, and *unstable* until the marker is below the high
watermark as well.  Batches come in the order of offsets, so transactions begin in that order, and the first
undecided one is the oldest in a queue.

Snapshot, `{offset:020d}.snapshot`, the state as of that offset, Kafka's bytes (big-endian):

    version int16 = 1,  CRC32C uint32 of all that follows,  count int32,  and for each producer
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
    timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (-1: none)

Kafka keeps only the newest batch, so after a restart it takes a retry of an older one for out of order.  We
append a trailer, covered by the CRC, where Kafka's reader no longer looks:

    "DLW1",  count int32,  and for each producer that has a batch
    producer id int64, timestamp of the newest batch int64, number of older batches int8,
    and for each, oldest first:  last sequence int32, last offset int64, offset delta int32, timestamp int64

Producers expire by our clock and not, as in Kafka, by their records' timestamps: those who write a history
would expire at once, and their retries would be doubled.  `append` knows no clock; it only marks a producer
as heard of, and the next `expire` takes that for its time.

Anybody can make up producer ids, one for each batch.  So there is a bound on how many are remembered, which
the broker keeps (`shed`): those that wrote longest ago are forgotten before their time.

A crash loses this state; the newest snapshot and the batches after it give it again.  Truncating the log is
the same: `clear`, load, replay.  When the log's start moves up nothing is forgotten here: a producer whose
records are gone may still retry, and a transaction is open until it is ended.
"""

import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import NamedTuple

from distributedlog.model.errors import (
    CoordinatorFencedError,
    CorruptLogError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from distributedlog.records.checksum import crc32c
from distributedlog.records.control import EndMarker
from distributedlog.records.layout import (
    INT32_MAX,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from distributedlog.storage.append import Origin

BATCHES_KEPT = 5
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
JUST_HEARD = -1
SNAPSHOT_VERSION = 1
TRAILER_MAGIC = b"DLW1"

_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_WINDOW = struct.Struct(">qqb")
_BATCH = struct.Struct(">iqiq")


class BatchMetadata(NamedTuple):
    """What is kept of a batch: enough to answer for it when it is sent again."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    """`last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerState:
    """What is known of one producer.  `batches` has the oldest first and only those of this epoch."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_heard_ms",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: list[BatchMetadata] = []
        self.next_sequence = 0
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_first_offset = NO_OFFSET
        self.last_timestamp = NO_TIMESTAMP
        self.last_heard_ms = JUST_HEARD

    @property
    def last_offset(self) -> int:
        """The offset of its last record; -1 if none of this epoch is known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def has_open_transaction(self) -> bool:
        return self.transaction_first_offset != NO_OFFSET


class ProducerStates:
    """The producers of one partition's log."""

    __slots__ = ("_producers", "_undecided", "_unreplicated")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerState] = {}
        # First offset to producer id, in the order of first offsets.
        self._undecided: OrderedDict[int, int] = OrderedDict()
        # Decided but perhaps not replicated: (marker's offset, first offset), both rising.  A transaction is
        # left out when one that is decided later began earlier: it cannot be the first unstable one.
        self._unreplicated: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    # -- appending

    def check(self, header: BatchHeader, *, origin: Origin) -> BatchMetadata | None:
        """The batch that this one repeats, None if it is new; raises if it must not be appended."""
        if header.base_sequence < 0 and origin is Origin.CLIENT:
            raise InvalidRecordError(
                f"producer {header.producer_id} sends sequence {header.base_sequence}, which is none"
            )
        state = self._producers.get(header.producer_id)
        if state is None or origin is Origin.REPLICATION:
            return None
        if origin is not Origin.CLIENT or header.producer_epoch != state.epoch:
            _check_epoch(state, header, origin)
        elif header.base_sequence != state.next_sequence:
            return _duplicate(state, header)
        if state.transaction_first_offset != NO_OFFSET and not header.is_transactional:
            raise InvalidTransactionStateError(
                f"producer {header.producer_id} has a transaction open since offset "
                f"{state.transaction_first_offset}, and this batch is not part of it"
            )
        return None

    def append(self, header: BatchHeader) -> None:
        """Takes note of a data batch that now is in the log."""
        # Unpacked at once: this runs for every batch, and reading fields one by one costs twice as much.
        offset, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerState(producer_id)
        batches = state.batches
        if state.epoch != epoch:
            state.epoch = epoch
            batches.clear()
        elif len(batches) == BATCHES_KEPT:
            del batches[0]
        last_sequence = NO_SEQUENCE if sequence == NO_SEQUENCE else (sequence + delta) & INT32_MAX
        # Past the constructor, which costs several times as much.
        batches.append(
            tuple.__new__(BatchMetadata, (sequence, last_sequence, offset, offset + delta, timestamp))
        )
        state.next_sequence = (last_sequence + 1) & INT32_MAX
        state.last_timestamp = timestamp
        state.last_heard_ms = JUST_HEARD
        if attributes & TRANSACTIONAL_BIT and state.transaction_first_offset == NO_OFFSET:
            state.transaction_first_offset = offset
            self._begin(offset, producer_id)

    def check_marker(self, header: BatchHeader, marker: EndMarker, *, origin: Origin) -> None:
        """Raises if the marker is of a producer or a coordinator that has been fenced."""
        state = self._producers.get(header.producer_id)
        if state is None or origin is Origin.REPLICATION:
            return
        if header.producer_epoch < state.epoch:
            raise _fenced(state, header)
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise CoordinatorFencedError(
                f"a marker for producer {header.producer_id} comes from coordinator epoch "
                f"{marker.coordinator_epoch}; the current one is {state.coordinator_epoch}"
            )

    def has_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, has_bumped_epoch: bool
    ) -> bool:
        """Returns whether this marker was the last word of its producer here: a repetition changes nothing.

        `has_bumped_epoch`: the transaction that it ends was written in an earlier epoch than the marker's.
        So a transaction that is open in the marker's own epoch is a later one, and the marker is late.
        """
        state = self._producers.get(producer_id)
        if state is None or state.epoch != producer_epoch:
            return False
        if state.has_open_transaction:
            if has_bumped_epoch:
                raise InvalidProducerEpochError(
                    f"a marker of epoch {producer_epoch} for producer {producer_id} is late: it is of a "
                    f"transaction before the one that is open since offset {state.transaction_first_offset}"
                )
            return False
        return state.coordinator_epoch == coordinator_epoch

    def append_marker(self, header: BatchHeader, marker: EndMarker) -> CompletedTransaction | None:
        """Takes note of a marker that now is in the log; None if it ended a transaction without records."""
        state = self._producers.get(header.producer_id)
        if state is None:
            state = self._producers[header.producer_id] = ProducerState(header.producer_id)
        if state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.next_sequence = 0
            state.batches.clear()
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = header.max_timestamp
        state.last_heard_ms = JUST_HEARD
        first_offset = state.transaction_first_offset
        if first_offset == NO_OFFSET:
            return None
        state.transaction_first_offset = NO_OFFSET
        del self._undecided[first_offset]
        while self._unreplicated and self._unreplicated[-1][1] > first_offset:
            self._unreplicated.pop()
        self._unreplicated.append((header.base_offset, first_offset))
        return CompletedTransaction(
            header.producer_id, first_offset, header.base_offset, not marker.is_commit
        )

    # -- transactions

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return next(iter(self._undecided), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction began that is open or has its marker above the high watermark."""
        undecided = next(iter(self._undecided), None)
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0][1]
        return unreplicated if undecided is None else min(unreplicated, undecided)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Returns what the transaction index says with `completed`: below it all is decided, once it is."""
        undecided = self.first_undecided_offset
        return completed.last_offset + 1 if undecided is None else undecided

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Markers below it are replicated: their transactions are stable."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][0] < high_watermark:
            unreplicated.popleft()

    def _begin(self, first_offset: int, producer_id: int) -> None:
        newest = next(reversed(self._undecided), NO_OFFSET)
        assert first_offset > newest, f"a transaction at {first_offset} after one at {newest}"
        self._undecided[first_offset] = producer_id

    # -- forgetting

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers not heard of for so long, but none with an open transaction; says how many."""
        expired = []
        for producer_id, state in self._producers.items():
            # A clock that was set back must not keep a producer for good.
            if state.last_heard_ms == JUST_HEARD or state.last_heard_ms > now_ms:
                state.last_heard_ms = now_ms
            elif now_ms - state.last_heard_ms >= expiration_ms and not state.has_open_transaction:
                expired.append(producer_id)
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def shed(self, count: int) -> int:
        """Forgets so many, those whose last batch lies furthest back; none with an open transaction."""
        idle = [state for state in self._producers.values() if not state.has_open_transaction]
        idle.sort(key=lambda state: state.last_offset)
        for state in idle[:count]:
            del self._producers[state.producer_id]
        return min(count, len(idle))

    def clear(self) -> None:
        self._producers.clear()
        self._undecided.clear()
        self._unreplicated.clear()

    # -- snapshots

    def encode_snapshot(self) -> bytes:
        states = self._producers.values()
        windows = [_encode_window(state) for state in states if state.batches]
        entries = b"".join([_COUNT.pack(len(states)), *map(_encode_entry, states)])
        body = entries + b"".join([TRAILER_MAGIC, _COUNT.pack(len(windows)), *windows])
        return _PREFIX.pack(SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode_snapshot(cls, data: bytes) -> "ProducerStates":
        """Decodes a snapshot; one of Kafka's own has no trailer."""
        body = _check_snapshot(data)
        states = cls()
        position = _decode_entries(body, states._producers)
        if body[position : position + len(TRAILER_MAGIC)] == TRAILER_MAGIC:
            _decode_windows(body, position + len(TRAILER_MAGIC), states._producers)
        open_transactions = [state for state in states if state.has_open_transaction]
        for state in sorted(open_transactions, key=lambda state: state.transaction_first_offset):
            states._undecided[state.transaction_first_offset] = state.producer_id
        if len(states._undecided) != len(open_transactions):
            raise CorruptLogError("a producer snapshot has two transactions that begin at one offset")
        return states


# --- checks ------------------------------------------------------------------------------------


def _fenced(state: ProducerState, header: BatchHeader) -> InvalidProducerEpochError:
    return InvalidProducerEpochError(
        f"producer {header.producer_id} writes with epoch {header.producer_epoch}; "
        f"the current one is {state.epoch}"
    )


def _check_epoch(state: ProducerState, header: BatchHeader, origin: Origin) -> None:
    if header.producer_epoch < state.epoch:
        raise _fenced(state, header)
    if origin is Origin.CLIENT and header.base_sequence != 0 and state.epoch != NO_PRODUCER_EPOCH:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence "
            f"{header.base_sequence} and not with 0"
        )


def _duplicate(state: ProducerState, header: BatchHeader) -> BatchMetadata:
    """The batch that this one repeats, since it is not the next one."""
    first, last = header.base_sequence, header.last_sequence
    for batch in state.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    raise OutOfOrderSequenceError(
        f"producer {header.producer_id} of epoch {header.producer_epoch} sends sequence {first}; "
        f"{state.next_sequence} would be next"
    )


# --- snapshot bytes ----------------------------------------------------------------------------


def _encode_entry(state: ProducerState) -> bytes:
    last = state.batches[-1] if state.batches else None
    return _ENTRY.pack(
        state.producer_id,
        state.epoch,
        last.last_sequence if last else NO_SEQUENCE,
        last.last_offset if last else NO_OFFSET,
        last.last_offset - last.first_offset if last else 0,
        state.last_timestamp,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


def _encode_window(state: ProducerState) -> bytes:
    older = state.batches[:-1]
    parts = [_WINDOW.pack(state.producer_id, state.batches[-1].timestamp, len(older))]
    for batch in older:
        delta = batch.last_offset - batch.first_offset
        parts.append(_BATCH.pack(batch.last_sequence, batch.last_offset, delta, batch.timestamp))
    return b"".join(parts)


def _check_snapshot(data: bytes) -> bytes:
    """Returns what follows the checksum, if that is right."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptLogError(f"a producer snapshot of {len(data)} bytes is cut off")
    version, crc = _PREFIX.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptLogError(f"a producer snapshot of version {version}; only {SNAPSHOT_VERSION} is known")
    body = data[_PREFIX.size :]
    if crc32c(body) != crc:
        raise CorruptLogError(f"a producer snapshot's CRC32C is {crc32c(body):#010x}; it says {crc:#010x}")
    return body


def _decode_count(body: bytes, position: int, entry_bytes_min: int) -> int:
    if position + _COUNT.size > len(body):
        raise CorruptLogError("a producer snapshot is cut off")
    (count,) = _COUNT.unpack_from(body, position)
    room = (len(body) - position - _COUNT.size) // entry_bytes_min
    if not 0 <= count <= room:
        raise CorruptLogError(f"a producer snapshot claims {count} producers and has room for {room}")
    return int(count)


def _decode_entries(body: bytes, producers: dict[int, ProducerState]) -> int:
    count = _decode_count(body, 0, _ENTRY.size)
    end = _COUNT.size + count * _ENTRY.size
    for fields in _ENTRY.iter_unpack(body[_COUNT.size : end]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = (
            fields
        )
        state = ProducerState(producer_id)
        state.epoch, state.coordinator_epoch = epoch, coordinator_epoch
        state.last_timestamp = timestamp
        state.transaction_first_offset = max(first_offset, NO_OFFSET)
        if last_offset >= 0:
            state.batches.append(_batch(last_sequence, last_offset, delta, timestamp))
            state.next_sequence = (last_sequence + 1) & INT32_MAX
        producers[producer_id] = state
    if len(producers) != count:
        raise CorruptLogError("a producer snapshot has a producer twice")
    return end


def _decode_windows(body: bytes, position: int, producers: dict[int, ProducerState]) -> None:
    count = _decode_count(body, position, _WINDOW.size)
    position += _COUNT.size
    for _ in range(count):
        if position + _WINDOW.size > len(body):
            raise CorruptLogError("a producer snapshot's trailer is cut off")
        producer_id, newest_timestamp, older = _WINDOW.unpack_from(body, position)
        position += _WINDOW.size
        end = position + older * _BATCH.size
        state = producers.get(producer_id)
        if state is None or len(state.batches) != 1 or not 0 <= older < BATCHES_KEPT or end > len(body):
            raise CorruptLogError("a producer snapshot's trailer does not fit its entries")
        newest = state.batches[0]._replace(timestamp=newest_timestamp)
        state.batches = [_batch(*fields) for fields in _BATCH.iter_unpack(body[position:end])]
        state.batches.append(newest)
        position = end


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp: int) -> BatchMetadata:
    if delta < 0 or delta > last_offset:
        raise CorruptLogError(
            f"a producer snapshot has a batch that ends at {last_offset} and is {delta} long"
        )
    first_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else (last_sequence - delta) & INT32_MAX
    return BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
