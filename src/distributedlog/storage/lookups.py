"""Finding what was aborted in a log.  By time: see `timestamps`.

The transaction index is not trusted.  It is compared with the log once, when it was read from a file and not
made in this process: its entries are made again from the markers, and the log wins.
"""

import contextlib
from typing import TYPE_CHECKING

from distributedlog.model.errors import CorruptLogError, DiskFullError, LogDirectoryFailedError
from distributedlog.storage.producer_history import apply_batch
from distributedlog.storage.producers import NO_COORDINATOR_EPOCH
from distributedlog.storage.segment import Segment
from distributedlog.storage.txn_index import AbortedTransaction

if TYPE_CHECKING:
    from distributedlog.storage.log_reads import ReadableLog


def segment_end_offset(log: "ReadableLog", segment: Segment) -> int:
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


def find_aborted_transactions(log: "ReadableLog", start: int, end: int) -> list[AbortedTransaction]:
    """Returns those with records from `start` up to `end`: a read_committed reader drops them."""
    found: list[AbortedTransaction] = []
    for segment in log.segments.from_offset(start):
        verify_txn_index(log, segment)
        for entry in segment.txn_index.entries():
            if entry.last_offset >= start and entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found
    return found


def verify_txn_index(log: "ReadableLog", segment: Segment) -> None:
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
    states = log.restore_producers_at(segment.base_offset)
    aborted = [
        apply_batch(states, batch)
        for batch in log.walk(segment.base_offset, segment_end_offset(log, segment))
    ]
    index.start_empty()
    for entry in aborted:
        if entry is not None:
            index.append(entry)
    with contextlib.suppress(DiskFullError, LogDirectoryFailedError):  # a reader goes on without the file
        index.write_out()


def _may_hold_markers(log: "ReadableLog", segment: Segment) -> bool:
    """Returns whether a producer known at the segment's end has a coordinator's epoch, which a marker
    leaves."""
    is_active = segment is log.segments.active
    states = log.producers if is_active else log.snapshots.at(segment_end_offset(log, segment))
    return states is None or any(
        state.coordinator_epoch != NO_COORDINATOR_EPOCH or state.has_open_transaction for state in states
    )
