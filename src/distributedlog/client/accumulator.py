"""Records into batches, and which batch may be sent when.  Pure: time comes in, nothing goes out by itself.
`now_ms` is of a clock that never goes back.

Each partition has a queue of batches.  Records join the last one until it is full.  Only the first may be
sent:

    open --(full, or lingered, or flushing)--> ready --(take)--> under way --(succeed | fail)--> gone
                                                 ^                  |
                                                 +-----(retry)------+

**Several under way.**  Up to `in_flight_max` batches of a partition are under way at once if the producer is
idempotent, else one.  A batch that comes back goes to its place in the queue, and is sent again only when
nothing of its partition is under way: one by one, in their order, until all that came back are gone.  The
first batch of a producer id in a partition is under way alone until it is acknowledged: a log that does not
know the id takes any sequence, and so the second batch also where it has refused the first.

**Sequences.**  An idempotent batch gets its producer id, its epoch and its first sequence when it is first
taken, and keeps them, with its bytes, through all retries: a broker that has it already says so.

| answer for a batch                       | then                                                           |
|------------------------------------------|----------------------------------------------------------------|
| out of order, and others stand before it | as it is again, behind those                                   |
| out of order, and it is the first        | it is not there and cannot be: `rewrite` gives it new sequences|
| it failed for sure, and is the last      | its sequences are free again                                   |
| it failed for sure, others stand behind  | another epoch: those behind will be refused, and rewritten     |
| it failed, and may be there              | another epoch, which has the broker refuse what is late        |

Only the first try fails for sure: a leader that is one no more may have appended what it refuses, and so what
is tried again may be there.

An epoch begins at sequence 0 in each partition, once nothing of the last epoch is under way there (KIP-360).

**Cut batches** come in whole and closed (`add_cut`): rows that were encoded without an object for each.  They
have their place in the same queue and the same life.

**Too large for a broker.**  A batch of several records is sent as several smaller ones instead (`split`,
KIP-126).  Those share its place and its sequences, so that what was sent behind it keeps its own: a
transaction has no other epoch for new ones.

**Invariants.**  Batches of a partition are taken in the order of their records.  `buffered_bytes` is the sum
over what is not gone.  A record is in exactly one batch.  No record's size is past `batch_bytes_max`, unless
it is alone in its batch.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.model.errors import DlogError, InvalidRecordError, RecordTooLargeError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    increment_sequence,
)
from distributedlog.records.compression import Codec
from distributedlog.records.record import DEFAULT_LIMITS, Record, encode_batch

if TYPE_CHECKING:
    from distributedlog.records.arrow_write import CutBatch

RECORD_OVERHEAD_BYTES: Final = 32
"""More than the lengths, deltas and counts around a record's bytes ever take, but for huge deltas."""
HEADER_OVERHEAD_BYTES: Final = 10


class Identity(NamedTuple):
    """The identity of an idempotent producer, as the cluster gave it."""

    producer_id: int
    epoch: int


NOBODY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(eq=False, slots=True)
class Batch:
    """Records of one partition that travel together.  `token` is whatever the driver hangs on it."""

    partition: TopicPartition
    created_ms: int
    records: list[Record] = field(default_factory=list)
    cut: "CutBatch | None" = None
    """Its records where they come as bytes; then `records` stays empty."""
    size_bytes: int = HEADER_BYTES
    """The upper bound of the size before compression."""
    attempts: int = 0
    due_ms: int = 0
    """The time at which it may be sent: after its linger, or after the pause before a retry."""
    identity: Identity = NOBODY
    base_sequence: int = NO_SEQUENCE
    encoded: bytearray | None = None
    flaw: DlogError | None = None
    """Why it cannot be encoded; it must be failed."""
    is_closed: bool = False
    """It takes no further records."""
    is_doubtful: bool = False
    """A try ended without a response: it may have been written."""
    is_transactional: bool = False
    order: int | None = None
    """Its place among those that were taken; None before that."""
    token: object = None
    first_index: int = 0
    """The place of its first record in the batch that was split, if it is a part of one."""
    whole_count: int | None = None
    """How many records that batch had; None: it is no part."""

    @property
    def record_count(self) -> int:
        return len(self.records) if self.cut is None else self.cut.record_count

    @property
    def is_numbered(self) -> bool:
        """It has its sequences."""
        return self.base_sequence != NO_SEQUENCE

    def encode(self, codec: Codec, level: int | None = None) -> bytearray:
        if self.cut is not None:
            return self.cut.finish(
                codec=codec,
                level=level,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.base_sequence,
                is_transactional=self.is_transactional,
            )
        return encode_batch(
            self.records,
            codec=codec,
            level=level,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.base_sequence,
            is_transactional=self.is_transactional,
        )

    def halves(self, due_ms: int) -> "list[Batch]":
        """The same records in smaller batches, with the place, the token and the sequences of the whole."""
        if self.cut is not None:
            parts = [
                Batch(self.partition, self.created_ms, cut=each, size_bytes=each.size_bytes)
                for each in self.cut.halves()
            ]
        else:
            middle = len(self.records) // 2
            parts = [
                Batch(self.partition, self.created_ms, records=each, size_bytes=_batch_bytes(each))
                for each in (self.records[:middle], self.records[middle:])
            ]
        first_index, sequence = self.first_index, self.base_sequence
        for part in parts:
            part.due_ms, part.is_closed = due_ms, True
            part.token, part.order = self.token, self.order
            part.identity, part.is_transactional = self.identity, self.is_transactional
            part.first_index = first_index
            part.whole_count = self.record_count if self.whole_count is None else self.whole_count
            first_index += part.record_count
            if self.is_numbered:
                part.base_sequence = sequence
                sequence = increment_sequence(sequence, part.record_count)
        return parts


