"""Retention: whole segments go, oldest first, when they are too old or the log is too large.

| goes because of   | when                                                                       | policy |
|-------------------|----------------------------------------------------------------------------|--------|
| `retention.ms`    | the segment's time lies further back than this                             | delete |
| `retention.bytes` | the log without the segment still has at least this many bytes             | delete |
| the log's start   | all its offsets lie below `start_offset`, where `DeleteRecords` moved it   | any    |

A segment goes only if everything older goes too and if every offset in it is below the high watermark: what
is not committed is never deleted.  The active segment is no exception: if it is due, the log is rolled
first, so that a topic nobody writes to any more empties itself.

A segment's time is its newest timestamp, but never later than when its file was last written.  Clients make
timestamps; one from the far future must not keep a segment for ever.  Without any timestamp the file's time
is all there is.

Deleting is renaming; the log unlinks the files after a delay (`PartitionLog.remove_deleted_files`).  A crash
in between leaves a log that begins at one of its segments, with no hole: what was deleted may come back, and
is then deleted again.
"""

import contextlib

from distributedlog.model.errors import DiskFullError
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.segment import Segment

UNLIMITED = -1


def enforce_retention(log: PartitionLog, now_ms: int) -> list[Segment]:
    """Deletes what retention no longer keeps; the segments that went."""
    due_offset = log.start_offset
    if log.config.deletes:
        due_offset = max(due_offset, _due_offset(log, now_ms))
    # The sealed ones first: on a full disk only their going makes room for the roll.
    gone = log.delete_segments_below(due_offset, now_ms)
    if due_offset == log.end_offset and log.segments.active.size > 0:
        with contextlib.suppress(DiskFullError):  # nothing has changed; it goes when there is room
            log.roll(now_ms)
            gone += log.delete_segments_below(due_offset, now_ms)
    return gone


def read_segment_time_ms(log: PartitionLog, segment: Segment) -> int:
    """Returns when the segment was last written to, by its records as far as they can be believed."""
    modified_ms = log.files.modified_ms(segment.log.path)
    segment.load_max_timestamp()
    return modified_ms if segment.max_timestamp < 0 else min(segment.max_timestamp, modified_ms)


def _due_offset(log: PartitionLog, now_ms: int) -> int:
    """Every segment that ends at or below it is due."""
    config = log.config
    due_offset = log.start_offset
    surplus_bytes = log.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
    for segment in log.segments:
        next_base = log.segments.next_base(segment)
        end_offset = log.end_offset if next_base is None else next_base
        if end_offset > log.high_watermark:
            break
        is_surplus = surplus_bytes > 0 and segment.size <= surplus_bytes
        if not is_surplus and end_offset > log.start_offset and not _is_expired(log, segment, now_ms):
            break
        surplus_bytes -= segment.size
        due_offset = max(due_offset, end_offset)
    return due_offset


def _is_expired(log: PartitionLog, segment: Segment, now_ms: int) -> bool:
    retention_ms = log.config.retention_ms
    return retention_ms != UNLIMITED and now_ms - read_segment_time_ms(log, segment) > retention_ms
