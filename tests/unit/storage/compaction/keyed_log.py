"""A log of keys and values on a simulated disk, for stories about retention and compaction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from distributedlog.model.config import LogConfig
from distributedlog.records.batch import BatchHeader, scan
from distributedlog.records.compression import Codec
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, decode_batch, encode_batch
from distributedlog.storage.append import Origin
from distributedlog.storage.compaction.log import (
    CompactionResult,
    commit_compaction,
    plan_compaction,
    run_compaction,
)
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import RecoveryReport, open_log
from tests.simulation.disk import SimDisk
from tests.simulation.inodes import CrashMode

DIRECTORY = "data/keyed-0"
START_MS = 1_700_000_000_000
COMPACT = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=16 * 1024,
    index_interval_bytes=64,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    file_delete_delay_ms=0,
)


def settings(**changes: Any) -> LogConfig:
    """`COMPACT` with changes."""
    return replace(COMPACT, **changes)


KeyValue = tuple[bytes, bytes | None]


class KeyedLog:
    """Everything that is written is synced and committed at once, unless a test says otherwise."""

    def __init__(self, config: LogConfig = COMPACT, disk: SimDisk | None = None) -> None:
        self.config = config
        self.disk = SimDisk() if disk is None else disk
        self.disk.make_directory("data")
        self.disk.sync_directory("")
        self.disk.now_ms = START_MS
        self.now_ms = START_MS
        self.is_replicated = True
        self.leader_epoch = 0
        self.first_dirty_offset = 0
        self.start_offset = 0
        self.sequences: dict[int, int] = {}
        self.log, self.report = self._open()

    def _open(self) -> tuple[PartitionLog, RecoveryReport]:
        return open_log(
            Files(self.disk), DIRECTORY, self.config, now_ms=self.now_ms, start_offset=self.start_offset
        )

    def reopen(self, mode: CrashMode = "drop") -> None:
        self.disk.crash(mode)
        self.start_offset = self.log.start_offset
        self.log, self.report = self._open()

    def advance(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.disk.now_ms = self.now_ms

    # --- writing -------------------------------------------------------------------------------

    def put(self, *pairs: KeyValue, timestamp_ms: int | None = None, codec: Codec = Codec.NONE) -> int:
        """One batch; the offset of its first record."""
        stamp = self.now_ms if timestamp_ms is None else timestamp_ms
        records = [Record(value, key, timestamp_ms=stamp) for key, value in pairs]
        return self._append(encode_batch(records, codec=codec))

    def put_as(
        self, producer_id: int, *pairs: KeyValue, epoch: int = 0, is_transactional: bool = True
    ) -> int:
        """One batch of a producer, with the sequence that is next."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(pairs)
        records = [Record(value, key, timestamp_ms=self.now_ms) for key, value in pairs]
        return self._append(
            encode_batch(
                records,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        )

    def end(self, producer_id: int, kind: ControlType, *, epoch: int = 0) -> int:
        """A marker; its offset."""
        marker = encode_end_marker_batch(
            EndMarker(kind, 1), producer_id=producer_id, producer_epoch=epoch, timestamp_ms=self.now_ms
        )
        return self._append(marker, Origin.COORDINATOR)

    def commit(self, producer_id: int, *, epoch: int = 0) -> int:
        return self.end(producer_id, ControlType.COMMIT, epoch=epoch)

    def abort(self, producer_id: int, *, epoch: int = 0) -> int:
        return self.end(producer_id, ControlType.ABORT, epoch=epoch)

    def _append(self, batch: bytearray, origin: Origin = Origin.CLIENT) -> int:
        written = self.log.append_as_leader(
            batch, leader_epoch=self.leader_epoch, now_ms=self.now_ms, origin=origin
        )
        self.settle()
        return written.base_offset

    def settle(self) -> None:
        self.log.sync()
        if self.is_replicated:
            self.log.advance_high_watermark(self.log.end_offset)

    def roll(self) -> int:
        self.log.roll(self.now_ms)
        self.settle()
        return self.log.segments.active.base_offset

    # --- compacting ----------------------------------------------------------------------------

    def compact(
        self, *, between: Callable[[], None] = lambda: None, keys_max: int = 1000
    ) -> CompactionResult | None:
        """Plans, works and commits, with `between` after the work; None if there was nothing to do."""
        plan = plan_compaction(self.log, self.first_dirty_offset, self.now_ms, keys_max=keys_max)
        if plan is None:
            return None
        result = run_compaction(plan, self.disk)
        between()
        if commit_compaction(self.log, result, self.now_ms):
            self.first_dirty_offset = result.first_dirty_offset
        return result

    def roll_and_compact(self) -> CompactionResult:
        self.roll()
        result = self.compact()
        assert result is not None
        return result

    # --- looking -------------------------------------------------------------------------------

    def batches(self) -> list[BatchHeader]:
        return [batch.header for batch in self.log.walk(self.log.start_offset, self.log.end_offset)]

    def records(self) -> list[Record]:
        """What a reader of committed data gets, from the start to the last stable offset."""
        return read_committed(self.log)

    def table(self) -> dict[bytes, bytes]:
        """What such a reader knows in the end."""
        table: dict[bytes, bytes] = {}
        for record in self.records():
            assert record.key is not None
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        return table

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def names(self, suffix: str) -> list[str]:
        return [name for name in self.disk.list_directory(DIRECTORY) if name.endswith(suffix)]


def read_committed(log: PartitionLog, max_bytes: int = 300) -> list[Record]:
    """Reads by small reads, as a consumer does, that begin anywhere in a batch or in a gap."""
    records: list[Record] = []
    offset, end = log.start_offset, log.last_stable_offset
    while offset < end:
        found = log.read(offset, max_bytes, up_to=end)
        if found.region is None:
            break
        with found.region as region:
            data = region.read()
        aborted = log.find_aborted_transactions(offset, end)
        position = 0
        for header in scan(data).headers:
            is_aborted = header.is_transactional and any(
                entry.producer_id == header.producer_id
                and entry.first_offset <= header.base_offset <= entry.last_offset
                for entry in aborted
            )
            if not header.is_control and not is_aborted:
                records += [
                    record
                    for record in decode_batch(data, position)
                    if log.start_offset <= record.offset < end
                ]
            position += header.size
            offset = header.next_offset
    return records