class _Queue:
    __slots__ = ("batches", "identity", "known_id", "next_order", "next_sequence", "under_way")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.under_way: list[Batch] = []
        """The batches that were sent and not answered, in their order."""
        self.identity = NOBODY
        self.known_id = NO_PRODUCER_ID
        """The producer id of which the partition has a batch for sure."""
        self.next_sequence = 0
        self.next_order = 0

    def put_back(self, batch: Batch) -> None:
        """Puts a batch that has an order behind those that came before it, and before all others."""
        assert batch.order is not None
        at = 0
        while at < len(self.batches):
            order = self.batches[at].order
            if order is None or order >= batch.order:
                break
            at += 1
        self.batches.insert(at, batch)

    def is_followed(self, batch: Batch) -> bool:
        """Returns whether batches behind one that has left have their sequences; halves have one place."""
        assert batch.order is not None
        others = (*self.under_way, *self.batches)
        return any(
            each.order is not None and each.order >= batch.order and each.is_numbered for each in others
        )


class Accumulator:
    def __init__(
        self,
        *,
        batch_bytes_max: int,
        linger_ms: int,
        request_bytes_max: int,
        codec: Codec = Codec.NONE,
        codec_level: int | None = None,
        identity: Identity = NOBODY,
        is_transactional: bool = False,
        in_flight_max: int = 1,
    ) -> None:
        self._in_flight_max = in_flight_max
        self._is_transactional = is_transactional
        self.buffered_bytes = 0
        self.identity = identity
        self._batch_bytes_max = batch_bytes_max
        self._linger_ms = linger_ms
        self._request_bytes_max = request_bytes_max
        self._codec = codec
        self._codec_level = codec_level
        self._queues: dict[TopicPartition, _Queue] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing waits and nothing is under way."""
        return self.buffered_bytes == 0

    # --- in ------------------------------------------------------------------------------------

    def add(
        self, partition: TopicPartition, record: Record, now_ms: int, wall_ms: int, size: int | None = None
    ) -> tuple[Batch, int]:
        """The batch that took the record, and its place in it.  `wall_ms` is for a record without a time;
        `size` is its `estimated_bytes`, for whoever has asked for them already."""
        if size is None:
            size = estimated_bytes(record)
        if size + HEADER_BYTES > self._request_bytes_max:
            raise RecordTooLargeError(
                f"a record of {size} bytes does not fit into a request of {self._request_bytes_max}"
            )
        if record.timestamp_ms == NO_TIMESTAMP:
            record = record._replace(timestamp_ms=wall_ms)
        batch = self._batch_for(partition, size, now_ms)
        batch.records.append(record)
        return batch, len(batch.records) - 1

    def add_run(
        self, partition: TopicPartition, records: list[Record], size: int, now_ms: int
    ) -> tuple[Batch, int]:
        """The batch that took all of the records, and the place of the first in it.  Each has its time; their
        `estimated_bytes`, `size` in all, fit into a batch, unless there is only one."""
        batch = self._batch_for(partition, size, now_ms)
        first = len(batch.records)
        batch.records += records
        return batch, first

    def _batch_for(self, partition: TopicPartition, size: int, now_ms: int) -> Batch:
        """The last batch of the partition with room taken for so much more, or a new one."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue()
        batch = queue.batches[-1] if queue.batches else None
        is_closed = batch is None or batch.attempts or batch.cut is not None or batch.is_closed
        if is_closed or batch is None or batch.size_bytes + size > self._batch_bytes_max:
            batch = Batch(partition, now_ms, due_ms=now_ms + self._linger_ms)
            queue.batches.append(batch)
            self.buffered_bytes += HEADER_BYTES
        batch.size_bytes += size
        self.buffered_bytes += size
        return batch

    def add_batch(self, partition: TopicPartition, records: list[Record], now_ms: int) -> Batch:
        """A batch of these records alone, behind all that came before; it waits for no others.  Each record
        has its time."""
        size = _batch_bytes(records)
        if size > self._request_bytes_max:
            raise RecordTooLargeError(
                f"a batch of {size} bytes does not fit into a request of {self._request_bytes_max}"
            )
        batch = Batch(partition, now_ms, records=records, size_bytes=size, due_ms=now_ms, is_closed=True)
        self._queues.setdefault(partition, _Queue()).batches.append(batch)
        self.buffered_bytes += size
        return batch

    def add_cut(self, partition: TopicPartition, cut: "CutBatch", now_ms: int) -> Batch:
        """A batch as it is, behind all that came before; it waits for no other records."""
        if cut.size_bytes > self._request_bytes_max:
            raise RecordTooLargeError(
                f"a batch of {cut.size_bytes} bytes does not fit into a request of {self._request_bytes_max}"
            )
        batch = Batch(partition, now_ms, cut=cut, size_bytes=cut.size_bytes, due_ms=now_ms)
        self._queues.setdefault(partition, _Queue()).batches.append(batch)
        self.buffered_bytes += batch.size_bytes
        return batch

    # --- out -----------------------------------------------------------------------------------

    def ready(self, now_ms: int, *, flushing: bool = False) -> list[TopicPartition]:
        """The partitions whose first batch may be taken now."""
        return self.still_ready(self._queues, now_ms, flushing=flushing)

    def still_ready(
        self, partitions: Iterable[TopicPartition], now_ms: int, *, flushing: bool = False
    ) -> list[TopicPartition]:
        """Those of the partitions whose first batch may be taken now."""
        queues = self._queues
        return [
            each
            for each in partitions
            if self._can_take(queues[each]) and self._is_due(queues[each], now_ms, flushing)
        ]

    def _can_take(self, queue: _Queue) -> bool:
        if not queue.batches or not queue.under_way:
            return bool(queue.batches)
        return (
            len(queue.under_way) < self._in_flight_max
            and queue.batches[0].order is None
            # One of an earlier epoch, perhaps sent again as it was, may be refused: nothing overtakes it.
            and queue.under_way[0].identity == self.identity
            and self.identity is not NOBODY
            and queue.known_id == self.identity.producer_id
        )

    def _is_due(self, queue: _Queue, now_ms: int, flushing: bool) -> bool:
        first = queue.batches[0]
        if now_ms >= first.due_ms:
            return True
        return not first.attempts and (flushing or len(queue.batches) > 1)

    def next_due_ms(self) -> int | None:
        """Returns when something will be ready by itself; None if that takes an event."""
        waiting = [queue.batches[0].due_ms for queue in self._queues.values() if self._can_take(queue)]
        return min(waiting, default=None)

    def take(self, partitions: list[TopicPartition]) -> list[Batch]:
        """The first batches of these, as many as fit into one request, under way from here on."""
        taken: list[Batch] = []
        total = 0
        for partition in partitions:
            queue = self._queues[partition]
            assert self._can_take(queue)
            batch = queue.batches[0]
            if taken and total + batch.size_bytes > self._request_bytes_max:
                break
            self._seal(queue, batch)
            queue.under_way.append(queue.batches.popleft())
            total += batch.size_bytes
            taken.append(batch)
        return taken

    def _seal(self, queue: _Queue, batch: Batch) -> None:
        """Gives the batch its identity and its bytes, the first time that it is taken."""
        batch.attempts += 1
        if batch.order is None:
            batch.order = queue.next_order
            queue.next_order += 1
        if batch.encoded is not None:
            return
        is_part = batch.is_numbered
        if not is_part:
            self._number(queue, batch)
        try:
            batch.encoded = batch.encode(self._codec, self._codec_level)
            if batch.is_numbered and not is_part:
                queue.next_sequence = increment_sequence(batch.base_sequence, batch.record_count)
        except DlogError as error:
            batch.flaw = error
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            # Of another type than a record's parts have, which only Python's own checks would tell.
            batch.flaw = InvalidRecordError(f"a record for {batch.partition} cannot be encoded: {error}")
        if batch.flaw is not None and not is_part:
            batch.base_sequence = NO_SEQUENCE

    def _number(self, queue: _Queue, batch: Batch) -> None:
        if queue.identity != self.identity:
            queue.identity, queue.next_sequence = self.identity, 0
        batch.identity = self.identity
        batch.is_transactional = self._is_transactional
        batch.base_sequence = NO_SEQUENCE if self.identity is NOBODY else queue.next_sequence

    # --- back ----------------------------------------------------------------------------------

    def succeed(self, batch: Batch) -> None:
        self._finish(batch).known_id = batch.identity.producer_id

    def fail(self, batch: Batch) -> bool:
        """It was not written, or nobody knows.  Returns whether the producer needs another epoch."""
        queue = self._finish(batch)
        if not batch.is_numbered:
            return False
        if batch.is_doubtful or batch.attempts > 1 or queue.is_followed(batch):
            return True
        if queue.identity == batch.identity:
            queue.next_sequence = batch.base_sequence
        return False

    def retry(self, batch: Batch, due_ms: int) -> None:
        """It goes back to its place in the queue, as it is."""
        queue = self._queues[batch.partition]
        queue.under_way.remove(batch)
        batch.due_ms = due_ms
        queue.put_back(batch)

    def is_after_others(self, batch: Batch) -> bool:
        """Returns whether something of its partition that was sent before it is not gone."""
        queue = self._queues[batch.partition]
        waiting = queue.batches[0].order if queue.batches else None
        assert batch.order is not None
        return queue.under_way[0] is not batch or (waiting is not None and waiting < batch.order)

    def rewrite(self, batch: Batch, now_ms: int) -> bool:
        """Sends a batch again that a broker refused for its sequence, with other ones.  Returns whether the
        producer needs another epoch for that."""
        self.retry(batch, now_ms)
        batch.encoded, batch.base_sequence = None, NO_SEQUENCE
        batch.is_doubtful = False
        return batch.identity == self.identity

    def split(self, batch: Batch, now_ms: int) -> bool:
        """Puts smaller batches in place of one that was refused for its size.  Returns False if it cannot be
        made smaller."""
        if batch.record_count < 2 or batch.is_doubtful:
            return False
        queue = self._finish(batch)
        for part in reversed(batch.halves(now_ms)):
            self.buffered_bytes += part.size_bytes
            queue.put_back(part)
        return True

    def _finish(self, batch: Batch) -> _Queue:
        queue = self._queues[batch.partition]
        queue.under_way.remove(batch)
        self.buffered_bytes -= batch.size_bytes
        return queue

    def change_identity(self, identity: Identity) -> None:
        """Gives what is taken from now on another producer; batches that have one already keep it."""
        self.identity = identity

    def take_lease(self, identity: Identity) -> None:
        """Has what is taken from now on written by this producer, in a transaction that others end."""
        self.identity = identity
        self._is_transactional = True

    def drop(self, *, with_under_way: bool) -> list[Batch]:
        """Everything that waits, for when there is no hope any more."""
        dropped: list[Batch] = []
        for queue in self._queues.values():
            if with_under_way:
                dropped += queue.under_way
                queue.under_way.clear()
            dropped += queue.batches
            queue.batches.clear()
        self.buffered_bytes -= sum(batch.size_bytes for batch in dropped)
        return dropped


def _batch_bytes(records: list[Record]) -> int:
    return HEADER_BYTES + sum(map(estimated_bytes, records))


def estimated_bytes(record: Record) -> int:
    """Returns at least what the record takes in a batch that is not compressed."""
    value, key, headers, _, _ = record
    total = RECORD_OVERHEAD_BYTES
    if key is not None:
        total += len(key)
    if value is not None:
        total += len(value)
    if not headers:
        return total
    if len(headers) > DEFAULT_LIMITS.headers_per_record_max:
        raise InvalidRecordError(
            f"a record has {len(headers)} headers; {DEFAULT_LIMITS.headers_per_record_max} are allowed"
        )
    for header in headers:
        total += len(header.key) * 4 + len(header.value or b"") + HEADER_OVERHEAD_BYTES
    return total
