"""`Log`: append and read records in a directory, from any thread of one process.

An append returns when its records are on the disk (`flush.on.commit`, the default), so that what it
returned for survives a power cut; concurrent appends share a sync.  Many records in one `append_many`
cost one sync.  Readers see what is committed and need no lock while they read.
"""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from distributedlog.embedded.batching import batch_bytes_max, into_batches
from distributedlog.embedded.store import Store
from distributedlog.model.config import LogConfig
from distributedlog.model.errors import OffsetOutOfRangeError, RegionChangedError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock
from distributedlog.ports.disk import Disk
from distributedlog.ports.executor import Executor
from distributedlog.ports.randomness import Randomness
from distributedlog.records.batch import whole_batches
from distributedlog.records.compression import Codec
from distributedlog.records.record import Header, Record, decode_batch
from distributedlog.storage.append import AppendResult
from distributedlog.storage.compaction.log import CompactionResult
from distributedlog.storage.files import OPEN_FILES_MAX
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import RecoveryReport
from distributedlog.storage.txn_index import AbortedRanges

if TYPE_CHECKING:
    import pyarrow

READ_BYTES = 1024 * 1024
LEADER_EPOCH = 0


class Log:
    """One partition's log, embedded.

    with Log.open("events") as log:
        offset = log.append(b"hello", key=b"greeting")
        for record in log.read(offset):
            print(record.offset, record.key, record.value)
    """

    def __init__(
        self, store: Store, partition: TopicPartition, log: PartitionLog, *, owns_store: bool = False
    ) -> None:
        self._store = store
        self._partition = partition
        self._log = log
        self._owns_store = owns_store

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        topic: str = "log",
        partition: int = 0,
        config: LogConfig | None = None,
        background: bool = True,
        open_files_max: int = OPEN_FILES_MAX,
        disk: Disk | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        executor: Executor | None = None,
    ) -> "Log":
        """Opens the log in a data directory of its own, making it if need be.

        `LogConfig` has every setting.  To have several logs in one directory, use `Store`; the rest is as in
        `Store.open`.
        """
        store = Store.open(
            path,
            config=config,
            background=background,
            open_files_max=open_files_max,
            disk=disk,
            clock=clock,
            randomness=randomness,
            executor=executor,
        )
        try:
            log = store.log(topic, partition)
        except BaseException:
            store.close()
            raise
        log._owns_store = True
        return log

    # --- what it is ----------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        """One past the last offset that can be read."""
        return self._log.high_watermark

    def __len__(self) -> int:
        """Returns how many offsets there are; compaction may have removed some of their records."""
        return self.end_offset - self.start_offset

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def directory(self) -> str:
        """Where the segments are; `dlog log dump` shows them."""
        return self._log.directory

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found: whether the last stop was clean, and any damage."""
        return self._store.files.reports[self._partition]

    @property
    def config(self) -> LogConfig:
        return self._log.config

    # --- appending -----------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header | tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Appends one record; its offset.  `None` as value is a tombstone: compaction removes the key."""
        stamp = self._store.now_ms() if timestamp_ms is None else timestamp_ms
        record = Record(value, key, tuple(Header(*header) for header in headers), stamp)
        return self.append_many([record])[0]

    def append_many(self, records: Iterable[Record | bytes], *, codec: Codec | str = Codec.NONE) -> range:
        """Appends records in order, with one sync for all; their offsets.

        They may take several batches.  If one is refused none stays; a crash may leave the first ones.
        """
        batches = into_batches(records, _codec(codec), self._log.config, self._store.now_ms())
        return self._append_batches(batches)

    def append_arrow(
        self, data: "pyarrow.RecordBatch | pyarrow.Table", *, codec: Codec | str = Codec.NONE
    ) -> range:
        """Appends the rows of a table with the columns value, and perhaps key, headers and timestamp."""
        from distributedlog.records.arrow_write import encode_from_arrow

        batches: list[bytearray] = []
        for part in data.to_batches() if hasattr(data, "to_batches") else [data]:
            batches += encode_from_arrow(
                part,
                codec=_codec(codec),
                batch_bytes_max=batch_bytes_max(self._log.config),
                default_timestamp_ms=self._store.now_ms(),
            )
        return self._append_batches(batches)

    def _append_batches(self, batches: list[bytearray]) -> range:
        first = last = -1
        # What was encoded here can be decoded; only compaction has a rule for records.
        is_validated = not self._log.config.compacts
        with self._store.lock:
            end_offset = self._log.end_offset
            try:
                for batch in batches:
                    result = self._store.append(self._log, partial(self._append_one, batch, is_validated))
                    first = result.base_offset if first < 0 else first
                    last = result.last_offset
            except BaseException:
                self._store.take_back(self._log, end_offset)
                raise
        if first < 0:
            return range(self.end_offset, self.end_offset)
        if self._log.config.flush_on_commit:
            self._store.make_durable(self._log, last + 1)
        return range(first, last + 1)

    def _append_one(self, batch: bytearray, is_validated: bool) -> AppendResult:
        return self._log.append_as_leader(
            batch, leader_epoch=LEADER_EPOCH, now_ms=self._store.now_ms(), is_validated=is_validated
        )

    def flush(self) -> None:
        """Everything appended is on the disk when this returns."""
        with self._store.lock:
            end_offset = self._log.end_offset
        self._store.make_durable(self._log, end_offset)

    # --- reading -------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_records: int | None = None,
        max_bytes: int = READ_BYTES,
        committed_only: bool = False,
    ) -> list[Record]:
        """Records from `offset`: what `max_bytes` of batches hold, at least one record; [] at the end.

        `committed_only` leaves out open and aborted transactions.  OffsetOutOfRangeError outside of the log.
        """
        records, next_offset = self._read_records(offset, max_bytes, committed_only)
        while not records and next_offset != offset:  # compacted, aborted or control batches only
            offset = max(next_offset, self.start_offset)
            records, next_offset = self._read_records(offset, max_bytes, committed_only)
        return records if max_records is None else records[:max_records]

    def _read_records(self, offset: int, max_bytes: int, committed_only: bool) -> tuple[list[Record], int]:
        """Records from `offset` on, and the offset behind the batches they are from."""
        data, aborted = self._read_bytes(offset, max_bytes, committed_only)
        records: list[Record] = []
        next_offset, view = offset, memoryview(data)
        for at, header in whole_batches(data):
            next_offset = header.next_offset
            if not header.is_control and not aborted.holds(header):
                records += decode_batch(view[at : at + header.size])
        if records and records[0].offset < offset:
            records = [record for record in records if record.offset >= offset]
        return records, next_offset

    def read_arrow(
        self, offset: int, *, max_bytes: int = READ_BYTES, committed_only: bool = False
    ) -> "pyarrow.RecordBatch":
        """The same as an Arrow record batch: key, value, headers, timestamp, offset."""
        from distributedlog.records.arrow import decode_to_arrow

        while True:
            data, aborted = self._read_bytes(offset, max_bytes, committed_only)
            batches, view = list(whole_batches(data)), memoryview(data)
            rows = decode_to_arrow(
                [view[at : at + header.size] for at, header in batches],
                from_offset=offset,
                skip=aborted.holds,
            )
            if rows.num_rows or not batches:
                return rows
            offset = max(batches[-1][1].next_offset, self.start_offset)

    def _read_bytes(self, offset: int, max_bytes: int, committed_only: bool) -> tuple[bytes, AbortedRanges]:
        while True:
            with self._store.lock:
                log = self._log
                up_to = log.last_stable_offset if committed_only else log.high_watermark
                result = log.read(offset, max_bytes, up_to=up_to)
                aborted = log.find_aborted_transactions(offset, up_to) if committed_only else []
            if result.region is None:
                return b"", AbortedRanges(())
            try:
                return result.region.read(), AbortedRanges(aborted)
            except RegionChangedError:
                continue  # truncated meanwhile: what is there now is what shall be read
            finally:
                with self._store.lock:
                    result.region.close()

    def iterate(self, start: int | None = None, *, committed_only: bool = False) -> Iterator[Record]:
        """Every record from `start` (the log's start, if not given) to the end at the time it is reached.

        Records that retention removes meanwhile are passed over.
        """
        offset = self.start_offset if start is None else start
        is_given = start is not None
        while True:
            try:
                records, next_offset = self._read_records(offset, READ_BYTES, committed_only)
            except OffsetOutOfRangeError:
                if is_given or offset >= self.start_offset:
                    raise
                offset = self.start_offset  # another thread has just moved it
                continue
            yield from records
            if next_offset == offset:
                return
            offset, is_given = max(next_offset, self.start_offset), False

    def __iter__(self) -> Iterator[Record]:
        return self.iterate()

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The offset of the first record at or after a time; None if all are older."""
        with self._store.lock:
            found = self._log.find_timestamp(timestamp_ms, up_to=self._log.high_watermark)
        return None if found is None else found.offset

    # --- maintenance ---------------------------------------------------------------------------

    def trim(self, offset: int) -> None:
        """Forgets everything below `offset`, durably."""
        with self._store.lock:
            self._log.advance_start_offset(offset, self._store.now_ms())
            self._store.checkpoint_starts()

    def compact(self) -> CompactionResult | None:
        """Keeps the last value of each key, now; None if there is nothing to compact.

        What is not sealed yet is left alone; `roll` first to include it.
        """
        return self._store.compact(self._partition)

    def maintain(self) -> None:
        """Does what the background does: retention, compaction where it is due and removal of deleted
        files."""
        self._store.maintain()

    def roll(self) -> None:
        """Seals the active segment, so that retention and compaction may have it."""
        with self._store.lock:
            self._log.roll(self._store.now_ms())

    def close(self) -> None:
        """Leaves nothing to recover.  A log of a `Store` is closed with the store."""
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _codec(codec: Codec | str) -> Codec:
    if isinstance(codec, Codec):
        return codec
    try:
        return Codec[codec.upper()]
    except KeyError:
        known = ", ".join(each.name.lower() for each in Codec)
        raise ValueError(f"unknown codec {codec!r}; known are {known}") from None
