"""Which offset belongs to a timestamp, or to the log's start or end.  The results are Kafka's.

| requested                | result                                                                         |
|--------------------------|--------------------------------------------------------------------------------|
| latest (-1)              | the bound: last stable offset, high watermark, or the end for a replica        |
| earliest (-2), local (-4)| the log's start; without remote storage they are the same                      |
| newest timestamp (-3)    | the record with the highest timestamp, if below the bound                      |
| latest tiered (-5),      |                                                                                |
| pending upload (-6)      | nothing: there is no remote storage                                            |
| a time                   | the first record at or after it, if below the bound                            |

A new leader may for a while know less of what is committed than the old one did.  Until its high watermark
has reached the offset at which it began, the bound is not available (OFFSET_NOT_AVAILABLE): an end that
goes back would make a consumer believe that records were lost.
"""

from distributedlog.model.errors import OffsetNotAvailableError
from distributedlog.replication.contract import NOT_FOUND, Isolation, ListedOffset, OffsetSpec
from distributedlog.storage.epochs import NO_EPOCH
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.timestamps import Steps, TimestampOffset


def search(log: PartitionLog, timestamp_ms: int) -> Steps[TimestampOffset | None]:
    """Finds the record of a time, or of the newest; nothing is searched for the others."""
    if timestamp_ms == OffsetSpec.MAX_TIMESTAMP:
        return (yield from log.search_max_timestamp())
    if timestamp_ms < 0:
        return None
    return (yield from log.search_timestamp(timestamp_ms))


def list_offset(
    log: PartitionLog,
    timestamp_ms: int,
    found: TimestampOffset | None,
    isolation: int | None,
    leader_epoch: int,
    epoch_start_offset: int,
) -> ListedOffset:
    """Returns what is told of a time, with what `search` found."""
    bound = _bound(log, isolation)
    is_behind = isolation is not None and epoch_start_offset > log.high_watermark
    if timestamp_ms == OffsetSpec.LATEST:
        if is_behind:
            raise _not_available(log, epoch_start_offset)
        return ListedOffset(bound, leader_epoch=leader_epoch)
    if timestamp_ms in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL):
        return ListedOffset(log.start_offset, leader_epoch=_epoch_at(log, log.start_offset))
    if found is not None and found.offset < bound:
        return ListedOffset(found.offset, found.timestamp_ms, _epoch_at(log, found.offset))
    if found is not None and is_behind:
        raise _not_available(log, epoch_start_offset)
    return NOT_FOUND


def tells_of_end(
    log: PartitionLog, timestamp_ms: int, found: TimestampOffset | None, isolation: int | None
) -> bool:
    """Returns whether what is told of a time would be another if more were committed than this log has."""
    if timestamp_ms < 0:
        return timestamp_ms in (OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP)
    return found is None or found.offset >= _bound(log, isolation)


def _bound(log: PartitionLog, isolation: int | None) -> int:
    if isolation is None:
        return log.end_offset
    return log.last_stable_offset if isolation == Isolation.READ_COMMITTED else log.high_watermark


def _epoch_at(log: PartitionLog, offset: int) -> int:
    epoch = log.epochs.epoch_for_offset(offset)
    return NO_EPOCH if epoch is None else epoch


def _not_available(log: PartitionLog, epoch_start_offset: int) -> OffsetNotAvailableError:
    return OffsetNotAvailableError(
        f"only {log.high_watermark} is known to be committed yet; the leader began at {epoch_start_offset}"
    )
