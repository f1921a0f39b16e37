"""Finding things in a log other than by offset: by time, and what was aborted.

Both go by indexes that are not trusted.  The time index is checked by the segment that has it.  A transaction
index is compared with the log once, when it was read from a file and not made in this process: its entries
are made again from the markers, and the log wins.
"""

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.model.errors import CorruptLogError, DiskFullError, LogDirectoryFailedError
from distributedlog.records.record import decode_batch
from distributedlog.storage.producer_history import apply_batch
from distributedlog.storage.producers import NO_COORDINATOR_EPOCH
from distributedlog.storage.segment import Segment
from distributedlog.storage.txn_index import AbortedTransaction

if TYPE_CHECKING:
    from distributedlog.storage.log import PartitionLog


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int


# --- by time -----------------------------------------------------------------------------------


def find_timestamp(log: "PartitionLog", timestamp_ms: int, up_to: int) -> TimestampOffset | None:
    """The first record at or after a time, below the offset `up_to`.  As in Kafka, it may be a marker."""
    for segment in log.segments:
        segment.load_newest_timestamp()
        segment.check_timestamps()
        if segment.max_timestamp < timestamp_ms:
            continue
        start = max(log.start_offset, segment.offset_hint_before(timestamp_ms))
        found = _first_at_or_after(log, timestamp_ms, start, min(up_to, end_of(log, segment)))
        if found is not None:
            return found
    return None


def _first_at_or_after(
    log: "PartitionLog", timestamp_ms: int, start: int, end: int
) -> TimestampOffset | None:
    for batch in log.walk(start, end):
        if batch.header.max_timestamp < timestamp_ms:
            continue
        for record in decode_batch(batch.window, batch.at, limits=log.limits, check_crc=False):
            if record.timestamp_ms >= timestamp_ms and start <= record.offset < end:
                return TimestampOffset(record.timestamp_ms, record.offset)
    return None


def newest_timestamp(log: "PartitionLog") -> TimestampOffset | None:
    """The record with the highest timestamp, the first of them if several have it."""
    newest: TimestampOffset | None = None
    for segment in sorted(log.segments, key=_newest_of, reverse=True):
        if segment.max_timestamp < (newest.timestamp_ms if newest else 0):
            break
        found = _newest_in(log, segment)
        if found is not None and (newest is None or (-found[0], found[1]) < (-newest[0], newest[1])):
            newest = found
    return newest


def _newest_of(segment: Segment) -> int:
    segment.load_newest_timestamp()
    segment.check_timestamps()
    return segment.max_timestamp


def _newest_in(log: "PartitionLog", segment: Segment) -> TimestampOffset | None:
    """What the index names; by looking if that lies before the log's start."""
    start = max(log.start_offset, segment.offset_hint_before(segment.max_timestamp))
    newest = _first_at_or_after(log, segment.max_timestamp, start, end_of(log, segment))
    if newest is not None:
        return newest
    for batch in log.walk(max(log.start_offset, segment.base_offset), end_of(log, segment)):
        if batch.header.max_timestamp <= (newest.timestamp_ms if newest else -1):
            continue
        for record in decode_batch(batch.window, batch.at, limits=log.limits, check_crc=False):
            if record.offset >= log.start_offset and record.timestamp_ms > (newest[0] if newest else -1):
                newest = TimestampOffset(record.timestamp_ms, record.offset)
    return newest


def end_of(log: "PartitionLog", segment: Segment) -> int:
    """The offset behind a segment's last."""
    next_base = log.segments.next_base(segment)
    return log.end_offset if next_base is None else next_base


def check_extent(segment: Segment, position: int, next_offset: int, segment_end: int) -> None:
    """Offsets are not under a batch's checksum: the last batch's must not run into the next segment."""
    if next_offset > segment_end:
        raise CorruptLogError(
            f"{segment.log.path} at position {position}: the batch claims offsets up to {next_offset - 1}, "
            f"the segment ends at {segment_end - 1}"
        )


# --- by transaction ----------------------------------------------------------------------------


def aborted_transactions(log: "PartitionLog", start: int, end: int) -> list[AbortedTransaction]:
    """Those with records from `start` up to `end`: a read_committed reader drops them."""
    found: list[AbortedTransaction] = []
    for segment in log.segments.from_offset(start):
        verify_txn_index(log, segment)
        for entry in segment.txn_index.entries():
            if entry.last_offset >= start and entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found
    return found


def verify_txn_index(log: "PartitionLog", segment: Segment) -> None:
    """Entries that were read from a file are made again from the log, once, and the log wins.

    No entries are no proof that nothing was aborted: the file may be lost.  But a segment that no
    transactional producer was seen by, as nearly all are, need not be walked for that.
    """
    index = segment.txn_index
    if index.is_verified:
        return
    with contextlib.suppress(CorruptLogError):
        if not index.entries() and not _may_hold_markers(log, segment):
            index.is_verified = True
            return
    states = log.producers_at(segment.base_offset)
    aborted = [apply_batch(states, batch) for batch in log.walk(segment.base_offset, end_of(log, segment))]
    index.start_empty()
    for entry in aborted:
        if entry is not None:
            index.append(entry)
    with contextlib.suppress(DiskFullError, LogDirectoryFailedError):  # a reader goes on without the file
        index.write_out()


def _may_hold_markers(log: "PartitionLog", segment: Segment) -> bool:
    """By the producers known at the segment's end: a marker leaves its coordinator's epoch with one."""
    is_active = segment is log.segments.active
    states = log.producers if is_active else log.snapshots.at(end_of(log, segment))
    return states is None or any(
        state.coordinator_epoch != NO_COORDINATOR_EPOCH or state.has_open_transaction for state in states
    )
