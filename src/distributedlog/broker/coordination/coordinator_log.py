"""A partition of a coordinator's topic as the log of its machine: appended to, and read back whole.

One result of the machine is one batch, so all its records are there or none is.  The entry's offset is the
batch's first; high watermarks stand between batches, so an entry is committed when its first record is.

Reading back goes on in slices: the disk is read beside the loop, and what a slice holds is replayed on it.
Batches of a transaction are told apart by their header, and markers are replayed as what they say; what that
means is the host's matter.  Kinds of records that are not known are passed over.  A record that cannot be
decoded is skipped, counted and logged, and so is a batch whose records cannot be walked at all: neither must
end what a partition coordinates.  A marker that cannot be read commits nothing, and what came before it is
not the next one's.  A failing disk is tried again after a while: until then the coordinator is loading, for a
response from half of the log would be wrong.

A load also waits until no predecessor answers any more (`lease`): what is acknowledged here must not be
missing from what is read there.

What the bytes of its records are is the machine's (`RecordCodec`).
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from distributedlog.broker.coordination.host import Load
from distributedlog.broker.coordination.lease import Takeover
from distributedlog.model.buffers import Buffer
from distributedlog.model.config import SECOND_MS
from distributedlog.model.errors import (
    CorruptBatchError,
    DlogError,
    InvalidRecordError,
    MalformedMessageError,
    RecordTooLargeError,
    UnsupportedCompressionError,
)
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Executor, Outcome
from distributedlog.records.batch import BatchHeader, whole_batches
from distributedlog.records.control import (
    ControlType,
    EndMarker,
    encode_end_marker_batch,
    read_end_marker,
)
from distributedlog.records.layout import NO_TIMESTAMP
from distributedlog.records.record import Record, decode_batch, encode_batch
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition
from distributedlog.statemachine.pending import Producer, TransactionEnd
from distributedlog.statemachine.runtime import NO_OFFSET
from distributedlog.storage.append import Origin
from distributedlog.storage.files import FileRegion

_logger = logging.getLogger("distributedlog.broker")

SLICE_BYTES: Final = 128 * 1024
LOAD_AGAIN_MS: Final = 1 * SECOND_MS
"""The pause after a load, or an append, that failed."""
UNREADABLE: Final = (
    CorruptBatchError,
    InvalidRecordError,
    MalformedMessageError,
    RecordTooLargeError,
    UnsupportedCompressionError,
)
"""What a batch raises that cannot be walked: it will be no better the next time."""

RecordT = TypeVar("RecordT")


class RecordCodec(NamedTuple, Generic[RecordT]):
    """How the records of a machine stand in its log."""

    encode: Callable[[Sequence[RecordT]], Sequence[tuple[bytes, bytes | None]]]
    """Returns keys and values."""
    decode: Callable[[Buffer | None, Buffer | None], RecordT | None]
    """Returns None for a kind that is not known."""
    key_of: Callable[[RecordT], Hashable]
    """Returns what compaction goes by."""


class CoordinatorLog(Generic[RecordT]):
    """The log of one partition, for a host."""

    def __init__(
        self,
        partition: Partition,
        codec: RecordCodec[RecordT],
        *,
        clock: Clock,
        executor: Executor,
        begin_takeover: Callable[[int], Takeover],
    ) -> None:
        """`executor` calls back on the loop; `begin_takeover` is given a leader epoch."""
        self._partition = partition
        self._begin_takeover = begin_takeover
        self._settled_epoch: int | None = None
        """The leader epoch in which no predecessor answers any more."""
        self._codec = codec
        self._clock = clock
        self._executor = executor
        self.key_of = codec.key_of
        self.unreadable_count = 0
        """Records that could not be read when the log was last loaded."""

    # --- appending -----------------------------------------------------------------------------

    def next_offset(self) -> int:
        return self._partition.log_end_offset

    def append(self, records: Sequence[RecordT]) -> int:
        now_ms = self._clock.wall_ms()
        return self._append(encode_batch(self._stored(records), default_timestamp_ms=now_ms), now_ms)

    def append_transactional(self, records: Sequence[RecordT], producer: Producer) -> int:
        now_ms = self._clock.wall_ms()
        batch = encode_batch(
            self._stored(records),
            default_timestamp_ms=now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=True,
        )
        return self._append(batch, now_ms)

    def append_marker(self, end: TransactionEnd) -> int:
        now_ms = self._clock.wall_ms()
        kind = ControlType.COMMIT if end.is_commit else ControlType.ABORT
        batch = encode_end_marker_batch(
            EndMarker(kind, end.coordinator_epoch),
            producer_id=end.producer.producer_id,
            producer_epoch=end.producer.producer_epoch,
            timestamp_ms=now_ms,
        )
        return self._append(batch, now_ms)

    def _stored(self, records: Sequence[RecordT]) -> list[Record]:
        # Past the constructor, which costs several times as much.
        new = tuple.__new__
        return [new(Record, (value, key, (), NO_TIMESTAMP, -1)) for key, value in self._codec.encode(records)]

    def _append(self, batch: bytearray, now_ms: int) -> int:
        return self._partition.append(batch, ACKS_ALL, now_ms, Origin.COORDINATOR).base_offset

    # --- who leads -----------------------------------------------------------------------------

    def leader_epoch(self) -> int | None:
        return self._partition.leader_epoch if self._partition.is_leader else None

    def committed_offset(self, epoch: int) -> int:
        return self._partition.high_watermark - 1 if self.leader_epoch() == epoch else NO_OFFSET

    def is_writable(self) -> bool:
        """Returns False while too few replicas are in sync."""
        view = self._partition.view
        return view is None or not view.is_under_min_isr

    # --- loading -------------------------------------------------------------------------------

    def load(self, load: Load[RecordT]) -> None:
        self.unreadable_count = 0
        epoch = self._partition.leader_epoch
        takeover = None if epoch == self._settled_epoch else self._begin_takeover(epoch)

        def settled() -> None:
            if load.is_current:
                self._settled_epoch = epoch
                load.finish()

        def read_back() -> None:
            if takeover is None:
                load.finish()
            else:
                takeover.when_settled(settled)

        self._read_slice(load, self._partition.log_start_offset, read_back)

    def _read_slice(self, load: Load[RecordT], offset: int, read_back: Callable[[], None]) -> None:
        try:
            region = self._partition.log.read(offset, SLICE_BYTES).region
        except DlogError as error:
            load.finish(error)
            return
        if region is None:
            read_back()
            return

        def arrived(outcome: Outcome[bytes]) -> None:
            if not load.is_current:
                return
            try:
                next_offset = self._replay_slice(load, outcome.value(), offset)
            except DlogError as error:
                load.finish(error)
                return
            self._read_slice(load, next_offset, read_back)

        self._executor.run_blocking(lambda: _read(region), arrived)

    def _replay_slice(self, load: Load[RecordT], data: bytes, offset: int) -> int:
        """Replays the batches of a slice, and returns the offset behind them."""
        for at, header in whole_batches(data):
            try:
                self._replay_batch(load, data, at, header)
            except UNREADABLE as error:
                self.unreadable_count += max(header.record_count, 1)
                _logger.error(
                    "%s: the batch at offset %d, of %d records, cannot be read, and is skipped: %s",
                    self._partition.key, header.base_offset, header.record_count, error,
                )  # fmt: skip
            offset = header.next_offset
        return offset

    def _replay_batch(self, load: Load[RecordT], data: bytes, at: int, header: BatchHeader) -> None:
        producer = Producer(header.producer_id, header.producer_epoch)
        if header.is_control:
            aborted = TransactionEnd(producer, is_commit=False)
            try:
                marker = read_end_marker(data, at, header)
            except UNREADABLE:
                load.replay_marker(aborted, header.base_offset)
                raise
            end = TransactionEnd(producer, marker.is_commit, marker.coordinator_epoch)
            load.replay_marker(end, header.base_offset)
            return
        records = self._decode(data, at, header)
        if records:
            load.replay(records, header.base_offset, producer if header.is_transactional else None)

    def _decode(self, data: bytes, at: int, header: BatchHeader) -> list[RecordT]:
        """Returns the records of a batch that can be read; the others are counted and logged."""
        records = []
        for record in decode_batch(data, at):
            try:
                decoded = self._codec.decode(record.key, record.value)
            except DlogError as error:
                self.unreadable_count += 1
                _logger.error(
                    "%s: a record of the batch at offset %d cannot be read, and is skipped: %s",
                    self._partition.key, header.base_offset, error,
                )  # fmt: skip
                continue
            if decoded is not None:
                records.append(decoded)
        return records


def _read(region: FileRegion) -> bytes:
    with region:
        return region.read()
