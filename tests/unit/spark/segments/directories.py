"""Data directories for the tests of the segment source, and what a broker would give of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from distributedlog.model.config import LogConfig
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, decode_batch, encode_batch
from distributedlog.spark.segments.source import SegmentReader
from distributedlog.storage.append import Origin
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.store import LogStore

NOW_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=2048, index_interval_bytes=256)
Row = tuple[int, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


@contextmanager
def store(directory: Path, config: LogConfig = SMALL) -> Iterator[LogStore]:
    """Owned, and locked, until the end; closed cleanly."""
    made = LogStore.open(
        SystemDisk(), str(directory), clock=SystemClock(), randomness=SystemRandomness(), config=config
    )
    try:
        yield made
    finally:
        made.close()


def append(log: PartitionLog, *values: bytes, producer_id: int = -1, sequence: int = -1, **more: Any) -> int:
    """One batch; where it begins.  With a producer it is part of a transaction."""
    records = [Record(value, b"k" + value, timestamp_ms=NOW_MS + log.end_offset) for value in values]
    identity: dict[str, Any] = {}
    if producer_id >= 0:
        identity = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        identity["is_transactional"] = True
    batch = encode_batch(records, **identity, **more)
    return log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS).base_offset


def end_transaction(log: PartitionLog, producer_id: int, kind: ControlType) -> int:
    marker = encode_end_marker_batch(
        EndMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS
    )
    result = log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    return result.base_offset


def commit(made: LogStore) -> None:
    """Everything is committed, and the checkpoints say so."""
    for log in made.logs.values():
        log.advance_high_watermark(log.end_offset)
    made.checkpoint()


# --- what should be there ----------------------------------------------------------------------


def rows_of_log(log: PartitionLog, start: int | None = None, end: int | None = None) -> list[Row]:
    """What a read_committed consumer gets, by the storage engine."""
    start = log.start_offset if start is None else start
    end = log.last_stable_offset if end is None else end
    aborted = log.find_aborted_transactions(start, log.last_stable_offset)
    found: list[Row] = []
    for batch in log.walk(start, end):
        header = batch.header
        is_aborted = header.is_transactional and any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
        if not header.is_control and not is_aborted:
            found += [
                _row(record)
                for record in decode_batch(batch.window, batch.at)
                if start <= record.offset < end
            ]
    return found


def _row(record: Record) -> Row:
    headers = tuple((header.key, header.value) for header in record.headers)
    return record.offset, record.key, record.value, record.timestamp_ms, headers


# --- what is there -----------------------------------------------------------------------------


def read(path: Path | str, **options: str) -> dict[TopicPartition, list[Row]]:
    """All rows, task after task, as Spark would read them."""
    reader = SegmentReader({"segments": str(path), "includeHeaders": "true", **options})
    return rows_of(reader, reader.partitions())


def rows_of(reader: SegmentReader, tasks: Sequence[Any]) -> dict[TopicPartition, list[Row]]:
    found: dict[TopicPartition, list[Row]] = {}
    for task in tasks:
        for batch in reader.read(task):
            for row in batch.to_pylist():
                found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(_as_row(row))
    return found


def _as_row(row: Mapping[str, Any]) -> Row:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    timestamp_ms = pa.scalar(row["timestamp"], pa.timestamp("ms", "UTC")).value
    return row["offset"], row["key"], row["value"], timestamp_ms, headers
