"""Builders that the storage tests share: batches of records, logs and stores on a simulated disk."""

import dataclasses
from collections.abc import Iterable, Sequence

from distributedlog.model.config import LogConfig
from distributedlog.model.ids import TopicPartition
from distributedlog.records.batch import BatchHeader, read_header
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, decode_batch, encode_batch
from distributedlog.storage.append import AppendResult, Origin
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import RecoveryReport, open_log
from distributedlog.storage.store import LogStore
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.simulation.disk import SimDisk

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/t-0"
ROOT = "/data"
PARTITION = TopicPartition("t", 0)
BATCH_BYTES = 61 + 7 + 20
"""About what one of the records below takes as a batch of its own."""

SMALL = LogConfig(segment_bytes=1024, index_interval_bytes=100, file_delete_delay_ms=0)
"""Segments of some ten small batches, with an index entry for every second one."""


def value_of(number: int) -> bytes:
    """A value that says which record it is, and is of one length."""
    return b"value-%014d" % number


def batch_of(
    values: Sequence[bytes],
    *,
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = 0,
    keys: Sequence[bytes] | None = None,
) -> bytearray:
    records = [
        Record(value, None if keys is None else keys[at], (), timestamp_ms) for at, value in enumerate(values)
    ]
    return encode_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def marker_of(
    producer_id: int,
    producer_epoch: int = 0,
    *,
    commit: bool,
    timestamp_ms: int = NOW_MS,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytearray:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return encode_end_marker_batch(
        EndMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def open_on(
    disk: SimDisk,
    config: LogConfig = SMALL,
    *,
    files: Files | None = None,
    is_clean: bool = False,
    recovery_point: int = 0,
    start_offset: int = 0,
    high_watermark: int | None = None,
) -> tuple[PartitionLog, RecoveryReport]:
    return open_log(
        files or Files(disk),
        DIRECTORY,
        config,
        now_ms=NOW_MS,
        is_clean=is_clean,
        recovery_point=recovery_point,
        start_offset=start_offset,
        high_watermark=high_watermark,
    )


def open_store(disk: SimDisk, config: LogConfig = SMALL, *, open_files_max: int = 64) -> LogStore:
    return LogStore.open(
        disk,
        ROOT,
        clock=ManualClock(NOW_MS),
        randomness=SeededRandomness(1),
        config=config,
        open_files_max=open_files_max,
    )


def append(
    log: PartitionLog, *values: bytes, leader_epoch: int = 0, timestamp_ms: int = NOW_MS
) -> AppendResult:
    return append_data(log, batch_of(values, timestamp_ms=timestamp_ms), leader_epoch=leader_epoch)


def append_data(
    log: PartitionLog, data: bytearray, *, leader_epoch: int = 0, origin: Origin = Origin.CLIENT
) -> AppendResult:
    return log.append_as_leader(data, leader_epoch=leader_epoch, now_ms=NOW_MS, origin=origin)


def append_numbers(log: PartitionLog, numbers: Iterable[int], *, step_ms: int = 10) -> None:
    """One record a batch; record n says n and was made n steps after the beginning."""
    for number in numbers:
        append(log, value_of(number), timestamp_ms=NOW_MS + number * step_ms - 3_600_000)


def commit_all(log: PartitionLog) -> None:
    log.sync()
    log.advance_high_watermark(log.end_offset)


def batches_in(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    """The whole batches of what was read; checksums are looked at when they are decoded."""
    found = []
    position = 0
    while len(data) - position >= 61:
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        found.append((header, data[position : position + header.size]))
        position += header.size
    return found


def read_batches(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> list[tuple[BatchHeader, bytes]]:
    result = log.read(offset, max_bytes)
    if result.region is None:
        return []
    with result.region as region:
        return batches_in(region.read())


def read_records(log: PartitionLog, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Every data record from `offset` to the end, by reading on from where a read ended."""
    position = log.start_offset if offset is None else offset
    start = position
    records: list[Record] = []
    while position < log.end_offset:
        batches = read_batches(log, position, max_bytes)
        if not batches:
            break
        for header, data in batches:
            position = header.next_offset
            if not header.is_control:
                records += [record for record in decode_batch(data) if record.offset >= start]
    return records


def values_in(log: PartitionLog, offset: int | None = None) -> list[bytes | None]:
    return [record.value for record in read_records(log, offset)]


def bare(records: Iterable[Record]) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records]


def with_small_segments(**changes: object) -> LogConfig:
    return dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]
